"""Connections and links of the in-memory network, made of bounded pipes that can be cut."""

from __future__ import annotations

import asyncio

from ..transport.backlog import Backlog
from ..transport.in_process import Pipe, PipeConnection
from ..transport.ports import LINK_MESSAGE_BYTES_MAX, ConnectionClosedError, MessageReceiver, ServiceReceiver
from ..transport.wire.control import encode
from ..transport.wire.form import MalformedMessageError
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
        self._backlog = Backlog()
        self._is_closed = False
        self._sending: asyncio.Task[None] | None = None
        self._receiving: asyncio.Task[None] | None = None

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

    def post(self, message: bytes, *, is_latest: bool = False) -> None:
        """See `Link.post`."""
        assert 0 < len(message) <= LINK_MESSAGE_BYTES_MAX
        if not self._backlog and self._outgoing.has_room:
            self._outgoing.post(message, len(message))
        elif self._outgoing.end_for_writer is None:
            self._keep(message, is_latest=is_latest)

    def _keep(self, message: bytes, *, is_latest: bool) -> None:
        if not self._backlog:
            self._sending = asyncio.get_running_loop().create_task(self._send_backlog())
        if not self._backlog.put(message, is_latest=is_latest):
            self._break("the other side does not read")

    async def _send_backlog(self) -> None:
        while self._backlog:
            await self._outgoing.room()
            message, _ = self._backlog.take()
            self._outgoing.post(message, len(message))

    def receive_messages(self, receiver: MessageReceiver) -> None:
        """See `Link.receive_messages`."""
        assert self._receiving is None, "the messages of this link are taken already"
        self._receiving = asyncio.get_running_loop().create_task(self._hand_over_messages(receiver))

    async def _hand_over_messages(self, receiver: MessageReceiver) -> None:
        try:
            while not self._is_closed:
                receiver(await self._incoming.get())
        except ConnectionClosedError:
            return
        except MalformedMessageError as error:
            self._break(f"the other side does not speak this protocol: {error}")

    def _break(self, reason: str) -> None:
        self._outgoing.break_off(reason)
        self._incoming.break_off(reason)

    async def wait_closed(self) -> str:
        """See `Link.wait_closed`."""
        while (reason := self._incoming.end_for_reader) is None:
            await self._incoming.changed.wait()
        if self._receiving is not None:
            await asyncio.wait([self._receiving])
        return reason

    def close(self) -> None:
        """See `Link.close`."""
        self._is_closed = True
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
