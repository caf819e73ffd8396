"""Polling of a device with a time-out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

# Seconds between two queries, doubled each time: quick work is noticed at once, slow work costs next to nothing.
_FIRST_PAUSE = 0.0002
_LAST_PAUSE = 0.02


def wait_until(is_done: Callable[[], bool], timeout: float, interrupted: threading.Event) -> bool:
    """Poll until done.

    Args:
        is_done: the query; it must not block.
        timeout: in seconds.
        interrupted: ends the wait early; may be set from any thread.

    Returns:
        Whether it is done.
    """
    end = time.monotonic() + timeout
    pause = _FIRST_PAUSE
    while not is_done():
        left = end - time.monotonic()
        if left <= 0 or interrupted.wait(min(pause, left)):
            return is_done()
        pause = min(2 * pause, _LAST_PAUSE)
    return True
