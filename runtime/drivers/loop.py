"""The event loop of a machine: events in, effects out, deadlines met."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from .alarm import Alarm

INBOX_MAX = 10_000
"""Events that may wait. Some tens of thousands come in a burst of the largest jobs; a sender of more waits, too."""

_DUE: Any = object()
"""Stands in an inbox that is waited at for a deadline."""


class Machine(Protocol):
    """The contract of `runtime.machines`."""

    def handle(self, event: Any, now: float) -> Sequence[Any]:
        """Take in one event."""
        ...

    def wake(self, now: float) -> Sequence[Any]:
        """Do what falls due."""
        ...

    def caught_up(self, now: float) -> None:
        """Note that nothing was unread at `now`: events that it has not seen by then had not come."""
        ...

    def deadline(self) -> float | None:
        """Return when to wake it; `None` for never."""
        ...


async def drive(
    machine: Machine,
    inbox: asyncio.Queue[Any],
    perform: Callable[[Any], None],
    clock: Callable[[], float],
    is_over: Callable[[], bool],
) -> None:
    """Run `machine` until `is_over`, or until `None` arrives in `inbox`.

    The deadline is looked at before every event: under a backlog of events a timer would not get its turn.
    """

    def knock() -> None:
        if inbox.empty():
            inbox.put_nowait(_DUE)

    alarm = Alarm(knock, clock, _unexpected)
    # Where a crowd comes at once, the machine may not have read all of it when it is to judge for the first time.
    machine.caught_up(clock())
    try:
        while not is_over():
            now = clock()
            due = machine.deadline()
            if due is not None and due <= now:
                effects = machine.wake(now)
            else:
                has_read_all = inbox.empty()
                if has_read_all:
                    alarm.set(due)
                event = await inbox.get()
                if has_read_all:
                    machine.caught_up(clock())
                try:
                    if event is None:
                        return
                    effects = () if event is _DUE else machine.handle(event, clock())
                finally:
                    inbox.task_done()
            for effect in effects:
                perform(effect)
    finally:
        alarm.cancel()


def _unexpected(error: Exception) -> None:
    raise AssertionError("an inbox that is empty has room") from error
