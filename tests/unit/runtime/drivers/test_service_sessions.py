"""The sessions of clients with the services, over links that a test breaks."""

from __future__ import annotations

import asyncio
import time

import pytest

from bringup.runtime.drivers.service_server import ServiceServer
from bringup.runtime.machines.kv import lists as kv_lists
from bringup.runtime.machines.service_machine import ServiceMachine
from bringup.runtime.machines.session.limits import WINDOW
from bringup.transport.ports import LinkIdentity, ServiceReceiver
from bringup.transport.wire.framing import decode, encode
from bringup.transport.wire.services import Done, Items, ListKeys, ServiceMessage, SetKey
from bringup.transport.wire.session_messages import OpenSession, SessionOpened

CLIENT = LinkIdentity("0" * 32, 1, 1, 1001)
SESSION = 7


class FarEnd:
    """The client's end of a link: a `ServiceLink` that keeps what it is given."""

    def __init__(self, server: ServiceServer) -> None:
        self.heard: list[ServiceMessage] = []
        self.is_closed = False
        self.receiver: ServiceReceiver = server.welcome(self, CLIENT)

    def begin(self, receiver: ServiceReceiver) -> None:
        raise NotImplementedError

    def send(self, parts: list[bytes]) -> None:
        self.heard.append(decode(b"".join(parts)[4:]))

    async def drained(self) -> None:
        return

    def close(self) -> None:
        self.is_closed = True

    def say(self, *messages: ServiceMessage) -> None:
        for message in messages:
            self.receiver.received(encode(message)[4:])

    async def hears(self, count: int) -> None:
        """Wait until `count` messages have come, and nothing more comes at once."""
        while len(self.heard) < count:  # noqa: ASYNC110 - a list tells nobody
            await asyncio.sleep(0)
        for _ in range(3):
            await asyncio.sleep(0)


@pytest.fixture
def server() -> ServiceServer:
    services = ServiceMachine(2, 2**20, str, tuple)
    return ServiceServer(services, lambda sender: sender == CLIENT, time.monotonic)


@pytest.mark.timeout(10)
async def test_a_long_list_goes_on_where_the_link_broke_with_all_acknowledgements_on_their_way(
    server: ServiceServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kv_lists, "_ITEMS_MAX", 1)
    keys = 2 * WINDOW
    first = FarEnd(server)
    first.say(OpenSession(SESSION, 0, is_new=True))
    first.say(*(SetKey(number, f"{number:03}", b"", overwrite=False) for number in range(keys)))
    await first.hears(keys)
    first.receiver.lost("it broke")

    second = FarEnd(server)
    second.say(OpenSession(SESSION, keys), ListKeys(keys, ""))
    await second.hears(1 + WINDOW)
    second.receiver.lost("it broke")

    third = FarEnd(server)
    third.say(OpenSession(SESSION, keys + WINDOW))
    await third.hears(1 + keys - WINDOW)
    server.close()
    listed = [message for message in (*first.heard, *second.heard, *third.heard) if isinstance(message, Items)]
    assert [item.key for message in listed for item in message.items] == [f"{number:03}" for number in range(keys)]
    assert [message.is_last for message in listed] == [False] * (keys - 1) + [True]
    assert isinstance(first.heard[0], Done)
    assert isinstance(third.heard[0], SessionOpened)
