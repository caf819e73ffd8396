"""Collections over the ring, over every kind of link."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from bringup.errors import CollectiveMismatchError
from bringup.transport.collectives import ring as ring_module
from bringup.transport.collectives.agreement import Agreement
from bringup.transport.collectives.frames import HEADER_BYTES, FrameHeader
from bringup.transport.collectives.neighbours import RingBrokenError
from bringup.transport.collectives.ring import COLLECTED_BYTES_MAX, Ring

from .places import MemoryPlace, Place, ring_of_links
from .rings import rings, served_ring

SEGMENT = ring_module._SEGMENT_BYTES
LENGTHS = [0, 1, 1000, SEGMENT - 1, SEGMENT, SEGMENT + 1, 3 * SEGMENT + 17]


def drawn(length: int) -> bytes:
    return np.random.default_rng(length).integers(0, 256, length, "uint8").tobytes()


def given(rank: int, data: bytes) -> bytes:
    """Return what a client gives, each something else and of another length."""
    return data[rank % 3 :] + bytes([rank])


def collect(ring: Ring, rank: int, data: bytes) -> asyncio.Task[bytes]:
    """Collect `given` of all; the answer of client 0 is all of it, turned around."""
    return asyncio.create_task(ring.collect(given(rank, data), lambda parts: b"".join(parts)[::-1]))


def tasks_of(group: list[Ring], data: bytes) -> list[asyncio.Task[bytes]]:
    return [collect(ring, rank, data) for rank, ring in enumerate(group)]


def answer(size: int, data: bytes) -> bytes:
    return b"".join(given(rank, data) for rank in range(size))[::-1]


async def assert_collects(group: list[Ring], data: bytes) -> None:
    expected = answer(len(group), data)
    assert all(received == expected for received in await asyncio.gather(*tasks_of(group, data)))


@pytest.mark.parametrize("sizes", [(1,), (2,), (3,), (8,), (2, 2), (3, 2, 4), (1, 1), (4, 1, 2)], ids=str)
async def test_every_client_gets_the_answer_to_the_bytes_of_all(place: Place, sizes: tuple[int, ...]) -> None:
    async with rings(place, *sizes) as group:
        for length in LENGTHS:
            await assert_collects(group, drawn(length))


@pytest.mark.parametrize("length", [10, 3 * SEGMENT])
async def test_collections_and_reductions_keep_their_order(place: Place, length: int) -> None:
    data = drawn(length)
    async with rings(place, 3) as group:
        sums = [ring.all_reduce(np.ones(5)) for ring in group]
        first = [asyncio.create_task(one) for one in sums]
        await assert_collects(group, data)
        assert all((one == 3).all() for one in await asyncio.gather(*first))
        await asyncio.gather(assert_collects(group, data), assert_collects(group, data[::-1]))
        assert [ring.called for ring in group] == [4, 4, 4]


@pytest.mark.parametrize("sizes", [(4,), (3, 2, 2)], ids=str)
@pytest.mark.places("memory")
async def test_every_link_carries_the_answer_once(place: Place, sizes: tuple[int, ...]) -> None:
    class Counting:
        """A link that counts what is sent."""

        def __init__(self, link: object) -> None:
            self._link = link
            self.sent = 0

        async def send(self, *parts: bytes) -> None:
            self.sent += sum(map(len, parts))
            await self._link.send(*parts)  # type: ignore[attr-defined]

        def __getattr__(self, name: str) -> object:
            return getattr(self._link, name)

    data = drawn(5 * SEGMENT)
    async with rings(place, *sizes) as group:
        all_links = [neighbours for ring in group for neighbours in ring._neighbours.values()]
        for neighbours in all_links:
            neighbours.outgoing = Counting(neighbours.outgoing)  # type: ignore[assignment]
        await asyncio.gather(*(ring.collect(b"own", lambda _: data) for ring in group))
        sent = sorted(neighbours.outgoing.sent for neighbours in all_links)  # type: ignore[attr-defined]
        backwards = len(all_links) - (len(group) - 1)
        assert all(of_one < 200 for of_one in sent[:backwards])
        assert all(len(data) < of_one < len(data) + 200 for of_one in sent[backwards:])


@pytest.mark.parametrize("sizes", [(4,), (2, 2)], ids=str)
@pytest.mark.parametrize("odd", [0, 1, 2, 3])
async def test_who_called_something_else_is_told_to_all(place: Place, sizes: tuple[int, ...], odd: int) -> None:
    async with rings(place, *sizes) as group:
        for _ in range(2):
            calls = [
                asyncio.create_task(ring.all_reduce(np.ones(3))) if rank == odd else collect(ring, rank, drawn(1000))  # type: ignore[arg-type]
                for rank, ring in enumerate(group)
            ]
            for error in await asyncio.gather(*calls, return_exceptions=True):
                assert isinstance(error, CollectiveMismatchError)
                assert f"client {odd} called all_reduce(sum, float64[3])" in str(error)
                assert f"client {0 if odd else 1} called collect()" in str(error)
            await assert_collects(group, drawn(100))


async def test_a_size_beyond_the_bound_breaks_the_ring_before_memory_is_taken(place: Place) -> None:
    call = Agreement.of(0, "collect()").encode()
    heard = (Agreement.of(0, "collect()") + Agreement.of(1, "collect()")).encode()
    async with ring_of_links(place, 2) as links, served_ring(1, 2, *links[1]) as ring:
        waiting = asyncio.create_task(ring.collect(b"", b"".join))
        await links[0][1].send(FrameHeader(len(call), 1, 0).encode() + call)
        await links[0][0].receive_into(memoryview(bytearray(HEADER_BYTES + len(heard) + 4)))
        await links[0][1].send(FrameHeader(len(heard), 1, COLLECTED_BYTES_MAX + 1).encode())
        with pytest.raises(RingBrokenError, match=f"at most .* {COLLECTED_BYTES_MAX} are allowed"):
            await waiting


@pytest.mark.parametrize("culprit", [0, 1, 2])
async def test_a_call_that_is_cancelled_while_it_waits_for_its_turn_keeps_its_place(culprit: int) -> None:
    async with rings(MemoryPlace(), 3) as group:
        reduced = asyncio.create_task(group[culprit].all_reduce(np.ones(3)))
        cancelled = collect(group[culprit], culprit, b"lost")
        await asyncio.wait([cancelled], timeout=0.01)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        others = [ring for ring in group if ring is not group[culprit]]
        await asyncio.gather(reduced, *(ring.all_reduce(np.ones(3)) for ring in others))
        calls = [collect(ring, rank, b"lost") for rank, ring in enumerate(others)]
        for error in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(error, CollectiveMismatchError)
            assert f"client {culprit} called nothing: its call ended before its turn (CancelledError" in str(error)
        await assert_collects(group, b"found")


@pytest.mark.parametrize("sizes", [(3,), (2, 2)], ids=str)
@pytest.mark.parametrize("culprit", [0, 1, 2])
@pytest.mark.parametrize("length", [10, 3 * SEGMENT])
async def test_a_call_that_is_cancelled_at_any_turn_of_the_loop(
    culprit: int, length: int, sizes: tuple[int, ...]
) -> None:
    """Nobody ever gets other bytes; half-way, the ring breaks."""
    data = drawn(length)
    expected = answer(sum(sizes), data)

    async def is_over(after: int) -> bool:
        async with rings(MemoryPlace(), *sizes) as group:
            calls = tasks_of(group, data)
            for _ in range(after + 1):
                await asyncio.sleep(0)
            was_done = calls[culprit].done()
            calls[culprit].cancel()
            await asyncio.wait([calls[culprit]])
            if group[culprit].has_ended:
                for ring in group:
                    ring.end(lambda: RingBrokenError(culprit, "a client failed"))
            for outcome in await asyncio.gather(*calls, return_exceptions=True):
                ends = CollectiveMismatchError | RingBrokenError | asyncio.CancelledError
                assert outcome == expected or isinstance(outcome, ends), repr(outcome)[:200]
            return was_done

    after = 0
    while not await is_over(after):
        after += 1
        assert after < 2000, "it never ends"
    assert after > 2


@pytest.mark.parametrize("gone", [0, 1, 2])
async def test_a_neighbour_that_closes_is_named(place: Place, gone: int) -> None:
    async with rings(place, 3) as group:
        await assert_collects(group, b"data")
        others = {rank: collect(group[rank], rank, drawn(2 * SEGMENT)) for rank in range(3) if rank != gone}
        group[gone].close()
        right = (gone + 1) % 3
        with pytest.raises(RingBrokenError) as broken:
            await others.pop(right)
        assert broken.value.client_id == gone
        for ring in group:
            ring.close()
        await asyncio.wait(others.values())
        assert all(task.exception() for task in others.values())
