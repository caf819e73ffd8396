"""Carries a session over one connection of the control plane: a stream of messages each way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ...transport.ports import Connection, ConnectionClosedError
from ...transport.wire.messages import Message
from ..machines.session.limits import END_TIMEOUT

ENDED_HERE = "it was ended here"


class SessionPump:
    """Writes what the session has for a connection, and delivers what comes in, until either side ends it.

    Args:
        connection: closed by `run`.
        next_to_send: returns the next message for it, `None` where there is none now.
        deliver: awaited with each message that comes; what it raises as a `ConnectionClosedError` ends the connection.
    """

    def __init__(
        self,
        connection: Connection,
        next_to_send: Callable[[], Message | None],
        deliver: Callable[[Message], Awaitable[None]],
    ) -> None:
        self._connection = connection
        self._next_to_send = next_to_send
        self._deliver = deliver
        self._more = asyncio.Event()
        self._is_finishing = False
        self._is_dropped = False
        self._parts: list[asyncio.Task[str]] = []

    async def run(self) -> str:
        """Exchange messages until the connection ends; returns how it did."""
        if self._is_dropped:
            await self._connection.close()
            return ENDED_HERE
        loop = asyncio.get_running_loop()
        writer, reader = self._parts = [loop.create_task(self._write()), loop.create_task(self._read())]
        try:
            await asyncio.wait(self._parts, return_when=asyncio.FIRST_COMPLETED)
            if not reader.done():
                # It knows how the connection ended. gRPC ends a call whose reader is cancelled, with all that is on its
                # way either way: the other side ends it first, where it lives.
                await asyncio.wait([reader], timeout=END_TIMEOUT)
        finally:
            for part in self._parts:
                part.cancel()
            await asyncio.wait(self._parts)
            await self._connection.close()
        ends = [part.result() for part in (writer, reader) if not part.cancelled()]
        return ENDED_HERE if reader.cancelled() else ends[-1]

    def go_on(self) -> None:
        """Take note that the session may have something for this connection."""
        self._more.set()

    def finish(self) -> None:
        """End it once everything that the session has for it was written."""
        self._is_finishing = True
        self.go_on()

    def drop(self) -> None:
        """End it at once: nothing more is delivered or written, from now on."""
        self._is_dropped = True
        for part in self._parts:
            part.cancel()

    async def _write(self) -> str:
        try:
            while True:
                message = self._next_to_send()
                if message is not None:
                    await self._connection.send(message)
                elif self._is_finishing:
                    return ENDED_HERE
                else:
                    self._more.clear()
                    await self._more.wait()
        except ConnectionClosedError as error:
            return str(error)

    async def _read(self) -> str:
        try:
            while True:
                await self._deliver(await self._connection.receive())
        except ConnectionClosedError as error:
            return str(error)
