"""Simulated time: a heap of (time, sequence), and a log of all events."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterable
from typing import Any

_TEXT_MAX = 150


class Clock:
    """The queue of future events. Events of the same time happen in the order in which they were scheduled.

    Attributes:
        now: seconds since the beginning.
        steps: how many things have happened.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.steps = 0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0
        # Kept as it comes, and put into words only when somebody asks: most runs are never looked at.
        self._notes: list[tuple[float, str, object]] = []

    def at(self, time: float, action: Callable[..., None], *arguments: Any) -> None:
        """Do `action(*arguments)` at `time`, in seconds."""
        assert time >= self.now, f"it is {self.now}, too late for {time}"
        self._sequence += 1
        heapq.heappush(self._heap, (time, self._sequence, action, arguments))

    def after(self, delay: float, action: Callable[..., None], *arguments: Any) -> None:
        """Do `action(*arguments)` in `delay` seconds."""
        self._sequence += 1
        heapq.heappush(self._heap, (self.now + delay, self._sequence, action, arguments))

    def step(self, until: float) -> bool:
        """Do what comes next, unless that is after `until`; returns whether there was anything."""
        heap = self._heap
        if not heap or heap[0][0] > until:
            self.now = max(self.now, until)
            return False
        self.now, _, action, arguments = heapq.heappop(heap)
        self.steps += 1
        action(*arguments)
        return True

    def drain(self) -> None:
        """Run all events that are left, however late."""
        while self._heap:
            self.step(self._heap[0][0])

    def note(self, who: str, what: object) -> None:
        """Record that something happened; the history is made of these."""
        self._notes.append((self.now, who, what))

    @property
    def num_notes(self) -> int:
        """The number of records so far."""
        return len(self._notes)

    @property
    def trace(self) -> str:
        """A hash of all that was recorded so far, to the last digit of every time and field."""
        digest = hashlib.blake2b(digest_size=16)
        for time, who, what in self._notes:
            digest.update(f"{time!r} {who} {what!r}\n".encode())
        return digest.hexdigest()

    def history(self, last: int | None = None, *, but: Iterable[str] = ()) -> str:
        """Return what happened, one line each: the `last` so many, without messages of the types named in `but`."""
        unwanted = frozenset(but)
        wanted = [note for note in self._notes if _subject(note[2]) not in unwanted]
        shown = wanted if last is None else wanted[-last:]
        hidden = len(self._notes) - len(shown)
        head = [f"({hidden} lines are not shown)"] if hidden else []
        return "\n".join(head + [f"{time:12.6f}  {who:14}  {_text(what)}" for time, who, what in shown])


def _subject(what: object) -> str:
    return type(getattr(what, "message", what)).__name__


def _text(what: object) -> str:
    text = what if isinstance(what, str) else " ".join(repr(what).split())
    return text if isinstance(what, str) or len(text) <= _TEXT_MAX else text[: _TEXT_MAX - 3] + "..."
