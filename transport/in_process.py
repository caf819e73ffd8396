"""A connection within one process: how client 0's peer reaches the coordinator that it hosts."""

from __future__ import annotations

import asyncio

from .ports import ChannelClosedError, Connection
from .wire.messages import Message

_UNREAD_MAX = 1024


class _LocalConnection:
    def __init__(self) -> None:
        self._inbox: asyncio.Queue[Message | None] = asyncio.Queue(_UNREAD_MAX)
        self._closed = asyncio.Event()
        self.other: _LocalConnection = self

    async def send(self, message: Message) -> None:
        if self._closed.is_set() or self.other._closed.is_set():
            raise ChannelClosedError("the connection is closed")
        await self.other._inbox.put(message)

    async def receive(self) -> Message:
        if self._inbox.empty() and (self._closed.is_set() or self.other._closed.is_set()):
            raise ChannelClosedError("the connection was closed")
        message = await self._inbox.get()
        if message is None:
            raise ChannelClosedError("the connection was closed")
        return message

    async def close(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        for side in (self, self.other):
            if not side._inbox.full():  # a reader of a full inbox finds out by the flag
                side._inbox.put_nowait(None)


def local_connections() -> tuple[Connection, Connection]:
    """Return the two ends of a connection."""
    one, other = _LocalConnection(), _LocalConnection()
    one.other, other.other = other, one
    return one, other
