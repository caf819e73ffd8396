"""Sees to it that the user of a client hears that its job has failed, once, by an exception or in the log."""

from __future__ import annotations

import atexit
import logging
import os
import sys

from ...errors import NotInitializedError
from .latch import Latch

_log = logging.getLogger("bringup")


class FailureNotice:
    """Of one client.

    Args:
        client_id: which.
        failed: what ended its job.
    """

    def __init__(self, client_id: int, failed: Latch[BaseException]) -> None:
        self._client_id = client_id
        self._failed = failed
        self._pid = os.getpid()
        self._is_given = False

    def log(self, how: str) -> None:
        """Log that the job has failed, unless the user knows, or this client's own program has ended it."""
        failure = self._failed.value
        if failure is not None and not isinstance(failure, NotInitializedError) and not self._is_given:
            _log.warning("client %d %s: %s", self._client_id, how, failure)
        self.note_given()

    def note_given(self) -> None:
        """Note that the user knows how the job ended."""
        self._is_given = True
        atexit.unregister(self._at_exit)

    def give_at_exit(self) -> None:
        """Log it when the interpreter ends, where nothing has told the user before."""
        if self._failed.is_set and not self._is_given:
            atexit.register(self._at_exit)

    def _at_exit(self) -> None:
        """Say what the exit status does not: nothing can change it now but an end that skips the handlers of others."""
        if os.getpid() == self._pid and getattr(sys, "last_value", None) is None:
            self.log("ends without shutdown(), so that its exit status does not tell that its job has failed")
