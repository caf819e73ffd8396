"""Enumeration of the places of a machine by axis order, blocks and hosts. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...errors import ConfigurationError
from .axes import AXES, Extents, Int64Array

_HOST_CHIPS = (2, 2, 1)


def enumerate_places(
    extents: Extents, ring_bounds: Extents, ring_axes: Sequence[str], *, split_hosts: bool, ring_size: int
) -> Int64Array:
    """Return the location of every place, int64 `[places, 4]`.

    The cores of a block of `ring_bounds` follow one another; within it those of a host, where hosts are not split;
    within that the first of `ring_axes` runs fastest.

    Raises:
        ConfigurationError: hosts do not fit into rings or blocks, or the machine is not made of such blocks.
    """
    if extents[3] > 2:
        raise ConfigurationError(
            f"the machine of mesh_shape {list(extents)} has {extents[3]} cores on a chip, but rings are built of chips "
            "with 1 or 2"
        )
    host_bounds = (1, 1, 1, 1) if split_hosts else _host_bounds(extents)
    _check(extents, ring_bounds, host_bounds, ring_size)
    slowest_first = [AXES.index(axis) for axis in reversed(ring_axes)]
    places = np.empty((math.prod(extents), 4), np.int64)
    shape = [
        *(extents[axis] // ring_bounds[axis] for axis in slowest_first),
        *(ring_bounds[axis] // host_bounds[axis] for axis in slowest_first),
        *(host_bounds[axis] for axis in slowest_first),
    ]
    for position, axis in enumerate(slowest_first):
        digits = [size if dimension % 4 == position else 1 for dimension, size in enumerate(shape)]
        values = np.arange(extents[axis]).reshape(digits)
        places[:, axis] = np.broadcast_to(values, shape).reshape(-1)
    return places


def _host_bounds(extents: Extents) -> Extents:
    """Return the block of a host: 2x2x1 chips, or all of a machine of one or two cores."""
    return (*((1, 1, 1) if math.prod(extents) <= 2 else _HOST_CHIPS), extents[3])


def _check(extents: Extents, ring_bounds: Extents, host_bounds: Extents, ring_size: int) -> None:
    if ring_size < math.prod(host_bounds):
        raise ConfigurationError(
            f"rings of {ring_size} are too small for can_split_host_across_rings=False: a host has "
            f"{math.prod(host_bounds)} cores; let more of the mesh's dimensions make a ring (ring_dims), or split hosts"
        )
    if any(ring % host for ring, host in zip(ring_bounds, host_bounds, strict=True)):
        raise ConfigurationError(
            f"ring_bounds {list(ring_bounds)} should be multiples of a host's {list(host_bounds)} (x, y, z, core), as "
            "can_split_host_across_rings=False"
        )
    if any(extent % ring for extent, ring in zip(extents, ring_bounds, strict=True)):
        raise ConfigurationError(
            f"ring_bounds {list(ring_bounds)} do not divide the machine, whose mesh_shape is {list(extents)}"
        )
