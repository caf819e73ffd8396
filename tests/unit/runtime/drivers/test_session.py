"""One side of a session, which one connection after another carries."""

from __future__ import annotations

import asyncio

from bringup.runtime.drivers.session import Session
from bringup.transport.ports import ChannelClosedError
from bringup.transport.wire.messages import Acknowledge, Heartbeat, HeartbeatAck, Message


class Wire:
    """A connection that takes what is sent and brings nothing."""

    def __init__(self) -> None:
        self.sent: asyncio.Queue[Message] = asyncio.Queue()
        self._closed = asyncio.Event()

    async def send(self, message: Message) -> None:
        self.sent.put_nowait(message)

    async def receive(self) -> Message:
        await self._closed.wait()
        raise ChannelClosedError("the connection was closed")

    async def close(self) -> None:
        self._closed.set()


async def deliver(message: Message) -> None:
    """Take a message."""


def test_an_attempt_to_resume_that_was_overtaken_does_not_rewind() -> None:
    """Its answer was slow to leave: by then a newer connection carries the session, and has sent what was due."""

    async def test() -> None:
        session = Session((Heartbeat,), deliver, ends_first=False)
        acks = [HeartbeatAck(number, (), (), ()) for number in range(3)]
        for ack in acks:
            session.put(ack)
        older = await session.take_over()
        newer = await session.take_over()
        assert session.rewind(0, newer)
        wire = Wire()
        carrying = asyncio.create_task(session.carry(wire, newer))
        assert [await wire.sent.get() for _ in acks] == acks
        assert not session.rewind(0, older)
        assert await session.carry(Wire(), older) is None
        session.put(HeartbeatAck(3, (), (), ()))
        assert await wire.sent.get() == HeartbeatAck(3, (), (), ())
        session.finish()
        assert isinstance(await wire.sent.get(), Acknowledge)
        await carrying

    asyncio.run(test())
