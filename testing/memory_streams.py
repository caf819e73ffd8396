"""Connections and links of the in-memory network, made of bounded pipes that can be cut."""

from __future__ import annotations

import asyncio

from ..transport.in_process import Pipe, PipeConnection
from ..transport.ports import ConnectionClosedError, ServiceReceiver
from ..transport.wire.control import encode
from ..transport.wire.messages import ClientMessage, Message

_SLICE_BYTES = 256 * 1024
_LENGTH_BYTES = 4


class MemoryConnection(PipeConnection):
    """One end of a connection: see `Connection`."""

    async def send(self, message: Message) -> None:
        """See `Connection.send`."""
        if isinstance(message, ClientMessage):
            encode(message)  # one that is too large for a real connection is refused here, too
        await super().send(message)


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
        """Begin to deliver frames to the receiver."""
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
        except ConnectionClosedError as error:
            if not self._is_closed:
                self.close()
                receiver.lost(str(error))
