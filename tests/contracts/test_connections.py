"""Sessions with the coordinator, over every network."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from bringup.errors import BringupError, ConfigurationError
from bringup.transport.addresses import Address
from bringup.transport.ports import Connection, ConnectionClosedError, Network
from bringup.transport.wire.messages import Goodbye, Heartbeat, HeartbeatAck, Verdict

from .places import Place

OnConnection = Callable[[Connection], Awaitable[None]]


def beat(sequence: int) -> Heartbeat:
    return Heartbeat(sequence, "rendezvous", True, "")


def ack(sequence: int) -> HeartbeatAck:
    return HeartbeatAck(sequence, (), (), ())


def quietly(reason: str) -> None:
    """Take a report, and do nothing."""


async def drain(connection: Connection) -> list[object]:
    """Return all that comes until the connection has ended."""
    received: list[object] = []
    with contextlib.suppress(ConnectionClosedError):
        while True:
            received.append(await connection.receive())
    return received


@contextlib.asynccontextmanager
async def served(network: Network, address: Address, on_connection: OnConnection) -> AsyncIterator[None]:
    server = await network.serve_coordinator(address, on_connection)
    try:
        yield
    finally:
        await server.close()


async def connect(place: Place, client_id: int = 1) -> Connection:
    connection, _ = await place.peer(client_id).connect_coordinator(place.coordinator, quietly)
    return connection


async def test_a_connection_ends_though_its_first_message_was_on_its_way(place: Place) -> None:
    async def serve(connection: Connection) -> None:
        writing = asyncio.create_task(connection.send(ack(1)))
        await asyncio.sleep(0)
        writing.cancel()
        await asyncio.wait([writing])
        await connection.close()

    async with served(place.peer(0), place.coordinator, serve):
        connection = await connect(place)
        async with asyncio.timeout(10):
            await drain(connection)
        await connection.close()


async def test_messages_keep_their_order_in_both_directions_at_once(place: Place) -> None:
    count = 500

    async def both_ways(connection: Connection, send: Callable[[int], object], kind: type) -> list[int]:
        async def send_all() -> None:
            for sequence in range(count):
                await connection.send(send(sequence))  # type: ignore[arg-type]

        sending = asyncio.create_task(send_all())
        received = [await connection.receive() for _ in range(count)]
        await sending
        assert all(isinstance(message, kind) for message in received)
        return [message.sequence for message in received]  # type: ignore[union-attr]

    heard: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()

    async def on_connection(connection: Connection) -> None:
        heard.set_result(await both_ways(connection, ack, Heartbeat))

    async with served(place.peer(0), place.coordinator, on_connection):
        connection = await connect(place)
        assert await both_ways(connection, beat, HeartbeatAck) == list(range(count))
        assert await heard == list(range(count))
        await connection.close()


async def test_a_message_of_4_mib_arrives_whole(place: Place) -> None:
    verdict = Verdict("PeerFailedError", 1, "a:1", "host", "ready", "x" * (4 * 1024 * 1024), (1, 2), ())
    async with served(place.peer(0), place.coordinator, lambda connection: connection.send(verdict)):
        connection = await connect(place)
        assert await connection.receive() == verdict
        await connection.close()


async def test_many_sessions_do_not_mix(place: Place) -> None:
    async def echo(connection: Connection) -> None:
        first = await connection.receive()
        assert isinstance(first, Heartbeat)
        for _ in range(3):
            await connection.send(ack(first.sequence))
        await drain(connection)

    async def talk(place: Place, client_id: int) -> None:
        connection = await connect(place, client_id)
        await connection.send(beat(client_id))
        assert [await connection.receive() for _ in range(3)] == [ack(client_id)] * 3
        await connection.close()

    async with served(place.peer(0), place.coordinator, echo):
        await asyncio.gather(*(talk(place, client_id) for client_id in range(1, 33)))


async def test_what_was_sent_before_the_client_closed_is_delivered(place: Place) -> None:
    heard: asyncio.Future[list[object]] = asyncio.get_running_loop().create_future()

    async def on_connection(connection: Connection) -> None:
        heard.set_result(await drain(connection))

    async with served(place.peer(0), place.coordinator, on_connection):
        connection = await connect(place)
        for sequence in range(100):
            await connection.send(beat(sequence))
        await connection.send(Goodbye("merge", "KeyboardInterrupt", "by hand"))
        await connection.close()
        assert await heard == [*map(beat, range(100)), Goodbye("merge", "KeyboardInterrupt", "by hand")]


async def test_what_was_sent_before_the_coordinator_closed_is_delivered(place: Place) -> None:
    async def on_connection(connection: Connection) -> None:
        for sequence in range(100):
            await connection.send(ack(sequence))

    async with served(place.peer(0), place.coordinator, on_connection):
        connection = await connect(place)
        assert await drain(connection) == [*map(ack, range(100))]
        await connection.close()


async def test_a_closed_session_neither_sends_nor_receives(place: Place) -> None:
    async def on_connection(connection: Connection) -> None:
        await drain(connection)

    async with served(place.peer(0), place.coordinator, on_connection):
        connection = await connect(place)
        await connection.close()
        await connection.close()
        with pytest.raises(ConnectionClosedError):
            await connection.send(beat(1))
        with pytest.raises(ConnectionClosedError):
            await connection.receive()


async def test_a_session_that_the_coordinator_closed_sends_no_more(place: Place) -> None:
    refused = asyncio.Event()

    async def on_connection(connection: Connection) -> None:
        await connection.send(ack(1))
        await connection.close()
        try:
            await connection.send(ack(2))
        except ConnectionClosedError:
            refused.set()

    async with served(place.peer(0), place.coordinator, on_connection):
        connection = await connect(place)
        assert await drain(connection) == [ack(1)]
        await refused.wait()
        await connection.close()


async def test_both_sides_see_that_the_connection_broke(place: Place) -> None:
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def on_connection(connection: Connection) -> None:
        await connection.send(ack(1))
        try:
            await connection.receive()
        except ConnectionClosedError as error:
            ended.set_result(str(error))

    async with place.entrance() as (address, break_all), served(place.peer(0), place.coordinator, on_connection):
        connection, _ = await place.peer(1).connect_coordinator(address, quietly)
        assert await connection.receive() == ack(1)
        break_all()
        with pytest.raises(ConnectionClosedError, match=r"\w{5}"):
            await connection.receive()
        assert await ended
        await connection.close()


async def test_a_server_that_closes_ends_its_sessions_and_frees_its_address(place: Place) -> None:
    async def on_connection(connection: Connection) -> None:
        await connection.send(ack(1))
        await connection.receive()

    for _ in range(2):
        server = await place.peer(0).serve_coordinator(place.coordinator, on_connection)
        connection = await connect(place)
        assert await connection.receive() == ack(1)
        await server.close()
        await server.close()
        with pytest.raises(ConnectionClosedError):
            await connection.receive()
        await connection.close()


async def test_a_session_handler_that_fails_ends_only_its_session(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async def on_connection(connection: Connection) -> None:
        if await connection.receive() == beat(13):
            raise RuntimeError("a bug")
        await connection.send(ack(1))

    async with served(place.peer(0), place.coordinator, on_connection):
        unlucky, lucky = await connect(place, 1), await connect(place, 2)
        await unlucky.send(beat(13))
        assert await drain(unlucky) == []
        await lucky.send(beat(1))
        assert await lucky.receive() == ack(1)
        await unlucky.close()
        await lucky.close()
    assert "a bug" in caplog.text


@pytest.mark.parametrize("early", [0, 1, 4])
async def test_clients_may_come_before_the_coordinator(place: Place, early: int) -> None:
    async def on_connection(connection: Connection) -> None:
        await connection.send(ack(1))
        await drain(connection)

    refused = [asyncio.Event() for _ in range(early)]
    reports: list[str] = []

    def report_to(event: asyncio.Event) -> Callable[[str], None]:
        return lambda reason: (reports.append(reason), event.set())  # type: ignore[func-returns-value,return-value]

    peers = (place.peer(client_id) for client_id in itertools.count(1))
    waiting = [
        asyncio.create_task(peer.connect_coordinator(place.coordinator, report_to(event)))
        for peer, event in zip(peers, refused, strict=False)
    ]
    for event in refused:
        await event.wait()
    async with served(place.peer(0), place.coordinator, on_connection):
        connections = [(await task)[0] for task in waiting] + [await connect(place, 5)]
        for connection in connections:
            assert await connection.receive() == ack(1)
            await connection.close()
    assert all("connection refused" in reason for reason in reports)


async def test_a_client_that_waits_can_be_cancelled(place: Place) -> None:
    refused = asyncio.Event()
    waiting = asyncio.create_task(place.peer(1).connect_coordinator(place.coordinator, lambda _: refused.set()))
    await refused.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_taken_address_is_named(place: Place) -> None:
    async def on_connection(connection: Connection) -> None:
        await drain(connection)

    async with served(place.peer(0), place.coordinator, on_connection):
        with pytest.raises(ConfigurationError, match="taken") as caught:
            await place.peer(0).serve_coordinator(place.coordinator, on_connection)
        assert str(place.coordinator) in str(caught.value)
        connection = await connect(place)
        await connection.close()


async def test_a_cancelled_receive_lets_the_session_close(place: Place) -> None:
    ended = asyncio.Event()

    async def on_connection(connection: Connection) -> None:
        try:
            await connection.send(ack(1))
            await drain(connection)
        finally:  # gRPC ends the call whose reader was cancelled, and may cancel this one
            ended.set()

    async with served(place.peer(0), place.coordinator, on_connection):
        connection = await connect(place)
        assert await connection.receive() == ack(1)
        receiving = asyncio.create_task(connection.receive())
        await asyncio.sleep(0)
        receiving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await receiving
        await connection.close()
        await ended.wait()


async def test_a_coordinator_waits_for_a_client_that_does_not_read(place: Place) -> None:
    megabytes = "x" * (4 * 1024 * 1024)
    messages = 4096  # more than any adapter queues
    sent: list[int] = []

    async def on_connection(connection: Connection) -> None:
        with contextlib.suppress(ConnectionClosedError):
            for sequence in range(messages):
                await connection.send(Verdict("", sequence, "", "", "", megabytes, (), ()))
                sent.append(sequence)

    async with served(place.peer(0), place.coordinator, on_connection):
        connection = await connect(place)
        first = await connection.receive()
        assert isinstance(first, Verdict)
        await connection.close()
    assert len(sent) < messages


async def test_a_message_that_is_too_large_is_refused_and_the_connection_goes_on(place: Place) -> None:
    async def echo(connection: Connection) -> None:
        await connection.receive()
        await connection.send(ack(1))

    async with served(place.peer(0), place.coordinator, echo):
        connection = await connect(place)
        with pytest.raises(BringupError, match="cannot be sent"):
            await connection.send(Goodbye("ready", "ValueError", "x" * 2_000_000))
        await connection.send(beat(1))
        assert await connection.receive() == ack(1)
        await connection.close()
