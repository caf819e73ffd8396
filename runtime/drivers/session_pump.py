"""Carries a session over one connection of the control plane: a stream of messages each way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

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
        self._is_finishing = False
        self._is_dropped = False
        self._reader: asyncio.Task[str] | None = None
        # Only while there is something to write: client 0 has a pump for each client, and most are idle.
        self._writer: asyncio.Task[str | None] | None = None
        self._has_more = True
        self._written: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def run(self) -> str:
        """Exchange messages until the connection ends; returns how it did."""
        if self._is_dropped:
            await self._connection.close()
            return ENDED_HERE
        loop = asyncio.get_running_loop()
        reader = self._reader = loop.create_task(self._read())
        has_ended: asyncio.Future[None] = loop.create_future()
        for end in (reader, self._written):
            end.add_done_callback(lambda _: has_ended.done() or has_ended.set_result(None))  # type: ignore[func-returns-value]
        try:
            self._begin_to_write()
            await has_ended
            if not reader.done():
                # It knows how the connection ended. gRPC ends a call whose reader is cancelled, with all that is on its
                # way either way: the other side ends it first, where it lives.
                await asyncio.wait([reader], timeout=END_TIMEOUT)
        finally:
            self.drop()
            await asyncio.wait(self._parts())
            await self._connection.close()
        if self._written.done():
            self._written.result()  # it may have failed as nobody expected
        return ENDED_HERE if reader.cancelled() else reader.result()

    def go_on(self) -> None:
        """Take note that the session may have something for this connection."""
        self._has_more = True
        self._begin_to_write()

    def finish(self) -> None:
        """End it once everything that the session has for it was written."""
        self._is_finishing = True
        self.go_on()

    def drop(self) -> None:
        """End it at once: nothing more is delivered or written, from now on."""
        self._is_dropped = True
        for part in self._parts():
            part.cancel()

    def _parts(self) -> list[asyncio.Task[Any]]:
        return [part for part in (self._reader, self._writer) if part is not None]

    def _begin_to_write(self) -> None:
        if self._writer is None and self._reader is not None and not self._is_dropped and not self._written.done():
            self._writer = asyncio.get_running_loop().create_task(self._write())
            self._writer.add_done_callback(self._has_written)

    async def _write(self) -> str | None:
        """Write what there is; returns how the connection ended, where it has."""
        try:
            while (message := self._next_to_send()) is not None:
                await self._connection.send(message)
        except ConnectionClosedError as error:
            return str(error)
        self._has_more = False  # what comes from now on, before this has ended, is for the next writer
        return ENDED_HERE if self._is_finishing else None

    def _has_written(self, writer: asyncio.Task[str | None]) -> None:
        self._writer = None
        if writer.cancelled():
            return
        if (error := writer.exception()) is not None:
            self._written.set_exception(error)
            self._written.exception()  # where this was cancelled meanwhile, nobody asks
        elif (end := writer.result()) is not None:
            self._written.set_result(end)
        elif self._has_more:
            self._begin_to_write()

    async def _read(self) -> str:
        try:
            while True:
                await self._deliver(await self._connection.receive())
        except ConnectionClosedError as error:
            return str(error)
