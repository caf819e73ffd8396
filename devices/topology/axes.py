"""The four axes of a machine, and the numbering of its places. Pure."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import TopologyError

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
Extents = tuple[int, int, int, int]

AXES = ("x", "y", "z", "core")
WRAPPABLE = AXES[:3]
_PLACES_MAX = 2**31 - 1


def extents_of(mesh_shape: Any) -> Extents:
    """Return a `mesh_shape` as four whole numbers.

    Raises:
        TopologyError: it is not that, one of them is below 1, or it has more places than 32 bits can count.
    """
    try:
        given = np.asarray(mesh_shape)
    except (ValueError, TypeError, OverflowError):  # a nested sequence of unequal lengths, or no numbers
        given = np.empty(0)
    if given.shape != (4,) or given.dtype.kind not in "iu" or (given < 1).any():
        shown = given.tolist() if given.size else mesh_shape
        raise TopologyError(f"mesh_shape is {shown!r}, not four extents [x, y, z, core] that are whole numbers from 1")
    x, y, z, core = map(int, given)
    if math.prod((x, y, z, core)) > _PLACES_MAX:
        raise TopologyError(f"mesh_shape is {[x, y, z, core]}, which has more than {_PLACES_MAX} places for a device")
    return x, y, z, core


def wrap_of(axes: Any) -> tuple[str, ...]:
    """Return the names of the axes that wrap around, each once, in the order of `AXES`.

    Raises:
        TopologyError: one is not an axis of chips.
    """
    try:
        given = list(axes)
    except TypeError:  # also of an array without dimensions, which says that it is iterable
        given = [axes]
    for axis in given:
        if not isinstance(axis, str) or axis not in WRAPPABLE:
            raise TopologyError(f"wrap has {axis!r}, which is not an axis of chips; give some of x, y, z")
    return tuple(axis for axis in WRAPPABLE if axis in given)


def place_numbers(extents: Extents, coordinates: npt.NDArray[np.integer[Any]]) -> Int64Array:
    """Return the number of each place: coordinates `[..., 4]` to int64 `[...]`, core fastest, x slowest."""
    x, y, z, core = (coordinates[..., axis].astype(np.int64) for axis in range(4))
    return ((x * extents[1] + y) * extents[2] + z) * extents[3] + core
