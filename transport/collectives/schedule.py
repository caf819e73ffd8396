"""The schedule of chunks in the ring all-reduce of large arrays. Pure.

Reduce-scatter, then all-gather: each of the `size` chunks travels once around the ring to be summed and once to be
handed out, so every client sends and receives 2 (size - 1) / size of the array whatever the size of the ring, and every
chunk is reduced in one order only: all clients get the same bits.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Exchange:
    """In one step, chunk `send` goes to the right while chunk `receive` comes from the left.

    `reduce` says whether what comes is added to what is there, or replaces it.
    """

    send: int
    receive: int
    reduce: bool


def chunk_bounds(length: int, size: int) -> list[tuple[int, int]]:
    """Return start and end of the `size` chunks of `length` elements: as equal as can be, the longer ones first."""
    short, longer = divmod(length, size)
    starts = [index * short + min(index, longer) for index in range(size + 1)]
    return list(itertools.pairwise(starts))


def steps(rank: int, size: int) -> Iterator[Exchange]:
    """Yield the steps of client `rank` in a ring of `size`."""
    for turn in range(size - 1):
        yield Exchange((rank - turn) % size, (rank - turn - 1) % size, reduce=True)
    for turn in range(size - 1):
        yield Exchange((rank + 1 - turn) % size, (rank - turn) % size, reduce=False)
