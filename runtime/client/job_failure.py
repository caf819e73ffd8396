"""The response of a process to the failure of its job: the `on_failure` action, and a last line in the log."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import threading

from ...errors import NotInitializedError, PeerFailedError
from ..configuration.request import OnFailure
from ..drivers.latch import Latch
from ..machines.failure_errors import fresh

_log = logging.getLogger("bringup")

EXIT_STATUS = 70
"""The status of a process that ends by `on_failure="exit"`; jax's client ends with the same."""

# Seconds to wait until the other clients have been told: they shall hear the cause, rather than see a process die. The
# goodbye takes a round trip; five seconds bound it where the network is what has failed.
_TELLING_TIMEOUT = 5.0

# Seconds for the last line of the log and buffered output; a reader that has stopped must not keep the process alive.
_FLUSH_TIMEOUT = 2.0


class FailureAction:
    """Carries out `on_failure`, once, where a job that was up fails; not where this client's own program ended it."""

    def __init__(self, on_failure: OnFailure, client_id: int) -> None:
        self._on_failure = on_failure
        self._client_id = client_id
        self._is_taken = False

    def take(self, error: PeerFailedError | None, parted: Latch[None]) -> None:
        """Act on the failure of the job; idempotent. Called on the client's thread.

        Args:
            error: the failure, or `None`.
            parted: set once the other clients have been told.
        """
        if self._is_taken or error is None:
            return
        self._is_taken = True
        if self._on_failure != "raise":
            self._begin(fresh(error), parted)

    def _begin(self, error: PeerFailedError, parted: Latch[None]) -> None:
        # Not a daemon for "exit": an interpreter that ends meanwhile waits for it, and so gets its exit status.
        is_daemon = callable(self._on_failure)
        thread = threading.Thread(target=self._act, args=(error, parted), daemon=is_daemon, name="bringup-on-failure")
        try:
            thread.start()
        except RuntimeError:  # there can be no more threads, or the interpreter is ending
            if self._on_failure == "exit":
                os._exit(EXIT_STATUS)
            _log.critical("client %d: on_failure was not called, for want of a thread: %s", self._client_id, error)

    def _act(self, error: PeerFailedError, parted: Latch[None]) -> None:
        parted.wait_blocking(_TELLING_TIMEOUT)
        if callable(self._on_failure):
            self._on_failure(error)
        else:
            _exit(self._client_id, error)


def _exit(client_id: int, error: PeerFailedError) -> None:
    """End the process, also where nobody reads its output."""

    def say() -> None:
        _log.critical("client %d ends with status %d: %s", client_id, EXIT_STATUS, error)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # it may be None, closed, broken, or a user's own object
                stream.flush()

    thread = threading.Thread(target=say, daemon=True, name="bringup-last-output")
    with contextlib.suppress(RuntimeError):
        thread.start()
        thread.join(_FLUSH_TIMEOUT)
    os._exit(EXIT_STATUS)


class FailureNotice:
    """Tells the user of a client once that its job has failed: in the log, where no exception has told it.

    Args:
        client_id: of the client.
        failed: set to the exception that ended its job.
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
        atexit.unregister(self.at_exit)

    def give_at_exit(self) -> None:
        """Log it at the end of the interpreter, unless the user hears of it before."""
        if self._failed.is_set and not self._is_given:
            atexit.register(self.at_exit)

    def at_exit(self) -> None:
        """Say what the exit status does not: only an end that skips the exit handlers of others could change it now."""
        if os.getpid() == self._pid and getattr(sys, "last_value", None) is None:
            self.log("ends without shutdown(), so that its exit status does not tell that its job has failed")
