"""One TCP connection as a stream of bytes, received into buffers of the caller, and messages the other way."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import cast

from ..backlog import Backlog
from ..ports import LINK_MESSAGE_BYTES_MAX, ConnectionClosedError, MessageReceiver
from ..wire.form import MalformedMessageError
from ..wire.framing import Deframer, framed

_SPILL_BYTES_FIRST = 1024
_SPILL_BYTES = 64 * 1024
"""Of the spill buffer: small for a link that carries a handshake only, and fourfold each time that it is full."""

_SEND_SLICE_BYTES = 256 * 1024
"""Handed to the transport at a time: it copies the part that the kernel does not take at once."""

_PATIENCE = 10.0
"""Seconds; the default of `heartbeat_timeout`, after which the other side counts as dead anyway."""

_MILLISECONDS_MAX = 2**31 - 1
"""The largest time-out that the kernel takes: 24 days."""

_log = logging.getLogger("bringup")


class TcpLink(asyncio.BufferedProtocol):
    """A `Link` over TCP.

    Bytes go from the kernel straight into the buffer that `receive_into` was given; what comes before it is asked for
    waits in a small spill buffer, and when that is full, in the kernel.

    Args:
        on_connected: called once it is.
        patience: seconds that what was sent may stay unacknowledged: the kernel's own are some 15 minutes.
    """

    def __init__(self, on_connected: Callable[[TcpLink], None] | None = None, patience: float = _PATIENCE) -> None:
        self._on_connected = on_connected
        self._patience = patience
        self._transport: asyncio.Transport | None = None
        self._spill = bytearray()
        self._spilled = 0
        self._target: memoryview | None = None
        self._filled: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._backlog: Backlog | None = None
        self._receiver: MessageReceiver | None = None
        self._deframer: Deframer
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._is_deaf = False  # this side has ended it: nothing more is handed over

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop once connected."""
        # uvloop's transports do not derive from asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        # What is sent is the caller's memory, which is the caller's again when `send` returns: nothing may wait here.
        self._transport.set_write_buffer_limits(high=0)
        sock: socket.socket | None = transport.get_extra_info("socket")
        try:
            if sock is not None:
                self._configure(sock)
            if self._on_connected is not None:
                self._on_connected(self)
        except Exception as error:
            # The loop would keep the connection, though nobody knows of it.
            _log.warning("a connection cannot be used, and is given up: %s", error)
            self._end(f"the connection cannot be used: {error}")
            # uvloop loses the descriptor of what is closed while it is being connected.
            asyncio.get_running_loop().call_soon(self._transport.abort)
            if not isinstance(error, OSError):
                raise

    def _configure(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            patience = min(round(self._patience * 1000), _MILLISECONDS_MAX)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, patience)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by the loop: return the buffer for the next read."""
        if self._target is not None:
            return self._target
        if not self._spill:
            # When it is needed, and as small as a hello: pages that are touched first cost more than all else does
            # where a thousand clients come in one moment.
            self._spill = bytearray(_SPILL_BYTES_FIRST)
        return memoryview(self._spill)[self._spilled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the loop when it has read."""
        if self._target is not None:
            self._advance(nbytes)
            return
        self._spilled += nbytes
        if self._receiver is not None:
            self._hand_over_messages(self._receiver)
        elif self._spilled == _SPILL_BYTES:
            assert self._transport is not None
            self._transport.pause_reading()
        elif self._spilled == len(self._spill):
            # To another one: the loop holds this until it has returned.
            self._spill = self._spill + bytes(3 * len(self._spill))

    def eof_received(self) -> bool:
        """Called by the loop when the other side has closed."""
        self._end("the other side closed the connection")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop when the connection is gone."""
        self._end(str(exc) if exc else "the connection was closed")

    def pause_writing(self) -> None:
        """Called by the loop when the other side is slow."""
        self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Called by the loop when the other side has caught up."""
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None
        while self._backlog and self._writable is None:
            message, is_latest = self._backlog.take()
            self.post(message, is_latest=is_latest)

    # What the owner calls.

    @property
    def certified_id(self) -> int | None:
        """The client id in the certificate of the other side; `None` where that has none, or needs none."""
        return None if self._transport is None else self._transport.get_extra_info("client_id")

    @property
    def refusal(self) -> str:
        """Why one side does not trust the other, where it ends for that: at once, before the loop says that it has."""
        return "" if self._transport is None else str(self._transport.get_extra_info("refusal") or "")

    async def send(self, *parts: bytes | bytearray | memoryview) -> None:
        """See `Link.send`."""
        for part in parts:
            view = memoryview(part).cast("B")
            for start in range(0, len(view), _SEND_SLICE_BYTES):
                self._check_open()
                assert self._transport is not None
                self._transport.write(view[start : start + _SEND_SLICE_BYTES])
                if self._writable is not None:
                    await self._writable
        self._check_open()

    async def receive_into(self, buffer: memoryview) -> None:
        """See `Link.receive_into`."""
        assert self._target is None, "two tasks read from one link"
        rest = self._take_spilled(buffer)
        if not rest:
            return
        self._check_open()
        self._target = rest
        self._filled = asyncio.get_running_loop().create_future()
        try:
            await self._filled
        finally:
            self._target = self._filled = None

    def post(self, message: bytes, *, is_latest: bool = False) -> None:
        """See `Link.post`."""
        assert 0 < len(message) <= LINK_MESSAGE_BYTES_MAX
        if self._ended.done():
            return None
        assert self._transport is not None
        if self._writable is None:
            return self._transport.write(framed(message))
        if self._backlog is None:
            self._backlog = Backlog()
        if not self._backlog.put(message, is_latest=is_latest):
            self._break("the other side does not read")
        return None

    def receive_messages(self, receiver: MessageReceiver) -> None:
        """See `Link.receive_messages`."""
        assert self._receiver is None, "the messages of this link are taken already"
        self._receiver, self._deframer = receiver, Deframer(LINK_MESSAGE_BYTES_MAX)
        was_full = self._spilled == _SPILL_BYTES
        self._hand_over_messages(receiver)
        if was_full and self._transport is not None and not self._ended.done():
            self._transport.resume_reading()

    def _hand_over_messages(self, receiver: MessageReceiver) -> None:
        data, self._spilled = memoryview(self._spill)[: self._spilled], 0
        if not data:
            return
        try:
            for message in self._deframer.feed(data):
                if not self._is_deaf:
                    receiver(message)
        except MalformedMessageError as error:
            self._break(f"the other side does not speak this protocol: {error}")

    async def wait_closed(self) -> str:
        """See `Link.wait_closed`."""
        return await asyncio.shield(self._ended)

    def close(self) -> None:
        """See `Link.close`."""
        self._is_deaf = True
        self._end("this side closed the connection")
        if self._transport is not None:
            self._transport.close()

    def _break(self, reason: str) -> None:
        assert self._transport is not None
        self._is_deaf = True
        self._end(reason)
        self._transport.abort()

    def hand_over(self, protocol: asyncio.Protocol) -> tuple[asyncio.Transport, bytes]:
        """Hand the connection to another protocol; returns it, and the bytes received and not read yet."""
        transport = self._transport
        assert transport is not None
        assert self._target is None, "a task reads from this link"
        early = bytes(memoryview(self._spill)[: self._spilled])
        if transport.is_reading():
            # Loops read into buffers or hand out bytes, and choose when reading begins.
            transport.pause_reading()
        transport.set_protocol(protocol)
        transport.resume_reading()
        self._end("it serves another purpose now")
        self._transport, self._spill, self._on_connected = None, bytearray(), None
        return transport, early

    def _take_spilled(self, buffer: memoryview) -> memoryview:
        """Move what is already here into `buffer`; return the part still to be filled."""
        count = min(self._spilled, len(buffer))
        if count:
            buffer[:count] = memoryview(self._spill)[:count]
            left = self._spilled - count
            self._spill[:left] = self._spill[count : self._spilled]
            if self._spilled == _SPILL_BYTES and self._transport is not None and not self._ended.done():
                self._transport.resume_reading()
            self._spilled = left
        return buffer[count:]

    def _advance(self, count: int) -> None:
        assert self._target is not None
        assert self._filled is not None
        self._target = self._target[count:]
        if not self._target:
            self._target = None
            if not self._filled.done():
                self._filled.set_result(None)

    def _check_open(self) -> None:
        if self._ended.done():
            raise ConnectionClosedError(self._ended.result())
        if self._transport is not None and self._transport.is_closing():
            # A write has failed just now; the loop says so in its next turn.
            raise ConnectionClosedError(self.refusal or "the connection broke")

    def _end(self, reason: str) -> None:
        if self._ended.done():
            return
        self._ended.set_result(reason)
        for waiter in (self._filled, self._writable):
            if waiter is not None and not waiter.done():
                waiter.set_exception(ConnectionClosedError(reason))
