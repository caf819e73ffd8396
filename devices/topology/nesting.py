"""The ways to nest the grids of a mesh's dimensions within the machine, for one split of its axes. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np

from .axes import WRAPPABLE, Extents
from .splits import Split
from .tours import Grid, closed_tours

Wrapped = tuple[bool, bool, bool]
Steps = tuple[int, int, int]
Choice = tuple[int, Steps]

_CHOICES_MAX = 64
"""Up to so many choices of tours, all are tried; of more, only those of a descent to a good one."""


@dataclass(frozen=True, slots=True)
class Nesting:
    """The arrangement of the dimensions' grids in the machine.

    Attributes:
        hops: the weighted hops of all rings.
        split: the extents of each dimension's grid.
        strides: for each dimension, how far apart its grid's chips are along x, y and z.
        tours: for each dimension, which of `closed_tours` it takes.
    """

    hops: float
    split: Split
    strides: tuple[Grid, ...]
    tours: tuple[int, ...]


def nestings(split: Split, extents: Extents, wrap: Collection[str], rates: tuple[float, ...]) -> Iterator[Nesting]:
    """Yield the nestings of a split that may be the cheapest.

    Args:
        split: the extents of each dimension's grid.
        extents: the extent of the machine.
        wrap: its axes that wrap around.
        rates: what one hop costs in each dimension: its weight times the number of its rings.
    """
    for outermost in _outermost(split, wrap):
        options = [_steps(grid[:3], _wrapped(dim, outermost)) for dim, grid in enumerate(split)]
        if math.prod(map(len, options)) <= _CHOICES_MAX:
            for choice in product(*options):
                yield _nested(split, rates, outermost, choice)
        else:
            yield from _descended(split, rates, outermost, options)


def _descended(
    split: Split, rates: tuple[float, ...], outermost: tuple[int | None, ...], options: Sequence[Sequence[Choice]]
) -> Iterator[Nesting]:
    """Yield ever cheaper nestings: one dimension after another takes another tour, as long as that helps."""
    chosen = [min(each, key=lambda option: sum(option[1])) for each in options]
    best = _nested(split, rates, outermost, tuple(chosen))
    yield best
    is_better = True
    while is_better:
        is_better = False
        for dim, each in enumerate(options):
            for option in each:
                tried = (*chosen[:dim], option, *chosen[dim + 1 :])
                yield (nesting := _nested(split, rates, outermost, tried))
                if nesting.hops < best.hops:
                    best, is_better = nesting, True
                    chosen[dim] = option


def _outermost(split: Split, wrap: Collection[str]) -> Iterator[tuple[int | None, ...]]:
    """Yield for x, y and z the dimension that goes all the way around, `None` where the axis does not wrap around."""
    around = [
        [dim for dim, grid in enumerate(split) if grid[index] > 1] if axis in wrap else []
        for index, axis in enumerate(WRAPPABLE)
    ]
    yield from product(*(dims or (None,) for dims in around))


def _wrapped(dim: int, outermost: tuple[int | None, ...]) -> Wrapped:
    x, y, z = (dim == other for other in outermost)
    return x, y, z


@lru_cache(maxsize=4096)
def _steps(grid: Grid, wrapped: Wrapped) -> tuple[Choice, ...]:
    """Return the tours of a grid that none other is better than: their number, and their steps along each axis."""
    found: dict[Steps, int] = {}
    for number, tour in enumerate(closed_tours(grid)):
        apart = np.abs(tour - np.roll(tour, -1, axis=0))
        around = np.where(wrapped, np.minimum(apart, np.array(grid) - apart), apart)
        x, y, z = map(int, around.sum(axis=0))
        found.setdefault((x, y, z), number)
    return tuple(
        (number, steps)
        for steps, number in found.items()
        if not any(other != steps and all(map(int.__le__, other, steps)) for other in found)
    )


def _nested(
    split: Split,
    rates: tuple[float, ...],
    outermost: tuple[int | None, ...],
    choice: tuple[Choice, ...],
) -> Nesting:
    total = 0.0
    strides = [[1, 1, 1] for _ in split]
    for axis in range(3):
        costs = [rate * steps[axis] for rate, (_, steps) in zip(rates, choice, strict=True)]
        stride = 1
        for dim in _inner_to_outer(split, axis, costs, outermost[axis]):
            strides[dim][axis] = stride
            total += costs[dim] * stride
            stride *= split[dim][axis]
    return Nesting(total, split, tuple((x, y, z) for x, y, z in strides), tuple(number for number, _ in choice))


def _inner_to_outer(split: Split, axis: int, costs: list[float], last: int | None) -> list[int]:
    """Return the dimensions on an axis in the order that costs least.

    With one dimension inside another, the outer one's steps are as many times longer as the inner one's factor: of two
    neighbours, that one belongs inside whose cost is the larger part of its factor less one.
    """
    dims = [dim for dim, grid in enumerate(split) if grid[axis] > 1]
    return sorted(dims, key=lambda dim: (dim == last, -costs[dim] / (split[dim][axis] - 1)))
