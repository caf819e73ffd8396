"""Random calls of the coordination services, whole and spoilt, of clients that come back and of those that do not."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import get_args

from bringup.runtime.drivers.service_server import ServiceServer
from bringup.runtime.machines.service_machine import ServiceMachine
from bringup.transport.ports import LinkIdentity, ServiceReceiver
from bringup.transport.wire.framing import decode, encode
from bringup.transport.wire.services import ServiceMessage, ServiceRequest, SetKey
from bringup.transport.wire.session_messages import OpenSession

from .messages import message_of, spoilt

MEMBERS = 3
KV_BYTES_MAX = 100_000
CALLS_OF_A_LINK = 20
CALLS_OF_A_SERVER = 5_000

KINDS = get_args(ServiceMessage)
REQUESTS = get_args(ServiceRequest)


class FuzzedLink:
    """The server's side of a link; whatever is sent over it must be a message."""

    def __init__(self) -> None:
        self.is_closed = False

    def send(self, parts: list[bytes]) -> None:
        data = b"".join(parts)
        assert len(data) - 4 == int.from_bytes(data[:4])
        decode(data[4:])

    async def drained(self) -> None:
        return

    def close(self) -> None:
        self.is_closed = True


class FuzzedServices:
    """The services, and the links of their clients; time passes by some seconds with each call."""

    def __init__(self, chance: random.Random) -> None:
        self.crashes: list[Exception] = []
        self._chance = chance
        self._now = 0.0
        machine = ServiceMachine(MEMBERS, KV_BYTES_MAX, lambda client_id: f"host-{client_id}", lambda: ())
        self._server = ServiceServer(machine, lambda sender: sender.client_id < MEMBERS, lambda: self._now)
        self._server.on_crash = self.crashes.append
        self._links: dict[int, tuple[FuzzedLink, ServiceReceiver]] = {}

    def call(self) -> str:
        """Make one call, or one attempt at it; returns what became of its link."""
        self._now += self._chance.random()
        link, receiver = self._link()
        receiver.received(self._message())
        if link.is_closed:
            return "refused"
        if self._chance.random() < 1 / CALLS_OF_A_LINK:
            receiver.lost("the network broke")
            link.is_closed = True
        return "taken"

    def close(self) -> None:
        self._server.close()

    def _link(self) -> tuple[FuzzedLink, ServiceReceiver]:
        client_id = MEMBERS if self._chance.random() < 0.02 else self._chance.randrange(MEMBERS)
        link, receiver = self._links.get(client_id, (None, None))
        if link is None or receiver is None or link.is_closed:
            link = FuzzedLink()
            receiver = self._server.welcome(link, LinkIdentity("ab" * 16, 1, client_id, client_id))
            opening = OpenSession(
                self._chance.randrange(20), self._chance.choice([0, 0, 0, 7]), self._chance.random() < 0.8
            )
            receiver.received(encode(opening)[4:])
            self._links[client_id] = link, receiver
        return link, receiver

    def _message(self) -> bytes:
        chance = self._chance
        if chance.random() < 0.02:
            return chance.randbytes(chance.randrange(1, 60))
        if chance.random() < 0.1:
            return encode(SetKey(chance.randrange(9), chance.choice("abc"), str(chance.randrange(99)).encode(), True))[
                4:
            ]
        try:
            body = encode(message_of(chance.choice(REQUESTS if chance.random() < 0.95 else KINDS), chance))[4:]
        except Exception:  # noqa: BLE001 - no client could send it
            return self._message()
        return spoilt(body, chance) or b"\x00" if chance.random() < 0.05 else body


async def fuzz_services(count: int, seed: int) -> Counter[str]:
    """Make `count` calls; returns how many were taken and refused."""
    chance = random.Random(seed)
    found: Counter[str] = Counter()
    done = 0
    while done < count:
        services = FuzzedServices(chance)
        for _ in range(min(CALLS_OF_A_SERVER, count - done)):
            found[services.call()] += 1
            done += 1
            if done % 100 == 0:
                await asyncio.sleep(0)
            assert not services.crashes, services.crashes[0]
        services.close()
    return found
