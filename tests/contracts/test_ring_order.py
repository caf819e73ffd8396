"""Collectives that queue, and are cancelled, time out or are refused on one client: nobody ever gets wrong numbers.

The n-th call of a client is a sum with the n-th of all others, which are all alike: so a call that is taken for another
gives a number that the oracle knows to be wrong.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from bringup.errors import CollectiveMismatchError, ConfigurationError
from bringup.transport.collectives.neighbours import RingBrokenError
from bringup.transport.collectives.packing import Packing
from bringup.transport.collectives.ring import Ring
from bringup.transport.collectives.turns import Contribution

from .places import MemoryPlace, Place
from .rings import WatchedRing, rings

Array = npt.NDArray[Any]

CALLS = 4
LARGE = 2**14  # of eight bytes: in chunks


def given(client_id: int, number: int, length: int) -> Array:
    return np.full(length, (number + 1) * 10.0**client_id)


def assert_right(outcomes: Sequence[Sequence[Array | BaseException]], length: int) -> None:
    """Check what the calls of all clients came to, in their order."""
    for number, of_all in enumerate(zip(*outcomes, strict=True)):
        right = sum(given(client_id, number, length) for client_id in range(len(outcomes)))
        for client_id, outcome in enumerate(of_all):
            if isinstance(outcome, BaseException):
                ends = CollectiveMismatchError | ConfigurationError | RingBrokenError | asyncio.CancelledError
                assert isinstance(outcome, ends), f"call {number} of client {client_id}: {outcome!r}"
            else:
                assert (outcome == right).all(), f"call {number} of client {client_id}: {outcome[0]}, not {right[0]}"


async def all_in_a_row(ring: Ring, client_id: int, length: int) -> list[Array | BaseException]:
    """Make the calls one after the other, whatever becomes of each."""
    outcomes: list[Array | BaseException] = []
    for number in range(CALLS):
        outcomes += await asyncio.gather(ring.all_reduce(given(client_id, number, length)), return_exceptions=True)
    return outcomes


def at_once(ring: Ring, client_id: int, length: int) -> list[asyncio.Task[Array]]:
    """Make the calls all at once."""
    return [asyncio.create_task(ring.all_reduce(given(client_id, number, length))) for number in range(CALLS)]


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def cancel_one(
    group: list[WatchedRing], culprit: int, number: int, *, after: int, news_after: int, length: int, late: bool
) -> tuple[list[list[Array | BaseException]], bool]:
    """Let one client cancel one of its queued calls after some turns of the loop.

    Where that breaks the ring, the others hear of it some turns later.

    Returns:
        What all calls came to, and whether the one had come to something before it was cancelled.
    """
    calls = at_once(group[culprit], culprit, length)
    others = {i: asyncio.create_task(_later(i, late, group[i], length)) for i in range(len(group)) if i != culprit}
    await turns(after + 1)  # not before it was called: that would be another program
    was_done = calls[number].done()
    calls[number].cancel()
    watching = asyncio.create_task(_tell_all(group, news_after))
    outcomes: dict[int, list[Array | BaseException]] = {}
    outcomes[culprit] = await asyncio.gather(*calls, return_exceptions=True)
    for client_id, other in others.items():
        outcomes[client_id] = await other
    watching.cancel()
    await asyncio.wait([watching])
    return [outcomes[i] for i in range(len(group))], was_done


async def _later(client_id: int, late: bool, ring: Ring, length: int) -> list[Array | BaseException]:
    await turns(10 * client_id if late else 0)
    return await all_in_a_row(ring, client_id, length)


async def _tell_all(group: list[WatchedRing], after: int) -> None:
    """End all rings once one has ended, as the coordinator's verdict does it, some turns later."""
    while not any(ring.has_ended for ring in group):  # noqa: ASYNC110 - it tells nobody
        await asyncio.sleep(0)
    await turns(after)
    for ring in group:
        ring.end(lambda: RingBrokenError(0, "a client failed"))


CULPRITS = [
    *itertools.product([(3,)], [0, 1, 2], [0, 1, 2]),
    # In groups: client 0, the other leader, a client that leads none.
    *itertools.product([(2, 2)], [0, 2, 3], [1]),
]


@pytest.mark.parametrize("length", [3, LARGE], ids=["whole", "in parts"])
@pytest.mark.parametrize(("sizes", "culprit", "number"), CULPRITS)
async def test_a_call_that_is_cancelled_at_any_turn_of_the_loop(
    sizes: tuple[int, ...], culprit: int, number: int, length: int
) -> None:
    async def is_over(after: int) -> bool:
        async with rings(MemoryPlace(), *sizes) as group:
            outcomes, was_done = await cancel_one(
                group, culprit, number, after=after, news_after=after % 7, length=length, late=after % 2 == 0
            )
            assert_right(outcomes, length)
            return was_done

    after = 0
    while not await is_over(after):
        after += 1
        assert after < 2000, "it never ends"
    assert after > 5


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.places("memory")
async def test_calls_that_end_in_any_way_at_any_time(place: Place, seed: int) -> None:
    rng = random.Random(seed)
    length = rng.choice([1, 3, LARGE])

    async def one(ring: Ring, client_id: int, number: int) -> Array:
        await turns(rng.randrange(5) + 40 * number)
        if rng.random() < 0.1:
            return await ring.all_reduce(np.array(["a"]))
        return await ring.all_reduce(given(client_id, number, length))

    async def cancel_some(calls: list[list[asyncio.Task[Array]]]) -> None:
        # Not before it was called: that would be another program.
        await turns(40 * CALLS + 5)
        for _ in range(rng.choice([1, 2, 5])):
            await turns(rng.randrange(30))
            rng.choice(rng.choice(calls)).cancel()

    sizes = rng.choice([(2,), (3,), (4,), (2, 2)])
    size = sum(sizes)
    async with rings(place, *sizes) as group:
        calls = [[asyncio.create_task(one(group[i], i, number)) for number in range(CALLS)] for i in range(size)]
        chaos = [asyncio.create_task(cancel_some(calls)), asyncio.create_task(_tell_all(group, rng.randrange(9)))]
        outcomes = [await asyncio.gather(*of_one, return_exceptions=True) for of_one in calls]
        for task in chaos:
            task.cancel()
        await asyncio.wait(chaos)
        assert_right(outcomes, length)
        assert len({ring.called for ring in group if not ring.has_ended}) <= 1


@pytest.mark.places("memory")
async def test_a_place_is_taken_as_soon_as_a_call_is_made_and_is_waited_for(place: Place) -> None:
    async with rings(place, 2) as group:
        with group[0].enter() as first:
            second = asyncio.create_task(group[0].all_reduce(np.full(1, 10.0)))
            others = [asyncio.create_task(group[1].all_reduce(np.full(1, n))) for n in (2.0, 20.0)]
            await turns(50)
            assert group[0].called == 2
            assert not second.done()
            packing = Packing("sum", [np.ones(1)])
            first.give(Contribution("all_reduce(sum, float64[1])", packing.reduction, packing.pack()))
            (total,) = await asyncio.wrap_future(first.result)
        assert total.tolist() == [3.0]
        assert [(await call).tolist() for call in (second, *others)] == [[30.0], [3.0], [30.0]]


@pytest.mark.parametrize("length", [1, LARGE])
@pytest.mark.parametrize(("sizes", "leaver"), [((3,), 1), ((2, 2), 0), ((2, 2), 1), ((2, 2), 2), ((2, 2), 3)])
async def test_calls_that_one_client_never_makes_end_and_those_before_do_not(
    place: Place, length: int, sizes: tuple[int, ...], leaver: int
) -> None:
    """Whoever hears that it makes no more: in the middle of one, with others queued, or about to call."""

    class LeftError(Exception):
        pass

    async with rings(place, *sizes) as group:
        others = [client_id for client_id in range(len(group)) if client_id != leaver]
        calls = [at_once(group[client_id], client_id, length) for client_id in others]
        made = await asyncio.gather(*(group[leaver].all_reduce(given(leaver, number, length)) for number in range(2)))
        last = group[leaver].called
        assert last == 2
        for client_id in others:
            group[client_id].stop_after(last, LeftError)
            group[client_id].stop_after(last + 1, lambda _: LeftError("a later limit"))
        for of_client in calls:
            ends = await asyncio.gather(*of_client, return_exceptions=True)
            assert all((end == right).all() for end, right in zip(ends[:2], made, strict=True))
            assert [(type(end), *end.args) for end in ends[2:]] == [(LeftError, 3), (LeftError, 4)]
        for _ in range(2):
            with pytest.raises(LeftError):
                await group[others[0]].all_reduce(given(others[0], CALLS, length))
