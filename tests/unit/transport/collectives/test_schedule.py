"""The schedule of chunks in the ring."""

from __future__ import annotations

import itertools

import pytest

from bringup.transport.collectives.schedule import chunk_bounds, steps

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
