"""Connections within one process: bounded pipes, by which client 0's peer reaches the coordinator that it hosts."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from .ports import ConnectionClosedError
from .wire.messages import Message

T = TypeVar("T")

_UNREAD_MAX = 1024
"""Messages that may wait unread; the sender waits then, as over a socket."""

_ENDED_HERE = "this side closed the connection"
_ENDED_THERE = "the other side closed the connection"


class Signal:
    """A condition without a lock, for one event loop: `fire` wakes all tasks that wait."""

    def __init__(self) -> None:
        self._waiters: dict[asyncio.Future[None], None] = {}

    async def wait(self) -> None:
        """Wait for the next `fire`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        try:
            await waiter
        finally:
            del self._waiters[waiter]

    def fire(self) -> None:
        """Wake all waiting tasks."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


class Pipe(Generic[T]):
    """One direction of a connection: ordered and bounded. While it is cut nothing comes out, not even its end.

    Args:
        limit: what may wait unread, in the unit of the sizes that `put` is given.
        flows: whether it is not cut.
    """

    def __init__(self, limit: int, flows: Callable[[], bool] = lambda: True) -> None:
        self.changed = Signal()
        self._limit = limit
        self._flows = flows
        self._items: deque[tuple[T, int]] = deque()
        self._filled = 0
        self._broken: str | None = None
        self._writer_closed = False
        self._reader_closed = False

    @property
    def is_over(self) -> bool:
        """Whether nothing more can be read."""
        return self._reader_closed or (not self._items and (self._writer_closed or self._broken is not None))

    @property
    def end_for_writer(self) -> str | None:
        """The end that its writer can know of, or `None`."""
        if self._writer_closed:
            return _ENDED_HERE
        return self._broken or (_ENDED_THERE if self._reader_closed and self._flows() else None)

    @property
    def end_for_reader(self) -> str | None:
        """The end that its reader can know of, or `None`."""
        if self._reader_closed:
            return _ENDED_HERE
        return self._broken or (_ENDED_THERE if self._writer_closed and self._flows() else None)

    async def put(self, item: T, size: int) -> None:
        """Send an item; waits while too much is unread.

        Raises:
            ConnectionClosedError: the pipe has ended.
        """
        while (reason := self.end_for_writer) is None and self._filled >= self._limit:
            await self.changed.wait()
        if reason is not None:
            raise ConnectionClosedError(reason)
        self._items.append((item, size))
        self._filled += size
        self.changed.fire()

    def post(self, item: T, size: int) -> None:
        """Send an item without waiting; one that is sent over a pipe that has ended is lost."""
        if self.end_for_writer is None:
            self._items.append((item, size))
            self._filled += size
            self.changed.fire()

    @property
    def has_room(self) -> bool:
        """Whether it has not ended, and not too much is unread."""
        return self.end_for_writer is None and self._filled < self._limit

    async def room(self) -> None:
        """Wait while too much is unread; returns when the pipe has ended, too."""
        while self.end_for_writer is None and self._filled >= self._limit:
            await self.changed.wait()

    async def get(self) -> T:
        """Return the next item.

        Raises:
            ConnectionClosedError: the pipe has ended, and all that was sent before was returned.
        """
        while not (self._items and self._flows()):
            if (reason := self.end_for_reader) is not None:
                raise ConnectionClosedError(reason)
            await self.changed.wait()
        item, size = self._items.popleft()
        self._filled -= size
        self.changed.fire()
        return item

    def close_writer(self) -> None:
        """End it from the writer's side; what was sent can still be read."""
        self._writer_closed = True
        self.changed.fire()

    def close_reader(self) -> None:
        """End it from the reader's side."""
        self._reader_closed = True
        self.changed.fire()

    def break_off(self, reason: str) -> None:
        """End it for both sides; what was sent can still be read."""
        self._broken = self._broken or reason
        self.changed.fire()


class PipeConnection:
    """One end of a connection: see `Connection`."""

    def __init__(self, incoming: Pipe[Message], outgoing: Pipe[Message], certified_id: int | None = None) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self.certified_id = certified_id

    async def send(self, message: Message) -> None:
        """See `Connection.send`."""
        await self._outgoing.put(message, 1)

    async def receive(self) -> Message:
        """See `Connection.receive`."""
        return await self._incoming.get()

    async def close(self) -> None:
        """See `Connection.close`."""
        self._outgoing.close_writer()
        self._incoming.close_reader()


def local_connections() -> tuple[PipeConnection, PipeConnection]:
    """Return the two ends of a connection."""
    one, other = Pipe[Message](_UNREAD_MAX), Pipe[Message](_UNREAD_MAX)
    return PipeConnection(one, other), PipeConnection(other, one)
