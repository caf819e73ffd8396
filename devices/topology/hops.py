"""Distances between devices, in links of the machine. Pure."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from .axes import AXES, Extents, Int64Array


def hops_between(one: Int64Array, other: Int64Array, extents: Extents, wrap: Collection[str]) -> Int64Array:
    """Return how many links a message crosses between chips, int64 `[...]`; locations are int64 `[..., 4]`.

    Links join chips whose coordinates differ by one in one axis, and where an axis wraps around, its first and its last
    chips. The cores of one chip are 0 apart.
    """
    total = np.zeros(one.shape[:-1], np.int64)
    for index, axis in enumerate(AXES[:3]):
        apart = np.abs(one[..., index] - other[..., index])
        total += np.minimum(apart, extents[index] - apart) if axis in wrap else apart
    return total


def ring_steps(rings: Int64Array, extents: Extents, wrap: Collection[str]) -> Int64Array:
    """Return the links between each core of a ring and the next, the last and the first too: int64 `[..., ring_size]`.

    Args:
        rings: the locations of the cores, int64 `[..., ring_size, 4]`.
        extents: the extent of the machine.
        wrap: the axes that wrap around.
    """
    return hops_between(rings, np.roll(rings, -1, axis=-2), extents, wrap)
