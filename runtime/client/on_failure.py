"""What `on_failure` asks for, once a job has failed."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading

from ...errors import PeerFailedError
from ..configuration.plan import OnFailure
from .fresh import fresh
from .latch import Latch

_log = logging.getLogger("bringup")

EXIT_STATUS = 70
"""What a process ends with when its job fails and `on_failure` is `exit`, as jax's client does."""

_TELLING_TIMEOUT = 5.0
"""Seconds for which the last words to the others are waited for."""

_FLUSH_TIMEOUT = 2.0


class FailureAction:
    """Does what the user wants done where a job that was up has failed, once, not where this client ended itself."""

    def __init__(self, on_failure: OnFailure, client_id: int) -> None:
        self._on_failure = on_failure
        self._client_id = client_id
        self._is_taken = False

    def take(self, error: PeerFailedError | None, parted: Latch[None]) -> None:
        """Act on what has ended the job; idempotent. Called on the runtime's thread.

        Args:
            error: what has ended it, or `None`.
            parted: set once the others have been told: a process that ends before has not told them why.
        """
        if self._is_taken or error is None:
            return
        self._is_taken = True
        if self._on_failure != "raise":
            self._begin(fresh(error), parted)

    def _begin(self, error: PeerFailedError, parted: Latch[None]) -> None:
        # An interpreter that comes to its end meanwhile waits for the one that ends it with another status.
        is_daemon = callable(self._on_failure)
        thread = threading.Thread(target=self._act, args=(error, parted), daemon=is_daemon, name="bringup-on-failure")
        try:
            thread.start()
        except RuntimeError:  # no more threads can be had, or the interpreter is ending
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
    """End the process; nobody who fails to read what it writes can keep it."""

    def say() -> None:
        _log.critical("client %d ends with status %d: %s", client_id, EXIT_STATUS, error)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # it may be None, closed, broken, or anything that a user made
                stream.flush()

    thread = threading.Thread(target=say, daemon=True, name="bringup-last-output")
    with contextlib.suppress(RuntimeError):
        thread.start()
        thread.join(_FLUSH_TIMEOUT)
    os._exit(EXIT_STATUS)
