"""The services with thousands of clients: messages, encodings and steps are counted, not timed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from bringup.runtime.drivers.service_server import ServiceServer
from bringup.runtime.machines.service_machine import ServiceMachine
from bringup.transport.ports import LinkIdentity
from bringup.transport.wire import shared_replies
from bringup.transport.wire.framing import decode, encode
from bringup.transport.wire.services import (
    Changes,
    ClientIds,
    Done,
    EnterBarrier,
    GetKey,
    ListLive,
    ServiceMessage,
    ServiceRequest,
    SetKey,
    Value,
    WatchKeys,
)
from bringup.transport.wire.session_messages import EndSession, OpenSession

CROWD = 3_000
FEW, MANY = 100, 400
ALL = ((), -1.0)


class Link:
    """The services' end of a link to one client; keeps the frames that it is given."""

    def __init__(self, server: ServiceServer, client_id: int) -> None:
        self.frames: list[list[bytes]] = []
        self.receiver = server.welcome(self, LinkIdentity("0" * 32, 1, client_id, client_id))
        self.say(OpenSession(1, 0, is_new=True))

    def begin(self, receiver: object) -> None:
        raise NotImplementedError

    def send(self, parts: list[bytes]) -> None:
        self.frames.append(parts)

    async def drained(self) -> None:
        return

    def close(self) -> None:
        return

    def say(self, message: ServiceMessage) -> None:
        self.receiver.received(encode(message)[4:])

    def heard(self) -> list[ServiceMessage]:
        frames, self.frames = self.frames, []
        return [decode(b"".join(parts)[4:]) for parts in frames]


class Crowd:
    """A server with a link for each client; a ticket is used by all of them."""

    def __init__(self, size: int) -> None:
        self.server = ServiceServer(ServiceMachine(size, 2**30, str, tuple), lambda sender: True, time.monotonic)
        self.links = [Link(self.server, client_id) for client_id in range(size)]
        self.tickets = 0

    def all_say(self, make: Callable[..., ServiceRequest], *arguments: Any) -> None:
        self.tickets += 1
        for link in self.links:
            link.say(make(self.tickets, *arguments))

    def says(self, client_id: int, make: Callable[..., ServiceRequest], *arguments: Any) -> None:
        self.tickets += 1
        self.links[client_id].say(make(self.tickets, *arguments))

    def heard(self) -> list[list[ServiceMessage]]:
        return [link.heard() for link in self.links]

    def close(self) -> None:
        self.server.close()


@pytest.fixture
async def crowd() -> Any:
    crowd = Crowd(CROWD)
    yield crowd
    crowd.close()


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[ServiceMessage]:
    """The replies that were encoded, and did not share the encoding of another."""
    replies: list[ServiceMessage] = []
    encode_parts = shared_replies.encode_parts

    def counted(reply: Any) -> list[bytes]:
        replies.append(reply)
        return encode_parts(reply)

    monkeypatch.setattr(shared_replies, "encode_parts", counted)
    return replies


async def test_a_barrier_of_all_is_one_message_to_each_client(crowd: Crowd) -> None:
    crowd.all_say(EnterBarrier, "meet", *ALL)
    assert crowd.heard() == [[Done(1)]] * CROWD


async def test_a_key_that_all_read_at_once_is_encoded_once(crowd: Crowd, encoded: list[ServiceMessage]) -> None:
    value = b"v" * 10_000
    crowd.says(0, SetKey, "key", value, True)
    crowd.heard()
    crowd.all_say(GetKey, "key", True)
    assert len({id(link.frames[0][-1]) for link in crowd.links[1:]}) == 1
    assert crowd.heard() == [[Value(2, value)]] * CROWD
    crowd.all_say(GetKey, "later", True)
    crowd.says(0, SetKey, "later", value, True)
    assert crowd.heard()[1:] == [[Value(3, value)]] * (CROWD - 1)
    assert sum(isinstance(reply, Value) for reply in encoded) <= 2


async def test_a_watch_is_told_changes_only_which_are_encoded_once(crowd: Crowd, encoded: list[ServiceMessage]) -> None:
    for number in range(20):
        crowd.says(0, SetKey, f"d/{number}", b"v", True)
    crowd.all_say(WatchKeys, "d")
    crowd.heard()
    crowd.says(0, SetKey, "d/new", b"v", True)
    for heard in crowd.heard()[1:]:
        (changes,) = heard
        assert isinstance(changes, Changes)
        assert [change.key for change in changes.changes] == ["d/new"]
    assert sum(isinstance(reply, Changes) for reply in encoded) == 2


async def test_all_ask_who_is_alive_while_some_leave(crowd: Crowd, encoded: list[ServiceMessage]) -> None:
    for client_id in range(100, 200):
        crowd.server.leave(client_id)
    crowd.all_say(ListLive)
    assert crowd.heard() == [[ClientIds(1, (0, 99, 200, CROWD - 1))]] * CROWD
    assert len(encoded) == 1


def barrier_with_a_deadline(crowd: Crowd) -> None:
    for link in crowd.links[::2]:
        link.say(EnterBarrier(1, "late", (), 0.0 if link is crowd.links[0] else 1.0))
    for link in crowd.links[1::2]:
        link.say(EnterBarrier(1, "late", (), -1.0))


def half_leave_then_the_others_meet(crowd: Crowd) -> None:
    half = len(crowd.links) // 2
    crowd.all_say(GetKey, "never", True)
    for client_id in range(half):
        crowd.server.leave(client_id)
    for link in crowd.links[half:]:
        link.say(EnterBarrier(2, "all", (), -1.0))
    crowd.all_say(ListLive)


def half_leave_and_go_while_the_others_wait(crowd: Crowd) -> None:
    half = len(crowd.links) // 2
    for link in crowd.links[half:]:
        link.say(EnterBarrier(1, "half", (half - 1, len(crowd.links) - 1), -1.0))
    for client_id in range(half - 1):
        crowd.server.leave(client_id)
        crowd.links[client_id].say(EndSession(0))


@pytest.mark.parametrize(
    "work", [barrier_with_a_deadline, half_leave_then_the_others_meet, half_leave_and_go_while_the_others_wait]
)
async def test_the_work_grows_with_the_number_of_clients_and_not_its_square(work: Callable[[Crowd], None]) -> None:
    few, many = (steps_of(work, size) for size in (FEW, MANY))
    assert many < 1.5 * few * MANY / FEW


def steps_of(work: Callable[[Crowd], None], size: int) -> int:
    """Return how many lines of Python are run."""
    crowd, steps = Crowd(size), 0

    def count(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal steps
        steps += 1
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        work(crowd)
    finally:
        sys.settrace(before)
        crowd.close()
    return steps
