"""What `on_failure` asks for, once a job has failed."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading

from ..errors import BringupError
from .configuration.plan import OnFailure
from .latch import Latch

__all__ = ["EXIT_STATUS", "act_on_failure"]

_log = logging.getLogger("bringup")

EXIT_STATUS = 70
"""What a process ends with when its job fails and `on_failure` is `exit`, as jax's client does."""

_TELLING_TIMEOUT = 5.0
"""Seconds for which the last words to the others are waited for; see `CoordinationPeer.parted`."""

_FLUSH_TIMEOUT = 2.0


def act_on_failure(on_failure: OnFailure, client_id: int, error: BringupError, parted: Latch[None]) -> None:
    """Call whom the user named, or end the process, whatever its main thread does, in a thread of its own.

    Only once this client has `parted` from the others: a process that ends before has not told them why.
    """
    if on_failure == "raise":
        return

    def act() -> None:
        parted.wait_blocking(_TELLING_TIMEOUT)
        if callable(on_failure):
            on_failure(error)  # type: ignore[arg-type]  # or the failure of the runtime itself
        else:
            _exit(client_id, error)

    # An interpreter that comes to its end meanwhile waits for the one that ends it with another status.
    thread = threading.Thread(target=act, daemon=callable(on_failure), name="bringup-on-failure")
    try:
        thread.start()
    except RuntimeError:  # no more threads can be had, or the interpreter is ending
        if on_failure == "exit":
            os._exit(EXIT_STATUS)
        _log.critical("client %d: on_failure was not called, for want of a thread: %s", client_id, error)


def _exit(client_id: int, error: BringupError) -> None:
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
