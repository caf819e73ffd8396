"""The loop that every driver runs, and the way out for messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ...transport.messages import Message
from ...transport.ports import ChannelClosedError, Session

__all__ = ["INBOX_MAX", "Machine", "Outbox", "drive"]

INBOX_MAX = 10_000
"""Events that may wait; who brings more waits too."""

_OUTBOX_MAX = 10_000


class Machine(Protocol):
    """See `machines`."""

    def handle(self, event: Any, now: float) -> Sequence[Any]:
        """Take in one event."""
        ...

    def wake(self, now: float) -> Sequence[Any]:
        """Do what falls due."""
        ...

    def deadline(self) -> float | None:
        """Return when to wake it."""
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
    while not is_over():
        now = clock()
        due = machine.deadline()
        if due is not None and due <= now:
            effects = machine.wake(now)
        else:
            try:
                async with asyncio.timeout(None if due is None else due - now):
                    event = await inbox.get()
            except TimeoutError:
                continue
            if event is None:
                return
            effects = machine.handle(event, clock())
        for effect in effects:
            perform(effect)


class Outbox:
    """The messages on their way into one session, in order; the machine never waits for the network."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._queue: asyncio.Queue[Message | None] = asyncio.Queue()
        self._is_finished = False

    def put(self, message: Message) -> None:
        """Queue a message. A session whose other side does not read is not queued for without end: it is given up."""
        if self._is_finished:
            return
        if self._queue.qsize() >= _OUTBOX_MAX:
            self.finish()
        else:
            self._queue.put_nowait(message)

    def finish(self) -> None:
        """Let `pump` return once all that was put is sent. Idempotent."""
        if not self._is_finished:
            self._is_finished = True
            self._queue.put_nowait(None)

    async def pump(self) -> None:
        """Send what is put, until `finish` or the end of the session."""
        try:
            while (message := await self._queue.get()) is not None:
                await self._session.send(message)
        except ChannelClosedError:
            return  # whoever reads from the session reports its end
