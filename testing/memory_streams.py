"""What in-memory connections and links are made of: bounded pipes that can be cut."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from ..transport.ports import ChannelClosedError, ServiceReceiver
from ..transport.wire.codec import encode
from ..transport.wire.messages import ClientMessage, Message

T = TypeVar("T")

_SLICE_BYTES = 256 * 1024
_LENGTH_BYTES = 4
_ENDED_HERE = "this side closed the connection"
_ENDED_THERE = "the other side closed the connection"


class Signal:
    """Wakes whoever waits at the moment; those who wait look again at what they wait for."""

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
        """Wake those who wait."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


class Pipe(Generic[T]):
    """One direction of a connection: in order, and bounded. While it is cut nothing comes out, not even its end.

    Args:
        limit: what may wait unread, in the unit of the sizes that `put` is given.
        flows: whether it is not cut.
    """

    def __init__(self, limit: int, flows: Callable[[], bool]) -> None:
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
        """Whether nothing can come out of it any more."""
        return self._reader_closed or (not self._items and (self._writer_closed or self._broken is not None))

    @property
    def end_for_writer(self) -> str | None:
        """How it ended, as far as its writer can know."""
        if self._writer_closed:
            return _ENDED_HERE
        return self._broken or (_ENDED_THERE if self._reader_closed and self._flows() else None)

    @property
    def end_for_reader(self) -> str | None:
        """How it ended, as far as its reader can know."""
        if self._reader_closed:
            return _ENDED_HERE
        return self._broken or (_ENDED_THERE if self._writer_closed and self._flows() else None)

    async def put(self, item: T, size: int) -> None:
        """Send an item; waits while too much is unread.

        Raises:
            ChannelClosedError: the pipe has ended.
        """
        while (reason := self.end_for_writer) is None and self._filled >= self._limit:
            await self.changed.wait()
        if reason is not None:
            raise ChannelClosedError(reason)
        self._items.append((item, size))
        self._filled += size
        self.changed.fire()

    def post(self, item: T, size: int) -> None:
        """Send an item without waiting; one that is sent over a pipe that has ended is lost."""
        if self.end_for_writer is None:
            self._items.append((item, size))
            self._filled += size
            self.changed.fire()

    async def room(self) -> None:
        """Wait while too much is unread; returns when the pipe has ended, too."""
        while self.end_for_writer is None and self._filled >= self._limit:
            await self.changed.wait()

    async def get(self) -> T:
        """Return the next item.

        Raises:
            ChannelClosedError: the pipe has ended, and all that was sent before was returned.
        """
        while not (self._items and self._flows()):
            if (reason := self.end_for_reader) is not None:
                raise ChannelClosedError(reason)
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


class MemoryConnection:
    """One end of a connection: see `Connection`."""

    def __init__(self, incoming: Pipe[Message], outgoing: Pipe[Message]) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    async def send(self, message: Message) -> None:
        """See `Connection.send`."""
        if isinstance(message, ClientMessage):
            encode(message)  # one that is too large for a real connection is refused here, too
        await self._outgoing.put(message, 1)

    async def receive(self) -> Message:
        """See `Connection.receive`."""
        return await self._incoming.get()

    async def close(self) -> None:
        """See `Connection.close`."""
        self._outgoing.close_writer()
        self._incoming.close_reader()


class MemoryLink:
    """One end of a link: see `Link`."""

    def __init__(self, incoming: Pipe[bytes], outgoing: Pipe[bytes]) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._rest = memoryview(b"")

    async def send(self, *parts: bytes | bytearray | memoryview) -> None:
        """See `Link.send`."""
        for part in parts:
            view = memoryview(part).cast("B")
            for start in range(0, len(view), _SLICE_BYTES):
                data = bytes(view[start : start + _SLICE_BYTES])
                await self._outgoing.put(data, len(data))

    async def receive_into(self, buffer: memoryview) -> None:
        """See `Link.receive_into`."""
        while len(buffer):
            if not self._rest:
                self._rest = memoryview(await self._incoming.get())
            count = min(len(self._rest), len(buffer))
            buffer[:count] = self._rest[:count]
            self._rest, buffer = self._rest[count:], buffer[count:]

    async def wait_closed(self) -> str:
        """See `Link.wait_closed`."""
        while (reason := self._incoming.end_for_reader) is None:
            await self._incoming.changed.wait()
        return reason

    def close(self) -> None:
        """See `Link.close`."""
        self._outgoing.close_writer()
        self._incoming.close_reader()


class MemoryServiceLink:
    """One end of a service link: see `ServiceLink`."""

    def __init__(self, incoming: Pipe[bytes], outgoing: Pipe[bytes], *, is_server: bool) -> None:
        self._is_server = is_server
        self._incoming = incoming
        self._outgoing = outgoing
        self._is_closed = False
        self._reader: asyncio.Task[None]

    def begin(self, receiver: ServiceReceiver) -> None:
        """Let what comes be taken in."""
        self._reader = asyncio.get_running_loop().create_task(self._read(receiver))

    def send(self, parts: list[bytes]) -> None:
        """See `ServiceLink.send`."""
        if not self._is_closed:
            data = b"".join(parts)
            self._outgoing.post(data[_LENGTH_BYTES:], len(data))

    async def drained(self) -> None:
        """See `ServiceLink.drained`."""
        await self._outgoing.room()

    def close(self) -> None:
        """See `ServiceLink.close`."""
        self._is_closed = True
        self._outgoing.close_writer()
        self._incoming.close_reader()

    async def _read(self, receiver: ServiceReceiver) -> None:
        try:
            while True:
                if self._is_server:
                    await self._outgoing.room()
                receiver.received(await self._incoming.get())
        except ChannelClosedError as error:
            if not self._is_closed:
                self.close()
                receiver.lost(str(error))
