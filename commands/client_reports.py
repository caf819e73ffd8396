"""Where a launcher's clients tell it how they fare, and what they have told."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable

from ..processes.report import ClientState, ErrorReport, error_path, state_path


class ClientReports:
    """A folder, with the files of all clients; without one, where none can be made, nothing is ever told.

    Args:
        jobs: the addresses of the job: what a client says of another job does not count.

    Attributes:
        folder: the folder, or `None`.
    """

    def __init__(self, jobs: tuple[str, ...]) -> None:
        self._jobs = jobs
        try:
            self.folder: str | None = tempfile.mkdtemp(prefix="bringup-run-")
        except OSError:
            self.folder = None

    def prefix(self, client_id: int) -> str:
        """Return what the names of a client's files begin with; empty without a folder."""
        return "" if self.folder is None else os.path.join(self.folder, str(client_id))

    def state(self, client_id: int) -> str:
        """Return how far a client has got; see `ClientState`. Empty where it has not called `initialize()`."""
        state = ClientState.of_json(self._read(state_path(self.prefix(client_id))))
        return state.state if state is not None and state.jobs == self._jobs else ""

    def error(self, client_id: int) -> ErrorReport | None:
        """Return what ended a client, if it has said so."""
        return ErrorReport.of_json(self._read(error_path(self.prefix(client_id))))

    def waiting(self, client_ids: Iterable[int]) -> list[int]:
        """Return those of some clients that are in `initialize()`."""
        return [client_id for client_id in client_ids if self.state(client_id) == "starting"]

    def close(self) -> None:
        """Remove all."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _read(self, path: str) -> str:
        if self.folder is None:
            return ""
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError:
            return ""
