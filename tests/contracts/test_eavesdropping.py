"""Whoever records what peers say learns nothing from it, and gets nowhere by saying it again."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from bringup.transport.addresses import Address
from bringup.transport.ports import Connection, ConnectionClosedError, Link, LinkListener
from bringup.transport.tcp.handshake import Hello, Purpose
from bringup.transport.wire.messages import Goodbye

from .places import JOB_ID, TOKEN, Place, quietly
from .proxy import Proxy
from .test_connections import served
from .test_links import LEFT, OWN, listening, read

REPLAYS = 50

CANARY = b"the value of a key, or of a parameter "
SECRETS = [
    CANARY,
    TOKEN.to_text().encode(),
    bytes.fromhex(TOKEN.to_text()),
    JOB_ID.encode(),
    bytes.fromhex(JOB_ID),
    Hello(Purpose.LINK, LEFT, OWN).encode()[:8],
]
"""Texts that no eavesdropper may come upon; the last is the mark of this protocol."""


Recording = tuple[bytearray, bytearray]


def whole(proxy: Proxy) -> Recording:
    """Return the recording of the connection that was used: where a port answers is found out by others."""
    return max(proxy.recordings, key=lambda recording: len(recording[0]))


@contextlib.asynccontextmanager
async def recorded_link(place: Place, proxy: Proxy, listener: LinkListener) -> AsyncIterator[tuple[Link, Link]]:
    """Yield the ends of a link that goes through a proxy."""
    accepting = asyncio.ensure_future(listener.accept(OWN, LEFT))
    sender = await place.peer(0).connect_link(Address("127.0.0.1", proxy.port), LEFT, OWN, quietly)
    receiver = await accepting
    yield sender, receiver
    sender.close()
    receiver.close()


async def say_all(place: Place) -> list[Recording]:
    """Say secrets over a link, both ways, and to the coordinator; returns what was recorded."""

    async def echo(connection: Connection) -> None:
        with contextlib.suppress(ConnectionClosedError):
            await connection.send(await connection.receive())
        await connection.close()

    async with contextlib.AsyncExitStack() as stack:
        listener, address = await stack.enter_async_context(listening(place))
        proxy = await stack.enter_async_context(Proxy(address.port))
        sender, receiver = await stack.enter_async_context(recorded_link(place, proxy, listener))
        await sender.send(CANARY * 1000)
        assert await read(receiver, len(CANARY) * 1000) == CANARY * 1000
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        sender.receive_messages(lambda message: heard.put_nowait(bytes(message)))
        receiver.post(CANARY)
        assert await heard.get() == CANARY
    link = whole(proxy)
    async with served(place.peer(0), place.coordinator, echo), Proxy(place.coordinator.port) as proxy:
        at = Address("127.0.0.1", proxy.port)
        connection, _ = await place.peer(1).connect_coordinator(at, quietly)
        await connection.send(Goodbye("", JOB_ID, CANARY.decode()))
        assert await connection.receive() == Goodbye("", JOB_ID, CANARY.decode())
        await connection.close()
    return [link, whole(proxy)]


@pytest.mark.places("tls", "tls-uvloop")
async def test_an_eavesdropper_learns_nothing(place: Place) -> None:
    for recording in await say_all(place):
        for said in recording:
            assert len(said) > 500
            for secret in SECRETS:
                assert secret not in said, secret


@pytest.mark.places("sockets")
async def test_an_eavesdropper_without_tls_learns_all_but_the_token(place: Place) -> None:
    """Or the test above would prove nothing."""
    heard = b"".join(bytes(said) for recording in await say_all(place) for said in recording)
    found = [secret in heard for secret in SECRETS]
    assert found == [True, False, False, True, True, True]


async def replay(port: int, said: bytes) -> None:
    """Say what was recorded again, until the other side hangs up."""
    loop = asyncio.get_running_loop()
    with socket.socket() as sock:
        sock.setblocking(False)
        with contextlib.suppress(OSError):
            await loop.sock_connect(sock, ("127.0.0.1", port))
            await loop.sock_sendall(sock, said)
            while await loop.sock_recv(sock, 65_536):
                pass


@pytest.mark.places("tls", "tls-uvloop")
@pytest.mark.parametrize("purpose", [Purpose.LINK, Purpose.PROBE])
async def test_a_recorded_handshake_is_worth_nothing_to_a_listener(place: Place, purpose: Purpose) -> None:
    async with listening(place) as (listener, address), Proxy(address.port) as proxy:
        # Of a neighbour that gives up before it is accepted: its place is free still.
        if purpose is Purpose.PROBE:
            await place.peer(0).probe(Address("127.0.0.1", proxy.port), OWN.incarnation, 5.0)
        else:
            connecting = asyncio.ensure_future(
                place.peer(0).connect_link(Address("127.0.0.1", proxy.port), LEFT, OWN, quietly)
            )
            while not listener._heard:  # type: ignore[attr-defined]  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.001)
            connecting.cancel()
            await asyncio.wait([connecting])
        said = bytes(whole(proxy)[0])
        assert len(said) > 500
        while listener._heard:  # type: ignore[attr-defined]  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        accepting = asyncio.ensure_future(listener.accept(OWN, LEFT))
        for _ in range(REPLAYS):
            await replay(address.port, said)
            assert not listener._heard  # type: ignore[attr-defined]
        assert not accepting.done()
        connected = await place.peer(0).connect_link(address, LEFT, OWN, quietly)
        (await accepting).close()
        connected.close()


@pytest.mark.places("tls", "tls-uvloop")
async def test_a_recorded_handshake_is_worth_nothing_to_the_coordinator(place: Place) -> None:
    served_connections = 0

    async def serve(connection: Connection) -> None:
        nonlocal served_connections
        served_connections += 1
        with contextlib.suppress(ConnectionClosedError):
            await connection.receive()
        await connection.close()

    async with served(place.peer(0), place.coordinator, serve), Proxy(place.coordinator.port) as proxy:
        connection, _ = await place.peer(1).connect_coordinator(Address("127.0.0.1", proxy.port), quietly)
        await connection.send(Goodbye("", "", "once"))
        await connection.close()
        said = bytes(whole(proxy)[0])
        assert len(said) > 500
        for _ in range(REPLAYS):
            await replay(place.coordinator.port, said)
        assert served_connections == 1
