"""Frames of the coordination services over one TCP connection, without tasks: a round trip takes microseconds."""

from __future__ import annotations

import asyncio
from typing import cast

from ..ports import Frame, ServiceReceiver
from ..wire.form import MalformedMessageError
from ..wire.framing import Deframer
from .link import TcpLink

_UNSENT_BYTES_MAX = 4 * 1024 * 1024
"""Beyond the kernel's buffers; a side that serves then reads no more requests of a client that does not read."""

_FRAMES_AT_ONCE = 256
"""Of one read, which may hold many thousands: the loop then serves others first."""


class TcpServiceLink(asyncio.Protocol):
    """A `ServiceLink` on the connection of a link that has been accepted.

    Args:
        is_server: whether this is the side that serves, which see `ServiceLink`.

    Attributes:
        is_closed: whether it has ended.
    """

    def __init__(self, *, is_server: bool) -> None:
        self._is_server = is_server
        self._receiver: ServiceReceiver | None = None
        self._transport: asyncio.Transport | None = None
        self._deframer = Deframer()
        self.is_closed = False
        self._is_congested = False
        self._frames: list[Frame] = []
        self._num_delivered = 0  # of these
        self._is_reading = True
        self._is_due = False
        self._drained: list[asyncio.Future[None]] = []

    def begin(self, link: TcpLink, receiver: ServiceReceiver) -> None:
        """Take the connection over; what has come already is delivered."""
        self._receiver = receiver
        transport, early = link.hand_over(self)
        self._transport = transport
        transport.set_write_buffer_limits(high=_UNSENT_BYTES_MAX)
        if early:
            self.data_received(early)

    # What a user of the link calls.

    def send(self, parts: list[bytes]) -> None:
        """See `ServiceLink.send`."""
        if self._transport is None or self.is_closed:
            return
        if len(parts) == 1:
            self._transport.write(parts[0])
        else:
            self._transport.writelines(parts)

    async def drained(self) -> None:
        """See `ServiceLink.drained`."""
        if self._is_congested and not self.is_closed:
            waiter = asyncio.get_running_loop().create_future()
            self._drained.append(waiter)
            await waiter

    def close(self) -> None:
        """See `ServiceLink.close`."""
        self.is_closed = True
        self._release()
        if self._transport is not None:
            self._transport.close()

    # What the event loop calls.

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        try:
            frames = self._deframer.feed(data)
        except MalformedMessageError as error:
            return self._end(f"the other side does not speak this protocol: {error}")
        self._frames = self._frames + frames if self._frames else frames
        return None if self._is_due else self._deliver()

    def _deliver(self) -> None:
        """Deliver some frames; while more wait, and while much is unsent, reading is paused."""
        self._is_due = False
        receiver = self._receiver
        assert receiver is not None
        for _ in range(_FRAMES_AT_ONCE):
            if not self._frames or self.is_closed or self._is_held_up:
                break
            receiver.received(self._next_frame())
        if self.is_closed or self._transport is None:
            return
        if self._frames and not self._is_held_up:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._deliver)
        self._read(not self._frames and not self._is_held_up)

    def _next_frame(self) -> Frame:
        frame = self._frames[self._num_delivered]
        self._num_delivered += 1
        if self._num_delivered == len(self._frames):
            # A deque would be shorter, and take 700 bytes for each client of client 0.
            self._frames, self._num_delivered = [], 0
        return frame

    def _read(self, is_reading: bool) -> None:
        assert self._transport is not None
        if is_reading is not self._is_reading:
            self._is_reading = is_reading
            (self._transport.resume_reading if is_reading else self._transport.pause_reading)()

    @property
    def _is_held_up(self) -> bool:
        """Whether replies would only add to a backlog of unsent ones."""
        return self._is_server and self._is_congested

    def pause_writing(self) -> None:
        """Called by the loop."""
        self._is_congested = True
        if self._is_server and self._transport is not None and not self.is_closed:
            self._read(False)

    def resume_writing(self) -> None:
        """Called by the loop."""
        self._is_congested = False
        self._release()
        if self._is_server and not self.is_closed and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._deliver)

    def eof_received(self) -> bool:
        """Called by the loop."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        while self._frames and not self.is_closed:
            cast(ServiceReceiver, self._receiver).received(self._next_frame())
        self._end("the other side closed the connection" if exc is None else str(exc) or type(exc).__name__)

    def _end(self, reason: str) -> None:
        if self.is_closed:
            return
        self.close()
        cast(ServiceReceiver, self._receiver).lost(reason)

    def _release(self) -> None:
        waiters, self._drained = self._drained, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
