"""Waiting, with a limit, for work on a device that cannot be waited for in any other way than by asking."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

# Seconds between two questions: what is quick is noticed at once, and what is not costs next to nothing.
_FIRST_PAUSE = 0.0002
_LAST_PAUSE = 0.02


def wait_until(is_done: Callable[[], bool], timeout: float, interrupted: threading.Event) -> bool:
    """Ask until the answer is yes.

    Args:
        is_done: what is asked; it must not block.
        timeout: how long to go on, in seconds.
        interrupted: ends the wait early; it may be set from any thread.

    Returns:
        Whether the answer was yes.
    """
    end = time.monotonic() + timeout
    pause = _FIRST_PAUSE
    while not is_done():
        left = end - time.monotonic()
        if left <= 0 or interrupted.wait(min(pause, left)):
            return is_done()
        pause = min(2 * pause, _LAST_PAUSE)
    return True
