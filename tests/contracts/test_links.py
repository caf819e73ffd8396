"""Links between neighbours, and the probes that ask whether a peer is alive, over every network."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import random
from collections.abc import AsyncIterator

import pytest

from bringup.transport.addresses import Address
from bringup.transport.attempts import Trouble, TroubleKind
from bringup.transport.network import GrpcNetwork
from bringup.transport.ports import ConnectionClosedError, Link, LinkIdentity, LinkListener, ProbeOutcome
from bringup.transport.tcp.link import TcpLink

from .places import Place, identity, quietly, ring_of_links

MIB = 1024 * 1024
OWN, LEFT = identity(1), identity(0)


@contextlib.asynccontextmanager
async def listening(place: Place, client_id: int = 1) -> AsyncIterator[tuple[LinkListener, Address]]:
    listener = await place.peer(client_id).serve_links(1000 + client_id)
    try:
        yield listener, place.link_address(client_id, listener)
    finally:
        await listener.close()


@contextlib.asynccontextmanager
async def linked(place: Place) -> AsyncIterator[tuple[Link, Link]]:
    """Yield the sending and the receiving end of one link."""
    async with ring_of_links(place, 2) as ends:
        yield ends[0][1], ends[1][0]


@contextlib.asynccontextmanager
async def dialling(place: Place, address: Address) -> AsyncIterator[asyncio.Queue[Trouble]]:
    """Yield why the link cannot be opened yet, as long as it is dialled."""
    troubles: asyncio.Queue[Trouble] = asyncio.Queue()
    connecting = asyncio.create_task(place.peer(0).connect_link(address, LEFT, OWN, troubles.put_nowait))
    try:
        yield troubles
    finally:
        connecting.cancel()
        await asyncio.wait([connecting])


async def read(link: Link, count: int) -> bytes:
    data = bytearray(count)
    await link.receive_into(memoryview(data))
    return bytes(data)


async def test_bytes_arrive_in_order_however_they_are_cut(place: Place) -> None:
    rng = random.Random(7)
    data = rng.randbytes(3 * MIB)
    sizes = [1, 2, 7, 1000, 65535, 65536, 65537, 262144, 262145, 0]

    async def send_all(link: Link) -> None:
        start = 0
        while start < len(data):
            one, more = data[start : start + 1], bytearray(data[start + 1 : start + 1 + rng.choice(sizes)])
            await link.send(one, more, memoryview(b""))
            start += len(one) + len(more)

    async with linked(place) as (sender, receiver):
        sending = asyncio.create_task(send_all(sender))
        received = b""
        while len(received) < len(data):
            received += await read(receiver, min(rng.choice(sizes), len(data) - len(received)))
        await sending
        assert received == data


async def test_both_directions_of_a_ring_of_two_carry_bytes_at_once(place: Place) -> None:
    async with ring_of_links(place, 2) as ends:

        async def exchange(own: int) -> bytes:
            incoming, outgoing = ends[own]
            _, received = await asyncio.gather(outgoing.send(bytes([own]) * MIB), read(incoming, MIB))
            return received

        from_right, from_left = await asyncio.gather(exchange(0), exchange(1))
        assert (from_right, from_left) == (b"\x01" * MIB, b"\x00" * MIB)


async def test_a_sender_waits_for_a_slow_receiver(place: Place) -> None:
    async with linked(place) as (sender, receiver):
        block = memoryview(bytes(64 * MIB))
        sending = asyncio.create_task(sender.send(block))
        done, _ = await asyncio.wait([sending], timeout=0.3)
        assert not done
        for _ in range(64):
            await read(receiver, MIB)
        await sending


async def test_what_was_sent_may_be_changed_once_send_returns(place: Place) -> None:
    async with linked(place) as (sender, receiver):
        data = bytearray(b"a" * (16 * MIB + 32 * 1024))
        sending = asyncio.create_task(sender.send(data))
        received = b""
        # In small steps, so that what lies between the two is always as full as it can be.
        while not sending.done():
            received += await read(receiver, 16 * 1024)
            await asyncio.sleep(0)
        size = len(data)
        data[:] = b"b" * size
        received += await read(receiver, size - len(received))
        assert received == b"a" * size


async def test_what_comes_before_it_is_asked_for_is_kept(place: Place) -> None:
    async with linked(place) as (sender, receiver):
        await sender.send(b"early")
        await sender.send(b"bird")
        assert await read(receiver, 9) == b"earlybird"
        reading = asyncio.create_task(read(receiver, 4))
        await asyncio.sleep(0)
        await sender.send(b"worm")
        assert await reading == b"worm"


@pytest.mark.parametrize("piece", [64, 65_536, 70_000])
async def test_what_has_left_arrives_though_its_sender_has_closed(place: Place, piece: int) -> None:
    data = random.Random(3).randbytes(300_000)
    async with linked(place) as (sender, receiver):
        sending = asyncio.create_task(sender.send(data))
        await asyncio.wait([sending], timeout=0.05)
        received = b"" if sending.done() else await read(receiver, piece)
        await sending
        sender.close()
        for _ in range(20):
            await asyncio.sleep(0.001)
        while len(received) < len(data):
            received += await read(receiver, min(piece, len(data) - len(received)))
            await asyncio.sleep(0)
        assert received == data


@pytest.mark.parametrize("sent", [b"", b"half"])
async def test_a_link_that_ends_too_early_raises(place: Place, sent: bytes) -> None:
    async with linked(place) as (sender, receiver):
        reading = asyncio.create_task(read(receiver, 8))
        await sender.send(sent)
        sender.close()
        with pytest.raises(ConnectionClosedError, match=r"\w{5}"):
            await reading
        with pytest.raises(ConnectionClosedError):
            await read(receiver, 8)


@pytest.mark.parametrize("closes_first", ["sender", "receiver"])
async def test_both_ends_learn_that_a_link_has_ended(place: Place, closes_first: str) -> None:
    async with linked(place) as (sender, receiver):
        ends = {"sender": sender, "receiver": receiver}
        waiting = [asyncio.create_task(link.wait_closed()) for link in ends.values()]
        await asyncio.sleep(0)
        ends[closes_first].close()
        ends[closes_first].close()
        assert all(await asyncio.gather(*waiting))
        for link in ends.values():
            assert await link.wait_closed()
            with pytest.raises(ConnectionClosedError):
                await link.send(b"more")
            with pytest.raises(ConnectionClosedError):
                await read(link, 1)


async def test_a_sender_that_waits_learns_that_the_link_has_ended(place: Place) -> None:
    async with linked(place) as (sender, receiver):
        sending = asyncio.create_task(sender.send(bytes(64 * MIB)))
        await read(receiver, MIB)
        receiver.close()
        with pytest.raises(ConnectionClosedError):
            await sending


@pytest.mark.parametrize("first", ["accept", "connect"])
async def test_neighbours_may_come_in_any_order(place: Place, first: str) -> None:
    async with listening(place) as (listener, address):

        async def accept() -> Link:
            return await listener.accept(OWN, LEFT)

        async def connect() -> Link:
            return await place.peer(0).connect_link(address, LEFT, OWN, quietly)

        calls = [accept, connect] if first == "accept" else [connect, accept]
        earlier = asyncio.create_task(calls[0]())
        await asyncio.wait([earlier], timeout=0.05)
        one, other = await calls[1](), await earlier
        one.close()
        other.close()


STRANGERS: list[tuple[LinkIdentity, LinkIdentity]] = [
    (dataclasses.replace(LEFT, job_id="f" * 32), dataclasses.replace(OWN, job_id="f" * 32)),
    (dataclasses.replace(LEFT, epoch=2), dataclasses.replace(OWN, epoch=2)),
    (dataclasses.replace(LEFT, client_id=2), OWN),
    (dataclasses.replace(LEFT, incarnation=1), OWN),
    (LEFT, dataclasses.replace(OWN, client_id=2)),
    (LEFT, dataclasses.replace(OWN, incarnation=1)),
]


@pytest.mark.parametrize(("sender", "receiver"), STRANGERS)
async def test_only_the_left_neighbour_of_this_ring_is_accepted(
    place: Place, sender: LinkIdentity, receiver: LinkIdentity
) -> None:
    async with listening(place) as (listener, address):
        accepting = asyncio.create_task(listener.accept(OWN, LEFT))
        with pytest.raises(ConnectionClosedError) as caught:
            await place.peer(sender.client_id).connect_link(address, sender, receiver, quietly)
        assert str(address) in str(caught.value)
        rightful = await place.peer(0).connect_link(address, LEFT, OWN, quietly)
        accepted = await accepting
        await rightful.send(b"it is me")
        assert await read(accepted, 8) == b"it is me"
        rightful.close()
        accepted.close()


async def test_a_second_link_of_the_same_neighbour_is_refused(place: Place) -> None:
    async with listening(place) as (listener, address):
        accepting = asyncio.create_task(listener.accept(OWN, LEFT))
        first = await place.peer(0).connect_link(address, LEFT, OWN, quietly)
        accepted = await accepting
        with pytest.raises(ConnectionClosedError):
            await place.peer(0).connect_link(address, LEFT, OWN, quietly)
        await first.send(b"still here")
        assert await read(accepted, 10) == b"still here"
        first.close()
        accepted.close()


async def test_of_two_links_of_the_same_neighbour_at_once_one_is_refused(place: Place) -> None:
    async with listening(place) as (listener, address):
        attempts = [place.peer(0).connect_link(address, LEFT, OWN, quietly) for _ in range(8)]
        connecting = asyncio.gather(*attempts, return_exceptions=True)
        await asyncio.sleep(0)
        accepted = await listener.accept(OWN, LEFT)
        outcomes = await connecting
        links = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
        assert len(links) == 1
        assert all(isinstance(outcome, ConnectionClosedError) for outcome in outcomes if outcome not in links)
        links[0].close()
        accepted.close()


async def test_nobody_there_is_told_at_once(place: Place) -> None:
    async with listening(place) as (_, address):
        pass
    async with dialling(place, address) as troubles:
        trouble = await troubles.get()
    assert trouble.kind is TroubleKind.REFUSED
    assert "refused" in trouble.text
    assert str(address) in trouble.text


async def test_a_neighbour_that_goes_before_it_accepts_is_told(place: Place) -> None:
    async with listening(place) as (listener, address), dialling(place, address) as troubles:
        await asyncio.sleep(0.05)
        await listener.close()
        while (await troubles.get()).kind is not TroubleKind.REFUSED:
            pass


async def test_an_address_that_refused_is_dialled_again(place: Place) -> None:
    """A refusal may be that of a host which had the address before, or of something in between."""
    async with place.refusing_link_address(1) as (address, serve):
        troubles: asyncio.Queue[Trouble] = asyncio.Queue()
        connecting = asyncio.create_task(place.peer(0).connect_link(address, LEFT, OWN, troubles.put_nowait))
        assert (await troubles.get()).kind is TroubleKind.REFUSED
        listener = await serve(1001)
        accepted, connected = await listener.accept(OWN, LEFT), await connecting
        await connected.send(b"at last")
        assert await read(accepted, 7) == b"at last"
        connected.close()
        accepted.close()
        await listener.close()


async def test_a_neighbour_that_gives_up_does_not_count_as_linked(place: Place) -> None:
    async with listening(place) as (listener, address):
        impatient = asyncio.create_task(place.peer(0).connect_link(address, LEFT, OWN, quietly))
        await asyncio.wait([impatient], timeout=0.05)
        impatient.cancel()
        await asyncio.wait([impatient])
        connecting = asyncio.create_task(place.peer(0).connect_link(address, LEFT, OWN, quietly))
        await asyncio.wait([connecting], timeout=0.05)
        accepted, connected = await listener.accept(OWN, LEFT), await connecting
        await connected.send(b"yes")
        assert await read(accepted, 3) == b"yes"
        connected.close()
        accepted.close()


async def test_a_probe_tells_the_living_from_the_replaced_and_the_dead(place: Place) -> None:
    asker = place.peer(0)
    async with listening(place) as (_, address):
        alive = await asker.probe(address, 1001, 5.0)
        replaced = await asker.probe(address, 4242, 5.0)
    refused = await asker.probe(address, 1001, 5.0)
    assert alive.outcome is ProbeOutcome.ALIVE
    assert replaced.outcome is ProbeOutcome.REPLACED
    assert refused.outcome is ProbeOutcome.REFUSED
    assert all(str(address) in result.detail for result in (alive, replaced, refused))


async def test_a_probe_does_not_wait_for_who_never_answers(place: Place) -> None:
    async with place.silent_listener() as address:
        result = await place.peer(0).probe(address, 1001, 0.05)
    assert result.outcome is ProbeOutcome.SILENT
    assert str(address) in result.detail


async def test_probes_are_answered_before_during_and_after_a_link_is_made(place: Place) -> None:
    asker = place.peer(2)

    async def assert_alive(address: Address) -> None:
        results = await asyncio.gather(*(asker.probe(address, 1001, 5.0) for _ in range(20)))
        assert {result.outcome for result in results} == {ProbeOutcome.ALIVE}

    async with listening(place) as (listener, address):
        await assert_alive(address)
        connecting = asyncio.create_task(place.peer(0).connect_link(address, LEFT, OWN, quietly))
        await assert_alive(address)
        accepted, connected = await listener.accept(OWN, LEFT), await connecting
        await assert_alive(address)
        await connected.send(b"undisturbed")
        assert await read(accepted, 11) == b"undisturbed"
        connected.close()
        accepted.close()


async def test_an_address_can_be_listened_on_again_at_once(place: Place) -> None:
    for _ in range(3):
        async with linked(place) as (sender, receiver):
            await sender.send(b"x")
            assert await read(receiver, 1) == b"x"


@pytest.mark.parametrize("turns", range(6))
async def test_a_connection_that_is_given_up_at_any_moment_is_closed_once(place: Place, turns: int) -> None:
    """What is closed twice shuts what somebody else has opened meanwhile, or is complained of."""
    async with listening(place) as (_, address):
        attempt = asyncio.create_task(place.peer(0).connect_link(address, LEFT, OWN, quietly))
        for _ in range(turns):
            await asyncio.sleep(0)
        attempt.cancel()
        await asyncio.wait([attempt])
        del attempt
        for _ in range(10):  # in which the listener takes in what it has accepted
            await asyncio.sleep(0)
    gc.collect()


@pytest.mark.parametrize("patience", [2e6, 3e6, 1e9 + 1.0])
@pytest.mark.places("sockets")
async def test_patience_may_be_longer_than_the_kernel_can_hold(place: Place, patience: float) -> None:
    network = GrpcNetwork(own=None, loopback=True, patience=patience)
    listener = await network.serve_links(1001)
    accepting = asyncio.create_task(listener.accept(OWN, LEFT))
    connected = await network.connect_link(place.link_address(1, listener), LEFT, OWN, quietly)
    await connected.send(b"x")
    accepted = await accepting
    assert await read(accepted, 1) == b"x"
    connected.close()
    accepted.close()
    await listener.close()


@pytest.mark.places("sockets", "sockets-uvloop")
async def test_a_connection_that_cannot_be_configured_ends(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the other side would wait for an answer to its hello, and nobody would know."""

    def fail(*arguments: object) -> None:
        raise OSError(22, "Invalid argument")

    async with listening(place) as (_, address):
        with monkeypatch.context() as patch:
            patch.setattr(TcpLink, "_configure", fail)
            async with dialling(place, address) as troubles:
                assert (await troubles.get()).kind is TroubleKind.BROKEN
        assert (await place.peer(0).probe(address, 1001, 5.0)).outcome is ProbeOutcome.ALIVE


async def test_a_link_whose_taker_was_cancelled_ends_with_the_listener(place: Place) -> None:
    async with listening(place) as (listener, address):
        taking = asyncio.create_task(listener.accept(OWN, LEFT))
        await asyncio.sleep(0)
        taking.cancel()
        await asyncio.wait([taking])
        link = await place.peer(0).connect_link(address, LEFT, OWN, quietly)
    assert await link.wait_closed()
    link.close()
