"""Messages from a peer to its left neighbour, over the link that carries bytes the other way, over every network."""

from __future__ import annotations

import asyncio

import pytest

from bringup.transport.ports import LINK_MESSAGE_BYTES_MAX, Link

from .places import Place
from .test_links import linked, read

MIB = 1024 * 1024
SIZES = [1, 2, 3, 1000, 1020, 1024, 1028, 16 * 1024, 64 * 1024 - 4, 64 * 1024, 300_000, LINK_MESSAGE_BYTES_MAX]


def inbox_of(link: Link) -> asyncio.Queue[bytes]:
    """Have the messages that come over a link put into a queue."""
    inbox: asyncio.Queue[bytes] = asyncio.Queue()
    link.receive_messages(lambda message: inbox.put_nowait(bytes(message)))
    return inbox


def numbered(number: int, size: int = 8) -> bytes:
    return number.to_bytes(8, "big") + bytes(size - 8)


async def test_messages_of_all_sizes_arrive_whole_and_in_order(place: Place) -> None:
    messages = [bytes([number + 1]) * size for number, size in enumerate(SIZES)]
    async with linked(place) as (left, right):
        inbox = inbox_of(left)
        for message in messages:
            right.post(message)
            assert await inbox.get() == message
        for message in messages[:-3]:
            right.post(message)
        for message in messages[:-3]:
            assert await inbox.get() == message


async def test_messages_that_come_before_they_are_asked_for_are_kept(place: Place) -> None:
    async with linked(place) as (left, right):
        for number in range(20_000):  # more than fits into what a link keeps unread
            right.post(numbered(number))
        await left.send(b"x")
        await read(right, 1)
        inbox = inbox_of(left)
        for number in range(20_000):
            assert await inbox.get() == numbered(number)
        right.post(b"more")
        assert await inbox.get() == b"more"


async def test_a_message_does_not_wait_for_the_bytes_of_a_collective(place: Place) -> None:
    async with linked(place) as (left, right):
        inbox = inbox_of(left)
        sending = asyncio.create_task(left.send(bytes(64 * MIB)))
        await read(right, MIB)
        for number in range(100):
            right.post(numbered(number))
            assert await inbox.get() == numbered(number)
        assert not sending.done()
        for _ in range(63):
            await read(right, MIB)
        await sending


async def test_the_bytes_of_a_collective_do_not_wait_for_messages_that_nobody_reads(place: Place) -> None:
    async with linked(place) as (left, right):
        for number in range(200):
            right.post(numbered(number, 128 * 1024), is_latest=True)
        sending = asyncio.create_task(left.send(bytes(16 * MIB)))
        for _ in range(16):
            await read(right, MIB)
        await sending


async def test_a_slow_reader_gets_the_newest_and_whatever_may_not_be_dropped(place: Place) -> None:
    async with linked(place) as (left, right):
        for number in range(200):
            right.post(numbered(number, 256 * 1024), is_latest=True)
            if number == 190:
                right.post(b"a verdict")
        inbox = inbox_of(left)
        received = [await inbox.get()]
        while len(received) < 2 or received[-1] != numbered(199, 256 * 1024):
            received.append(await inbox.get())
        assert received.count(b"a verdict") == 1
        beats = [int.from_bytes(message[:8], "big") for message in received if message != b"a verdict"]
        assert beats == sorted(set(beats))
        assert len(beats) < 200


async def test_a_link_ends_whose_reader_leaves_too_much_unread(place: Place) -> None:
    async with linked(place) as (left, right):
        for number in range(64):
            right.post(numbered(number, MIB))
        assert await right.wait_closed() == "the other side does not read"
        inbox_of(left)  # a connection that is not read does not tell its end
        assert await left.wait_closed()
        right.post(b"lost")


@pytest.mark.parametrize("is_asked_for", ["before", "after"])
async def test_what_came_before_the_end_of_a_link_is_handed_over(place: Place, is_asked_for: str) -> None:
    async with linked(place) as (left, right):
        if is_asked_for == "before":
            inbox = inbox_of(left)
        for number in range(50):
            right.post(numbered(number))
        right.close()
        if is_asked_for == "after":
            inbox = inbox_of(left)
        assert await left.wait_closed()
        assert [inbox.get_nowait() for _ in range(50)] == [numbered(number) for number in range(50)]
        right.post(b"lost")
        left.post(b"lost")


async def test_messages_that_nobody_asked_for_outlive_the_end_of_their_link(place: Place) -> None:
    async with linked(place) as (left, right):
        right.post(b"verdict")
        right.close()
        assert await left.wait_closed()
        assert await inbox_of(left).get() == b"verdict"


async def test_nothing_is_handed_over_once_this_side_has_closed(place: Place) -> None:
    async with linked(place) as (left, right):
        received: list[bytes] = []

        def take_one(message: bytes | memoryview) -> None:
            received.append(bytes(message))
            left.close()

        left.receive_messages(take_one)
        for number in range(50):
            right.post(numbered(number))
        assert await right.wait_closed()
        assert received == [numbered(0)]


@pytest.mark.parametrize(
    "announced", [b"\xff\xff\xff\xff", bytes(4), (LINK_MESSAGE_BYTES_MAX + 1).to_bytes(4, "big")], ids=repr
)
@pytest.mark.places("sockets", "sockets-uvloop")
async def test_a_message_that_cannot_be_ends_the_link(place: Place, announced: bytes) -> None:
    async with linked(place) as (left, right):
        inbox_of(left)
        await right.send(announced)
        assert "does not speak this protocol" in await left.wait_closed()
        assert await right.wait_closed()
