"""How a job of processes ended, and what to say of it."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from ..machines.ids import format_ids

__all__ = ["Ended", "Outcome", "describe_exit", "describe_failure", "exit_status"]


@dataclass(frozen=True, slots=True)
class Ended:
    """A client's process that has ended; `returncode` is its exit status, or minus the signal that ended it."""

    client_id: int
    pid: int
    returncode: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended.

    Attributes:
        ended: all clients that were started, in the order in which they ended.
        first_failure: the client that failed by itself before any other; `None` where none did.
        signal: the signal that this process was asked to end with, or `None`.
    """

    ended: tuple[Ended, ...]
    first_failure: Ended | None
    signal: int | None

    @property
    def exit_status(self) -> int:
        """0, or what the launcher is to end with, as a shell says it: 128 and the signal where one ended it."""
        if self.first_failure is not None:
            return exit_status(self.first_failure.returncode)
        return 0 if self.signal is None else 128 + self.signal


def describe_exit(returncode: int) -> str:
    """Say how a process ended: `status 3`, `SIGKILL`."""
    if returncode >= 0:
        return f"status {returncode}"
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"


def exit_status(returncode: int) -> int:
    """Return the status that a shell would give: 128 and the signal for a process that a signal ended."""
    return returncode if returncode >= 0 else 128 - returncode


def describe_failure(ended: Ended, others: Sequence[int]) -> str:
    """Say which client failed first, and what became of `others`, the clients that were running then."""
    text = f"client {ended.client_id} (process {ended.pid}) failed first, with {describe_exit(ended.returncode)}"
    if not others:
        return f"{text}; no other client was running"
    plural = len(others) > 1
    verb = "were" if plural else "was"
    return f"{text}; {'clients' if plural else 'client'} {format_ids(others)} {verb} ended because of it"
