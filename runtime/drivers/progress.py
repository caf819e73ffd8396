"""The reports of this client's program, from any of its threads, as events for the peer's machine."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator

from ..machines.peer.program import OwnProgram, ProgressReported

_PAUSE = 0.02
"""Seconds between two events: heartbeats, which carry the state, are far rarer, and a program may report a step every
microsecond. In between, a report costs a lock and a comparison."""


class ProgressReports:
    """The reports and waits of the program. Used on any thread, but for `events`.

    Args:
        clock: the time, monotonic, in seconds.
        call_soon: has a function called on the peer's loop.
    """

    def __init__(self, clock: Callable[[], float], call_soon: Callable[[Callable[[], object]], None]) -> None:
        self._clock = clock
        self._call_soon = call_soon
        self._program = OwnProgram()
        # Reentrant: the handler of a signal may report, and may have interrupted a report.
        self._lock = threading.RLock()
        self._is_announced = False
        self._changed = asyncio.Event()

    def report(self, step: int) -> None:
        """Note the step of the program."""
        with self._lock:
            self._program.report(step, self._clock())
            self._announce()

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Note, as long as it lasts, that a call of the program waits for other clients."""
        with self._lock:
            self._program.wait_begins()
            self._announce()
        try:
            yield
        finally:
            with self._lock:
                self._program.wait_ends(self._clock())
                self._announce()

    @property
    def is_waiting(self) -> bool:
        """Whether a call of the program waits for other clients."""
        return self._program.is_waiting

    @property
    def state(self) -> ProgressReported | None:
        """The program's state now; `None` where it has reported no step yet."""
        with self._lock:
            return self._program.state()

    async def events(self) -> AsyncIterator[ProgressReported]:
        """Yield the state whenever it has changed, without end; of several changes at once only the last."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            with self._lock:
                self._is_announced = False
                state = self._program.state()
            if state is not None:
                yield state
            await asyncio.sleep(_PAUSE)

    def _announce(self) -> None:
        if not self._is_announced and self._program.state() is not None:
            self._is_announced = True
            self._call_soon(self._changed.set)
