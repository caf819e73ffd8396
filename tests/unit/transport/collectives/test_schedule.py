"""The schedules of the collectives."""

from __future__ import annotations

import collections
import itertools
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.transport.collectives.schedule import Hop, Lane, RingOf, chunk_bounds, gathering, spreading, steps
from bringup.transport.wire.messages import GroupPlace

SIZES = [1, 2, 3, 4, 7, 8, 16, 17, 64]


@pytest.mark.parametrize("length", [0, 1, 5, 16, 17, 1000, 2**20 + 3])
@pytest.mark.parametrize("size", SIZES)
def test_chunks_cover_the_array_and_are_as_equal_as_can_be(size: int, length: int) -> None:
    bounds = chunk_bounds(length, size)
    assert len(bounds) == size
    assert (bounds[0][0], bounds[-1][1]) == (0, length)
    assert all(one[1] == next_[0] for one, next_ in itertools.pairwise(bounds))
    lengths = [end - start for start, end in bounds]
    assert max(lengths) - min(lengths) <= 1
    assert lengths == sorted(lengths, reverse=True)


@pytest.mark.parametrize("size", SIZES)
def test_what_one_sends_is_what_its_right_neighbour_receives(size: int) -> None:
    schedules = [list(steps(rank, size)) for rank in range(size)]
    for rank, schedule in enumerate(schedules):
        right = schedules[(rank + 1) % size]
        assert len(schedule) == 2 * (size - 1)
        assert [(step.send, step.reduce) for step in schedule] == [(step.receive, step.reduce) for step in right]


@pytest.mark.parametrize("size", SIZES)
def test_every_chunk_ends_with_everybody_reduced_once_over_all_in_one_order(size: int) -> None:
    held = [[(rank,) for _ in range(size)] for rank in range(size)]
    for turn in zip(*(steps(rank, size) for rank in range(size)), strict=True):
        sent = [held[rank][step.send] for rank, step in enumerate(turn)]
        for rank, step in enumerate(turn):
            arrived = sent[(rank - 1) % size]
            held[rank][step.receive] = arrived + held[rank][step.receive] if step.reduce else arrived
    for chunk in range(size):
        orders = {held[rank][chunk] for rank in range(size)}
        assert len(orders) == 1
        assert sorted(orders.pop()) == list(range(size))


Value = tuple[int, ...]
SIZES_OF_GROUPS = st.lists(st.integers(1, 7), min_size=1, max_size=7)


def places_of(sizes: list[int]) -> list[GroupPlace]:
    """Return the places of all clients of a job with groups of these sizes."""
    starts = [0, *itertools.accumulate(sizes)]
    places = (GroupPlace(i, len(sizes), starts[i], starts[i + 1] - 1) for i in range(len(sizes)))
    return [place for place in places for _ in range(place.first, place.last + 1)]


class Job:
    """Carries out the hops of all clients on values in segments, in an order drawn at random.

    Args:
        places: of the clients.
        capacity: of a link, in segments.
        rng: draws who goes on.

    Attributes:
        values: what each client has of each segment: whose values have been added up.
        carried: how many segments each link has carried, by its ends.
        hops: the longest way, in hops, by which something has come to each client.
    """

    def __init__(self, places: list[GroupPlace], segments: int, capacity: int, rng: random.Random) -> None:
        self.values: list[list[Value]] = [[(own,)] * segments for own in range(len(places))]
        self.carried: collections.Counter[tuple[int, int]] = collections.Counter()
        self.hops = [0] * len(places)
        self._places = places
        self._leaders = sorted({place.first for place in places})
        self._capacity = capacity
        self._rng = rng
        self._links: dict[tuple[int, RingOf], list[tuple[int, int, Value]]] = collections.defaultdict(list)

    def run(self, lanes: Sequence[Sequence[Lane]]) -> None:
        """Take all lanes of all clients at once, until all are done."""
        segments = range(len(self.values[0]))
        todo = [
            (own, [(n, hop, of) for n in segments for hop in lane for of in (None, *hop.send)])
            for own, of_client in enumerate(lanes)
            for lane in of_client
        ]
        while todo := [(own, parts) for own, parts in todo if parts]:
            able = [(own, parts) for own, parts in todo if self._is_able(own, *parts[0][1:])]
            assert able, "all wait for each other"
            own, parts = self._rng.choice(able)
            self._go_on(own, *parts.pop(0))
        assert not any(self._links.values()), "something was sent that nobody takes"

    def _is_able(self, own: int, hop: Hop, to: RingOf | None) -> bool:
        if to is not None:
            return len(self._links[self._right_of(own, to), to]) < self._capacity
        return hop.receive is None or bool(self._links[own, hop.receive])

    def _go_on(self, own: int, number: int, hop: Hop, to: RingOf | None) -> None:
        if to is not None:
            right = self._right_of(own, to)
            self._links[right, to].append((number, self.hops[own] + 1, self.values[own][number]))
            self.carried[own, right] += 1
        elif hop.receive is not None:
            came, hops, value = self._links[own, hop.receive].pop(0)
            assert came == number
            self.hops[own] = max(self.hops[own], hops)
            self.values[own][number] = value + self.values[own][number] if hop.add else value

    def _right_of(self, own: int, of: RingOf) -> int:
        place = self._places[own]
        if of is RingOf.LEADERS:
            return self._leaders[(place.index + 1) % place.count]
        return own + 1 if own < place.last else place.first

    def links(self) -> set[tuple[int, int]]:
        """Return the ends of all links of the job."""
        rings = [range(first, last + 1) for _, _, first, last in {astuple(place) for place in self._places}]
        pairs = [zip(ring, [*ring[1:], ring[0]], strict=True) for ring in (*rings, self._leaders) if len(ring) > 1]
        return set(itertools.chain(*pairs))


def astuple(place: GroupPlace) -> tuple[int, int, int, int]:
    return place.index, place.count, place.first, place.last


@given(SIZES_OF_GROUPS, st.integers(1, 6), st.integers(1, 3), st.randoms(use_true_random=False))
def test_client_0_gathers_all_in_their_order_and_spreads_that(
    sizes: list[int], segments: int, capacity: int, rng: random.Random
) -> None:
    """However little the links hold, and whoever is slow."""
    places = places_of(sizes)
    job = Job(places, segments, capacity, rng)
    lanes = [gathering(own, place) for own, place in enumerate(places)]
    # In one piece, lanes are taken one after the other.
    job.run(lanes if segments > 1 else [[tuple(itertools.chain(*of_client))] for of_client in lanes])
    total = [tuple(range(len(places)))] * segments
    assert job.values[0] == total
    assert job.carried == dict.fromkeys(job.links(), segments)
    job.carried.clear()
    job.run([[(spreading(own, place),)] for own, place in enumerate(places)])
    assert job.values == [total] * len(places)
    assert set(job.carried) < job.links() or len(places) == 1
    assert len(job.carried) == len(places) - 1
    assert set(job.carried.values()) <= {segments}


@pytest.mark.parametrize(("sizes", "hops"), [([64], 127), ([8] * 8, 30), ([16] * 16, 62)])
def test_the_hops_one_after_the_other_are_four_roots(sizes: list[int], hops: int) -> None:
    places = places_of(sizes)
    job = Job(places, 1, 1, random.Random(1))
    job.run([[tuple(itertools.chain(*gathering(own, place)))] for own, place in enumerate(places)])
    job.run([[(spreading(own, place),)] for own, place in enumerate(places)])
    assert max(job.hops) == hops
