"""Whoever connects to a peer's ring port without being its neighbour is dropped, and disturbs nobody."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator

import pytest

from bringup.transport.attempts import Trouble
from bringup.transport.grpc import connection as grpc_connection
from bringup.transport.ports import Connection
from bringup.transport.tcp import listener as link_listener
from bringup.transport.tcp.handshake import HELLO_BYTES, REPLY_BYTES, Hello, Purpose, Reply, Status, decode_reply

from .places import Place, identity, quietly
from .test_connections import ack, connect, served
from .test_links import LEFT, OWN, listening, read

pytestmark = pytest.mark.places("sockets", "sockets-uvloop")

HELLO = Hello(Purpose.LINK, identity(0), identity(1)).encode()

OTHER = Reply(Status.OTHER_JOB, 0)


def stray_hello() -> bytes:
    """Return the hello of a client of another job, which has the address of this one."""
    return Hello(Purpose.LINK, identity(0, job_id="f" * 32), identity(1, job_id="f" * 32, incarnation=7)).encode()


GREETINGS = {
    "random bytes": bytes(range(256)) * 4,
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": bytes.fromhex("160301020001000001fc0303") + bytes(64),
    "another magic": b"bringup\x02" + HELLO[8:],
    "no such purpose": HELLO[:8] + b"\x09" + HELLO[9:],
    "half a hello": HELLO[: HELLO_BYTES // 2],
    "nothing": b"",
}


@contextlib.asynccontextmanager
async def stranger(port: int, greeting: bytes) -> AsyncIterator[asyncio.StreamReader]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(greeting)
        yield reader
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def expecting(place: Place) -> AsyncIterator[int]:
    """Yield the port of a listener; at the end its neighbour must get through to it."""
    async with listening(place) as (listener, address):
        accepting = asyncio.create_task(listener.accept(OWN, LEFT))
        yield listener.port
        connected = await place.peer(0).connect_link(address, LEFT, OWN, quietly)
        accepted = await accepting
        await connected.send(b"here I am")
        assert await read(accepted, 9) == b"here I am"
        connected.close()
        accepted.close()


@pytest.mark.parametrize("greeting", GREETINGS.values(), ids=GREETINGS)
async def test_a_stranger_that_stays_does_not_disturb_the_neighbour(place: Place, greeting: bytes) -> None:
    async with contextlib.AsyncExitStack() as strangers, expecting(place) as port:
        for _ in range(3):
            await strangers.enter_async_context(stranger(port, greeting))


@pytest.mark.parametrize("greeting", [text for text in GREETINGS.values() if len(text) >= HELLO_BYTES])
async def test_a_stranger_that_says_something_else_is_dropped_at_once(place: Place, greeting: bytes) -> None:
    async with expecting(place) as port, stranger(port, greeting) as reader:
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""


async def test_a_stranger_that_says_nothing_is_dropped_in_time(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_listener, "HELLO_TIMEOUT", 0.05)
    async with expecting(place) as port, stranger(port, HELLO[:10]) as reader:
        assert await reader.read() == b""


async def test_a_port_scan_leaves_nothing_behind(place: Place) -> None:
    async with expecting(place) as port:
        for linger in (b"", struct.pack("ii", 1, 0)):
            for _ in range(100):
                with socket.create_connection(("127.0.0.1", port)) as sock:
                    if linger:
                        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


async def test_a_crowd_of_idle_strangers_cannot_keep_the_neighbour_out(place: Place) -> None:
    async with contextlib.AsyncExitStack() as strangers, expecting(place) as port:
        for _ in range(200):
            await strangers.enter_async_context(stranger(port, b""))


@pytest.mark.parametrize(
    "greeting", [b"", HELLO[:10], bytes(HELLO_BYTES), stray_hello()], ids=["idle", "half", "garbage", "stray"]
)
@pytest.mark.parametrize("order", ["before", "after", "around"])
async def test_a_crowd_of_strangers_in_any_order_does_not_keep_the_neighbour_out(
    place: Place, order: str, greeting: bytes
) -> None:
    """The neighbour may come before this peer has heard that the job has formed: it stays, and dials once."""
    async with contextlib.AsyncExitStack() as stack:
        listener, address = await stack.enter_async_context(listening(place))

        async def crowd() -> None:
            for _ in range(100):
                await stack.enter_async_context(stranger(listener.port, greeting))

        if order != "after":
            await crowd()
        troubles: list[Trouble] = []
        connecting = asyncio.create_task(place.peer(0).connect_link(address, LEFT, OWN, troubles.append))
        while not listener._heard:  # type: ignore[attr-defined]  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0)
        if order != "before":
            await crowd()
        accepted, connected = await listener.accept(OWN, LEFT), await connecting
        await connected.send(b"here I am")
        assert await read(accepted, 9) == b"here I am"
        assert not troubles
        connected.close()
        accepted.close()


async def test_a_link_whose_answer_was_lost_is_made_anew(place: Place) -> None:
    """The neighbour has not heard that its first hello was accepted, as the connection broke: it dials again."""
    async with listening(place) as (listener, address):
        accepting = asyncio.create_task(listener.accept(OWN, LEFT))
        for linger in (b"", struct.pack("ii", 1, 0)):
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            if linger:
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.write(HELLO)
            assert (decode_reply(await reader.readexactly(REPLY_BYTES)) or OTHER).status is Status.ACCEPTED
            writer.close()
        connected = await place.peer(0).connect_link(address, LEFT, OWN, quietly)
        accepted = await accepting
        await connected.send(b"at last")
        assert await read(accepted, 7) == b"at last"
        connected.close()
        accepted.close()


async def test_a_link_that_broke_unseen_gives_way_to_the_next(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_listener, "HELLO_TIMEOUT", 0.05)
    async with listening(place) as (listener, address), stranger(listener.port, HELLO) as former:
        accepting = asyncio.create_task(listener.accept(OWN, LEFT))
        assert (decode_reply(await former.readexactly(REPLY_BYTES)) or OTHER).status is Status.ACCEPTED
        connected = await place.peer(0).connect_link(address, LEFT, OWN, quietly)
        (await accepting).close()
        connected.close()


async def test_a_stranger_that_connects_to_the_coordinator_does_not_disturb_it(place: Place) -> None:
    async def on_connection(connection: Connection) -> None:
        await connection.send(ack(1))

    async with contextlib.AsyncExitStack() as strangers, served(place.peer(0), place.coordinator, on_connection):
        for greeting in GREETINGS.values():
            await strangers.enter_async_context(stranger(place.coordinator.port, greeting))
        connection = await connect(place)
        assert await connection.receive() == ack(1)
        await connection.close()


@pytest.mark.places("sockets", "tls")
async def test_idle_strangers_do_not_use_up_the_descriptors_of_the_coordinator(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_connection, "connections_max", lambda num_clients: num_clients + 3)
    monkeypatch.setattr(grpc_connection, "_HANDSHAKE_TIMEOUT", 0.5)

    async def answer(connection: Connection) -> None:
        await connection.send(ack(1))
        await connection.close()

    async with served(place.peer(0), place.coordinator, answer), contextlib.AsyncExitStack() as strangers:
        at = place.coordinator
        readers = [await strangers.enter_async_context(stranger(at.port, b"")) for _ in range(20)]
        hung_up = [asyncio.create_task(reader.read()) for reader in readers]
        done, staying = await asyncio.wait(hung_up, timeout=0.2)
        while len(done) < 16:
            more, staying = await asyncio.wait(staying, return_when=asyncio.FIRST_COMPLETED)
            done |= more
        connection = await connect(place)
        assert await connection.receive() == ack(1)
        await connection.close()
        await asyncio.gather(*hung_up, return_exceptions=True)
