"""Collectives over the ring, over every kind of link."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Coroutine
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from bringup.errors import CollectiveMismatchError, ConfigurationError
from bringup.transport.collectives.frames import HEADER_BYTES, FrameHeader
from bringup.transport.collectives.neighbours import RingBrokenError
from bringup.transport.collectives.ring import Ring
from bringup.transport.collectives.schedule import RingOf

from .places import Place, ring_of_links
from .rings import rings, served_ring

Array = npt.NDArray[Any]

SIZES = [1, 2, 3, 4, 7, 8, 16, 17]
GROUPS = [(2, 2), (3, 2, 4), (2, 5), (1, 1), (4, 1, 2), (2, 2, 2, 2)]
"""Sizes of the groups of a job."""
LARGE = 2**17 + 3
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DTYPES = [*INTEGERS, "float16", "float32", "float64", "complex64"]
OPS = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}


def draw(rank: int, shape: int | tuple[int, ...], dtype: str, op: str) -> Array:
    """Return values whose reduction is exact in any order, in floating point too: so all must be equal, bit for bit."""
    rng = np.random.default_rng(rank)
    if op == "prod":
        return rng.choice(np.array([1, 2] if np.dtype(dtype).kind in "fc" else [1, 3, 5], dtype), shape) ** (rank < 10)
    low = 0 if np.dtype(dtype).kind == "u" else -50
    return rng.integers(low, 50, shape).astype(dtype)


async def all_of(calls: list[Coroutine[Any, Any, Array]]) -> list[Array]:
    return await asyncio.gather(*calls)


async def assert_reduces(group: list[Ring], shape: int | tuple[int, ...], dtype: str, op: str) -> None:
    arrays = [draw(rank, shape, dtype, op) for rank in range(len(group))]
    before = [array.copy() for array in arrays]
    results = await all_of([ring.all_reduce(array, op) for ring, array in zip(group, arrays, strict=True)])
    with np.errstate(over="ignore"):
        expected = functools.reduce(OPS[op], before)
    for array, original, result in zip(arrays, before, results, strict=True):
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        assert result.tobytes() == expected.tobytes(), f"{op} of {dtype}{shape} over {len(group)}"
        assert array.tobytes() == original.tobytes(), "an input was changed"
        assert result.flags.writeable
        assert not np.shares_memory(result, array)


@pytest.mark.parametrize("sizes", [*((size,) for size in SIZES), *GROUPS], ids=str)
async def test_every_length_is_reduced_to_the_same_bits_everywhere(place: Place, sizes: tuple[int, ...]) -> None:
    size = sum(sizes)
    lengths = [0, 1, size - 1, size, size + 1, 1000]
    combinations = itertools.cycle(itertools.product(["int32", "float32", "complex64"], OPS))
    async with rings(place, *sizes) as group:
        for length in lengths:
            await assert_reduces(group, length, *next(combinations))
        for dtype, op in [("float32", "sum"), ("int8", "prod"), ("float64", "min")]:
            await assert_reduces(group, LARGE, dtype, op)


@pytest.mark.parametrize("size", [1, 3])
async def test_every_dtype_and_operation(place: Place, size: int) -> None:
    async with rings(place, size) as group:
        for dtype, op in itertools.product(DTYPES, OPS):
            for shape in (0, 5, (3, 4, 5)):
                await assert_reduces(group, shape, dtype, op)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.places("memory")
async def test_every_dtype_and_operation_in_chunks(place: Place, dtype: str, op: str) -> None:
    async with rings(place, 3) as group:
        await assert_reduces(group, (3, LARGE // 3), dtype, op)


@pytest.mark.parametrize("sizes", [(5,), (2, 3), (2, 2, 2)], ids=str)
async def test_floats_are_the_same_bits_on_every_client(place: Place, sizes: tuple[int, ...]) -> None:
    """Where the order of the additions shows, in one piece and in a million numbers."""
    async with rings(place, *sizes) as group:
        for length in (1000, 1_000_000):
            arrays = [np.random.default_rng(rank).normal(size=length).astype("float32") for rank in range(sum(sizes))]
            results = await all_of([r.all_reduce(a) for r, a in zip(group, arrays, strict=True)])
            assert all(result.tobytes() == results[0].tobytes() for result in results)
            assert np.allclose(results[0], functools.reduce(np.add, arrays), rtol=1e-3, atol=1e-4)


async def test_arrays_of_any_layout(place: Place) -> None:
    square = np.arange(12, dtype="int64").reshape(3, 4)
    layouts = [square.T, square[:, ::2], np.asfortranarray(square), np.int64(7), square.astype(">i8"), square > 5]
    async with rings(place, 3) as group:
        for layout in map(np.asarray, layouts):
            for result in await all_of([ring.all_reduce(layout, "max") for ring in group]):
                assert (result.dtype, result.shape) == (layout.dtype, layout.shape)
                assert np.array_equal(result, layout)


async def test_what_is_not_a_number_is_so_everywhere(place: Place) -> None:
    async with rings(place, 4) as group:
        for op, length in itertools.product(OPS, [3, LARGE]):
            arrays = [np.full(length, value, "float32") for value in (1, np.nan, 3, -0.0)]
            results = await all_of([r.all_reduce(a, op) for r, a in zip(group, arrays, strict=True)])
            assert len({result.tobytes() for result in results}) == 1
            assert np.isnan(results[0]).all()


async def test_calls_that_overlap_are_made_one_after_the_other(place: Place) -> None:
    async with rings(place, 4) as group:
        calls = [[ring.all_reduce(np.full(LARGE, step + rank)) for step in range(4)] for rank, ring in enumerate(group)]
        for results in await asyncio.gather(*(all_of(of_one) for of_one in calls)):
            assert [int(result[-1]) for result in results] == [4 * step + 6 for step in range(4)]


ODD_CALLS = {
    "shape": (np.zeros((2, 2), "int32"), "sum"),
    "dtype": (np.zeros(4, "float64"), "sum"),
    "op": (np.zeros(4, "int32"), "max"),
    "large": (np.zeros(LARGE, "int32"), "sum"),
}


@pytest.mark.parametrize(("sizes", "odd"), [*(((5,), odd) for odd in (0, 1, 4)), *(((2, 3), odd) for odd in range(5))])
@pytest.mark.parametrize("kind", ODD_CALLS)
async def test_different_calls_are_told_to_all_and_harm_nothing(
    place: Place, kind: str, sizes: tuple[int, ...], odd: int
) -> None:
    odd_array, odd_op = ODD_CALLS[kind]
    odd_call = f"all_reduce({odd_op}, {odd_array.dtype.name}{list(odd_array.shape)})"
    async with rings(place, *sizes) as group:
        for _ in range(2):
            calls = [
                ring.all_reduce(odd_array, odd_op) if rank == odd else ring.all_reduce(np.zeros(4, "int32"))
                for rank, ring in enumerate(group)
            ]
            for error in await asyncio.gather(*calls, return_exceptions=True):
                assert isinstance(error, CollectiveMismatchError)
                assert f"client {odd} called {odd_call}" in str(error)
                assert f"client {1 if odd == 0 else 0} called all_reduce(sum, int32[4])" in str(error)
            await assert_reduces(group, 1000, "int32", "sum")


@pytest.mark.parametrize("sizes", [(6,), (2, 2, 2), (3, 3), (1, 4, 1)], ids=str)
@pytest.mark.places("memory")
async def test_the_error_is_the_same_on_every_client_and_in_any_groups(place: Place, sizes: tuple[int, ...]) -> None:
    calls = [(1, "sum"), (1, "sum"), (2, "sum"), (2, "sum"), (1, "sum"), (1, "max")]
    async with rings(place, *sizes) as group:
        made = [ring.all_reduce(np.ones(n), op) for ring, (n, op) in zip(group, calls, strict=True)]
        texts = {str(error) for error in await asyncio.gather(*made, return_exceptions=True)}
    expected = (
        "clients called different collectives (collective 1 of this job): "
        "client 0 called all_reduce(sum, float64[1]); client 2 called all_reduce(sum, float64[2]); "
        "client 4 called all_reduce(sum, float64[1]); client 5 called all_reduce(max, float64[1]). "
        "All clients must call the same collectives in the same order."
    )
    assert texts == {expected}


@pytest.mark.parametrize("odd", [0, 1, 2])
async def test_a_call_that_is_refused_on_one_client_alone_is_told_to_the_others(place: Place, odd: int) -> None:
    async with rings(place, 3) as group:
        for array, op, complaint in [(np.zeros(1), "mode", "'mode'"), (np.array(["a"]), "sum", "<U1")]:
            others = [asyncio.create_task(group[i].all_reduce(np.ones(1))) for i in range(3) if i != odd]
            with pytest.raises(ConfigurationError, match=complaint):
                await group[odd].all_reduce(array, op)
            for error in await asyncio.gather(*others, return_exceptions=True):
                assert isinstance(error, CollectiveMismatchError)
                assert f"client {odd} called nothing: its call ended before its turn" in str(error)
                assert complaint in str(error)
            await assert_reduces(group, 3, "int32", "sum")


async def test_calls_that_are_refused_everywhere_leave_the_clients_in_step(place: Place) -> None:
    async with rings(place, 3) as group:
        for ring in group:
            with pytest.raises(ConfigurationError, match="'mode'"):
                await ring.all_reduce(np.zeros(1), "mode")
        await assert_reduces(group, 3, "int32", "sum")
        assert [ring.called for ring in group] == [2, 2, 2]


async def breaks_of(calls: list[asyncio.Task[Array]]) -> list[int]:
    """Return whom each of the calls blames, all of which must break."""
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    blamed = []
    for outcome in outcomes:
        assert isinstance(outcome, RingBrokenError), f"a call came to {outcome!r}"
        assert outcome.cause
        blamed.append(outcome.client_id)
    return blamed


@pytest.mark.parametrize("length", [4, LARGE])
async def test_a_neighbour_that_closes_is_named_and_only_its_neighbours_are_told(place: Place, length: int) -> None:
    size, gone = 5, 2
    async with rings(place, size) as group:
        await assert_reduces(group, 10, "int32", "sum")
        others = [rank for rank in range(size) if rank != gone]
        calls = {r: asyncio.create_task(group[r].all_reduce(np.zeros(length, "float32"))) for r in others}
        await asyncio.sleep(0)
        group[gone].close()
        assert await breaks_of([calls.pop(gone + 1)]) == [gone]
        # The rest wait for somebody to say who is the cause, and to end the ring.
        for ring in group:
            ring.close()
        await breaks_of(list(calls.values()))


@pytest.mark.parametrize("length", [4, LARGE])
@pytest.mark.parametrize("of", RingOf)
@pytest.mark.parametrize("sizes", [(2, 2), (3, 2, 2)], ids=str)
@pytest.mark.places("memory")
async def test_every_broken_link_is_told_with_the_client_at_its_end(
    place: Place, sizes: tuple[int, ...], of: RingOf, length: int
) -> None:
    links = await in_ring(place, sizes, of)
    assert len(links) == (sum(sizes) if of is RingOf.GROUP else len(sizes))
    for sender, receiver in links:
        async with rings(place, *sizes) as group:
            calls = [asyncio.create_task(ring.all_reduce(np.zeros(length, "float32"))) for ring in group]
            group[sender]._neighbours[of].outgoing.close()
            assert await breaks_of([calls.pop(receiver)]) == [sender]
            for ring in group:
                ring.close()
            await asyncio.gather(*calls, return_exceptions=True)


async def in_ring(place: Place, sizes: tuple[int, ...], of: RingOf) -> list[tuple[int, int]]:
    """Return the ends of the links of the rings of one kind."""
    async with rings(place, *sizes) as group:
        return [(own, ring._neighbours[of].right) for own, ring in enumerate(group) if of in ring._neighbours]


@pytest.mark.parametrize(
    "data",
    [
        bytes(HEADER_BYTES),
        FrameHeader(0, 2, 32).encode(),
        FrameHeader(0, 1, 2**40).encode(),
        FrameHeader(2**31, 1, 0).encode(),
    ],
    ids=["no frame", "another collective's", "a payload too large", "a text too large"],
)
async def test_a_frame_that_is_not_due_breaks_the_ring(place: Place, data: bytes) -> None:
    async with ring_of_links(place, 2) as links, served_ring(1, 2, *links[1]) as ring:
        await links[0][1].send(data)
        assert await breaks_of([asyncio.create_task(ring.all_reduce(np.zeros(4)))]) == [0]


async def test_a_right_neighbour_that_has_gone_is_named(place: Place) -> None:
    async with ring_of_links(place, 3) as links:
        for link in links[1]:
            link.close()
        await links[0][1].wait_closed()
        async with served_ring(0, 3, *links[0]) as ring:
            assert await breaks_of([asyncio.create_task(ring.all_reduce(np.zeros(4)))]) == [1]


async def test_a_broken_ring_stays_broken(place: Place) -> None:
    async with rings(place, 3) as group:
        for ring in group:
            ring.close()
        for _ in range(2):
            await breaks_of([asyncio.create_task(ring.all_reduce(np.zeros(4))) for ring in group])


@pytest.mark.parametrize("length", [4, LARGE])
async def test_a_call_that_is_cancelled_breaks_the_ring(place: Place, length: int) -> None:
    async with rings(place, 4) as group:
        calls = {r: asyncio.create_task(group[r].all_reduce(np.zeros(length, "float32"))) for r in (1, 2, 3)}
        await asyncio.wait(calls.values(), timeout=0.05)  # without client 0 they get nowhere
        cancelled = calls.pop(2)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        assert await breaks_of([asyncio.create_task(group[2].all_reduce(np.zeros(4)))]) == [2]
        group[2].close()
        assert await breaks_of([calls.pop(3)]) == [2]
        for ring in group:
            ring.close()
        await breaks_of(list(calls.values()))


async def test_a_call_that_is_cancelled_while_it_waits_for_its_turn_keeps_its_place(place: Place) -> None:
    async with rings(place, 2) as group:
        first, second = (asyncio.create_task(group[0].all_reduce(np.full(4, value))) for value in (1, 10))
        await asyncio.wait([first, second], timeout=0.05)
        second.cancel()
        await asyncio.wait([second])
        third = asyncio.create_task(group[0].all_reduce(np.full(4, 100)))
        assert (await group[1].all_reduce(np.full(4, 2)) == 3).all()
        with pytest.raises(CollectiveMismatchError, match=r"client 0 called nothing: .*CancelledError.*; client 1 "):
            await group[1].all_reduce(np.full(4, 20))
        assert (await group[1].all_reduce(np.full(4, 200)) == 300).all()
        assert (await first == 3).all()
        assert (await third == 300).all()
