"""A session: what one client's peer and the coordinator say to one another, over one connection after another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ...transport.ports import ChannelClosedError, Connection
from ...transport.wire.messages import Acknowledge, Message
from ..machines.resend_buffer import Ledger

_KEPT_MAX = 10_000
_END_TIMEOUT = 1.0


class Session:
    """One side of a session. A machine puts its messages here and never waits for the network.

    Args:
        accepts: the messages that the other side may send.
        deliver: awaited with each of them, once, in order.
        ends_first: whether this side ends a connection when all is said; the other waits a second for that.
    """

    def __init__(
        self, accepts: tuple[type, ...], deliver: Callable[[Message], Awaitable[None]], *, ends_first: bool
    ) -> None:
        self._ends_first = ends_first
        self._accepts = accepts
        self._deliver = deliver
        self._ledger: Ledger[Message] = Ledger()
        self._more = asyncio.Event()
        self._idle = asyncio.Event()
        self._is_finished = False
        self._end_timeout = _END_TIMEOUT
        self._owes_acknowledgement = False
        self._turn = 0
        self._parts: tuple[asyncio.Task[bool], asyncio.Task[str]] | None = None

    @property
    def received(self) -> int:
        """How many messages of the other side have been delivered."""
        return self._ledger.received

    @property
    def is_finished(self) -> bool:
        """Whether nothing more is to be said."""
        return self._is_finished

    @property
    def is_settled(self) -> bool:
        """Whether the other side has acknowledged all that was put."""
        return len(self._ledger) == 0

    def put(self, message: Message) -> None:
        """Queue a message. A session whose other side does not read is not queued for without end: it is given up."""
        if self._is_finished:
            return
        if len(self._ledger) >= _KEPT_MAX:
            self.finish()
        else:
            self._ledger.append(message)
            self._idle.clear()
            self._more.set()

    async def idle(self) -> None:
        """Wait until all that was put is on its way, or the connection has ended."""
        await self._idle.wait()

    def finish(self, end_timeout: float | None = None) -> None:
        """Let `carry` return once all that was put is sent. Idempotent.

        Args:
            end_timeout: seconds that the other side has to take it in; `None` for one.
        """
        self._is_finished = True
        if end_timeout is not None:
            self._end_timeout = end_timeout
        self._more.set()

    async def take(self, message: Message) -> None:
        """Deliver a message that was received already."""
        await self._deliver(message)
        self._owes_acknowledgement |= self._ledger.note_received()

    async def take_over(self) -> int:
        """End the use of the present connection, so that another can carry the session; returns that one's turn."""
        self._turn += 1
        turn = self._turn
        if self._parts is not None:
            for part in self._parts:
                part.cancel()
            await asyncio.wait(self._parts)
        return turn

    def rewind(self, received: int, turn: int) -> bool:
        """Go on after the first `received` messages, which are all that the other side has.

        Returns:
            Whether it is still that connection's turn: where another has taken over, that one goes on.

        Raises:
            ValueError: it cannot have received so many, or so few.
        """
        if turn != self._turn:
            return False
        self._ledger.rewind(received)
        return True

    async def carry(self, connection: Connection, turn: int) -> str | None:
        """Exchange messages over `connection` until it ends, or `finish`, and close it.

        Returns:
            How it ended, or `None` where another connection has taken over.
        """
        if turn != self._turn:
            await connection.close()
            return None
        loop = asyncio.get_running_loop()
        pump, reader = self._parts = (
            loop.create_task(self._pump(connection)),
            loop.create_task(self._read(connection)),
        )
        try:
            await asyncio.wait(self._parts, return_when=asyncio.FIRST_COMPLETED)
            if pump.done() and not pump.cancelled():
                if pump.result() and self._ends_first:
                    await connection.close()
                # gRPC ends a call whose reader is cancelled, with all that is on its way either way.
                await asyncio.wait([reader], timeout=self._end_timeout)
        finally:
            for part in (pump, reader):
                part.cancel()
            await asyncio.wait((pump, reader))
            if turn == self._turn:
                self._parts = None
            await connection.close()
        if turn != self._turn:
            return None
        return "it was ended here" if reader.cancelled() else reader.result()

    async def _pump(self, connection: Connection) -> bool:
        """Send what is put, until `finish`, and a last acknowledgement; returns whether all of it was sent."""
        try:
            while True:
                if self._owes_acknowledgement:
                    self._owes_acknowledgement = False
                    await connection.send(Acknowledge(self.received))
                elif self._ledger.has_unsent:
                    await connection.send(self._ledger.next_unsent())
                elif self._is_finished:
                    await connection.send(Acknowledge(self.received))
                    return True
                else:
                    self._idle.set()
                    self._more.clear()
                    await self._more.wait()
        except ChannelClosedError:
            return False
        finally:
            self._idle.set()

    async def _read(self, connection: Connection) -> str:
        """Deliver what the other side sends; returns why it ended."""
        try:
            while True:
                message = await connection.receive()
                if isinstance(message, Acknowledge):
                    self._ledger.acknowledge(message.received)
                elif isinstance(message, self._accepts):
                    await self.take(message)
                    if self._owes_acknowledgement:
                        self._more.set()
                else:
                    return f"it sent a {type(message).__name__}, which is not for it to send"
        except (ChannelClosedError, ValueError) as error:
            return str(error)
