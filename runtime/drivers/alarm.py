"""The timer of an event loop that wakes a machine at its deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .crash import OnCrash


class Alarm:
    """Used on one event loop.

    Args:
        wake: called at the deadline or somewhat before it; sets the alarm again.
        clock: the time, monotonic, in seconds.
        on_crash: told what `wake` raises, which a loop would only log.
    """

    def __init__(self, wake: Callable[[], None], clock: Callable[[], float], on_crash: OnCrash) -> None:
        self._wake = wake
        self._clock = clock
        self._on_crash = on_crash
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def set(self, due: float | None) -> None:
        """Wake the machine at a time. A timer that is too early stays: the machine then has nothing to do."""
        if due is None or (self._timer is not None and self._due <= due):
            return
        self.cancel()
        # The handle need not know when: uvloop makes one without, where that is at once.
        self._due = due
        self._timer = asyncio.get_running_loop().call_later(max(due - self._clock(), 0.0), self._ring)

    def cancel(self) -> None:
        """Wake it no more. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        try:
            self._wake()
        except Exception as error:  # noqa: BLE001 - see `on_crash`
            self._on_crash(error)
