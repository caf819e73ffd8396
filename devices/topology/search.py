"""The search for the mesh with the fewest hops. Pure.

Searched are meshes in which every dimension has a grid of its own: each axis of the machine is split into factors, a
factor goes to a dimension, and the factors of an axis are nested within one another. The rings along one dimension then
all lie alike, so that one tour does for all of them, and its hops follow from the steps that it takes along each axis
and from how far apart the chips of the grid are there.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from itertools import islice

import numpy as np

from ...errors import ConfigurationError
from .axes import WRAPPABLE, Extents, Int64Array
from .hops import ring_steps
from .layout import RingOptions, lay_out
from .nesting import Nesting, nestings
from .splits import least_hops, splits
from .tours import closed_tours

_SPLITS_MAX = 20_000
"""Bound on the splits examined; only meshes of many dimensions have more."""

_NESTINGS_MAX = 80_000
"""Bound on the nestings tried, of the most promising splits first: a second or two of work."""


def search(extents: Extents, wrap: Collection[str], shape: tuple[int, ...], weights: tuple[float, ...]) -> Int64Array:
    """Return the place of each position of the mesh, row-major: int64 `[size, 4]`.

    Args:
        extents: the extent of the machine.
        wrap: its axes that wrap around.
        shape: of the mesh; its size is that of the machine.
        weights: how much a hop along each dimension counts.
    """
    rates = tuple(weight * (math.prod(shape) // size) for weight, size in zip(weights, shape, strict=True))
    found = _places(_best_nesting(extents, wrap, shape, rates))
    candidates = [*_of_dtensor(extents, shape), *_mirrored(found, extents, wrap)]
    return min(candidates, key=lambda places: _hops(places.reshape(*shape, 4), extents, wrap, weights))


def _of_dtensor(extents: Extents, shape: tuple[int, ...]) -> Iterator[Int64Array]:
    for across in (False, True):
        try:
            yield lay_out(extents, shape, RingOptions(build_ring_across_rings=across))
        except ConfigurationError:
            return  # of more cores on a chip than it knows


def _mirrored(places: Int64Array, extents: Extents, wrap: Collection[str]) -> Iterator[Int64Array]:
    """Yield the places as they are, and with the second half of each axis that wraps around turned over.

    The two ends of such an axis are neighbours, and so are then the two halves' first places, and so on inwards.
    """
    yield places
    for index, axis in enumerate(WRAPPABLE):
        if axis in wrap and extents[index] % 2 == 0:
            half = extents[index] // 2
            along = places[:, index]
            places = places.copy()
            places[:, index] = np.where(along < half, along, extents[index] + half - 1 - along)
            yield places


def _hops(places: Int64Array, extents: Extents, wrap: Collection[str], weights: tuple[float, ...]) -> tuple[float, int]:
    """Return the weighted hops of all rings, and the longest step, which decides between equals."""
    total, longest = 0.0, 0
    for dim, weight in enumerate(weights):
        steps = ring_steps(np.moveaxis(places, dim, -2), extents, wrap)
        total += weight * int(steps.sum())
        longest = max(longest, int(steps.max()))
    return total, longest


def _best_nesting(extents: Extents, wrap: Collection[str], shape: tuple[int, ...], rates: tuple[float, ...]) -> Nesting:
    bounded = sorted(
        (sum(rate * least_hops(grid, extents, wrap) for rate, grid in zip(rates, split, strict=True)), split)
        for split in islice(splits(extents, shape), _SPLITS_MAX)
    )
    best: Nesting | None = None
    left = _NESTINGS_MAX
    for bound, split in bounded:
        if best is not None and (bound >= best.hops or not left):
            break
        for nesting in islice(nestings(split, extents, wrap, rates), left):
            left -= 1
            if best is None or nesting.hops < best.hops:
                best = nesting
    assert best is not None, "the number of devices is the product of the extents, so that there is a split"
    return best


def _places(nesting: Nesting) -> Int64Array:
    """Return the place of each position: the sum of what each dimension contributes, row-major."""
    places = np.zeros((1, 4), np.int64)
    cores = 1
    for grid, strides, number in zip(nesting.split, nesting.strides, nesting.tours, strict=True):
        chips = next(islice(closed_tours(grid[:3]), number, None)) * strides
        offsets = np.zeros((len(chips), grid[3], 4), np.int64)
        offsets[..., :3] = chips[:, None]
        offsets[..., 3] = np.arange(grid[3]) * cores
        cores *= grid[3]
        places = (places[:, None] + offsets.reshape(1, -1, 4)).reshape(-1, 4)
    return places
