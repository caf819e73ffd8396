"""What `on_failure` asks for, once a job has failed."""

from __future__ import annotations

import logging
import os
import sys
import threading

from ..errors import BringupError
from .configuration.plan import OnFailure

__all__ = ["EXIT_STATUS", "act_on_failure"]

_log = logging.getLogger("bringup")

EXIT_STATUS = 70
"""What a process ends with when its job fails and `on_failure` is `exit`, as jax's client does."""


def act_on_failure(on_failure: OnFailure, client_id: int, error: BringupError) -> None:
    """Call whom the user named, in a thread of their own, or end the process, whatever its main thread does."""
    if callable(on_failure):
        threading.Thread(target=on_failure, args=(error,), daemon=True, name="bringup-on-failure").start()
    elif on_failure == "exit":
        _log.critical("client %d ends with status %d: %s", client_id, EXIT_STATUS, error)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(EXIT_STATUS)
