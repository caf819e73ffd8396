"""Frames of one large read are handled in turn with other work, and wait while their replies cannot leave."""

from __future__ import annotations

import asyncio
from typing import Any

from bringup.transport.tcp.service_link import TcpServiceLink
from bringup.transport.wire.framing import decode, encode
from bringup.transport.wire.services import ListKeys

MANY = 5000


class Transport:
    """Notes whether it is read from."""

    def __init__(self) -> None:
        self.is_reading = True
        self.ended = False

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def pause_reading(self) -> None:
        assert self.is_reading
        self.is_reading = False

    def resume_reading(self) -> None:
        assert not self.is_reading
        self.is_reading = True

    def close(self) -> None:
        self.ended = True


class Link:
    """An accepted link whose connection is taken over."""

    def __init__(self) -> None:
        self.transport = Transport()

    def hand_over(self, protocol: Any) -> tuple[Any, bytes]:
        return self.transport, b""


class Receiver:
    def __init__(self) -> None:
        self.tickets: list[int] = []
        self.reason = ""
        self.all_have_come = asyncio.Event()
        self.on_frame = lambda: None

    def received(self, frame: bytes) -> None:
        message = decode(frame)
        assert isinstance(message, ListKeys)
        self.tickets.append(message.ticket)
        self.on_frame()
        if len(self.tickets) == MANY:
            self.all_have_come.set()

    def lost(self, reason: str) -> None:
        self.reason = reason


def begin() -> tuple[TcpServiceLink, Link, Receiver]:
    link, accepted, receiver = TcpServiceLink(is_server=True), Link(), Receiver()
    link.begin(accepted, receiver)  # type: ignore[arg-type]
    return link, accepted, receiver


READ = b"".join(encode(ListKeys(ticket, "")) for ticket in range(MANY))


async def test_many_requests_of_one_read_are_served_by_turns() -> None:
    link, accepted, receiver = begin()
    link.data_received(READ)
    assert 0 < len(receiver.tickets) < MANY / 4
    assert not accepted.transport.is_reading
    await asyncio.wait_for(receiver.all_have_come.wait(), 30)
    await asyncio.sleep(0)
    assert receiver.tickets == list(range(MANY))
    assert accepted.transport.is_reading


async def test_requests_of_one_read_wait_while_answers_cannot_leave() -> None:
    link, accepted, receiver = begin()
    receiver.on_frame = lambda: link.pause_writing() if len(receiver.tickets) == 3 else None
    link.data_received(READ)
    await asyncio.sleep(0)
    assert len(receiver.tickets) == 3
    assert not accepted.transport.is_reading
    link.resume_writing()
    await asyncio.wait_for(receiver.all_have_come.wait(), 30)
    assert receiver.tickets == list(range(MANY))


async def test_what_has_come_is_delivered_before_the_end() -> None:
    link, _, receiver = begin()
    link.data_received(READ)
    link.connection_lost(None)
    assert receiver.tickets == list(range(MANY))
    assert "closed the connection" in receiver.reason
