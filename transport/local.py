"""A session within one process: how client 0's peer reaches the coordinator that it hosts."""

from __future__ import annotations

import asyncio

from .messages import Message
from .ports import ChannelClosedError, Session

__all__ = ["local_sessions"]

_UNREAD_MAX = 1024


class _LocalSession:
    def __init__(self) -> None:
        self._inbox: asyncio.Queue[Message | None] = asyncio.Queue(_UNREAD_MAX)
        self._closed = asyncio.Event()
        self.other: _LocalSession = self

    async def send(self, message: Message) -> None:
        if self._closed.is_set() or self.other._closed.is_set():
            raise ChannelClosedError("the session is closed")
        await self.other._inbox.put(message)

    async def receive(self) -> Message:
        if self._inbox.empty() and (self._closed.is_set() or self.other._closed.is_set()):
            raise ChannelClosedError("the session was closed")
        message = await self._inbox.get()
        if message is None:
            raise ChannelClosedError("the session was closed")
        return message

    async def close(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        for side in (self, self.other):
            if not side._inbox.full():  # a reader of a full inbox finds out by the flag
                side._inbox.put_nowait(None)


def local_sessions() -> tuple[Session, Session]:
    """Return the two ends of a session."""
    one, other = _LocalSession(), _LocalSession()
    one.other, other.other = other, one
    return one, other
