"""Simulated time: one heap of (time, sequence), and the record of all that happened."""

from __future__ import annotations

import hashlib
import heapq
import itertools
from collections import deque
from collections.abc import Callable

__all__ = ["Clock"]

_HISTORY_LENGTH = 60


class Clock:
    """What happens when. Events of the same time happen in the order in which they were scheduled."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = itertools.count()
        self._digest = hashlib.blake2b(digest_size=16)
        self._history: deque[tuple[float, str, object]] = deque(maxlen=_HISTORY_LENGTH)

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Do `action` at `time`, in seconds."""
        assert time >= self.now, f"it is {self.now}, too late for {time}"
        heapq.heappush(self._heap, (time, next(self._sequence), action))

    def after(self, delay: float, action: Callable[[], None]) -> None:
        """Do `action` in `delay` seconds."""
        self.at(self.now + delay, action)

    def step(self, until: float) -> bool:
        """Do what comes next, unless that is after `until`; returns whether there was anything."""
        if not self._heap or self._heap[0][0] > until:
            self.now = max(self.now, until)
            return False
        self.now, _, action = heapq.heappop(self._heap)
        action()
        return True

    def note(self, who: str, what: object) -> None:
        """Record that something happened; the trace is made of these."""
        inner = getattr(what, "message", None)
        self._digest.update(f"{self.now!r} {who} {type(what).__name__} {type(inner).__name__}\n".encode())
        self._history.append((self.now, who, what))

    @property
    def trace(self) -> str:
        """A hash of all that was recorded so far."""
        return self._digest.hexdigest()

    def history(self) -> str:
        """Return the last events, one a line."""
        return "\n".join(f"{time:12.6f}  {who:12}  {repr(what)[:200]}" for time, who, what in self._history)
