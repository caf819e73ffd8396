"""Rings of cores in which each is next to its neighbours, in the orders of DTensor's TPU meshes. Pure.

Rings are locations, int64 `[num_rings, ring_size, 4]` (x, y, z, core).
"""

from __future__ import annotations

import numpy as np

from .axes import Int64Array


def order_rings(rings: Int64Array) -> Int64Array:
    """Return the cores of each ring in the order in which a ring visits them.

    The order found for the first ring is taken for all: equal positions of two rings then lie alike.
    """
    return rings[:, _order(rings[0], rotate=False)]


def order_rings_and_their_order(rings: Int64Array, *, rotate: bool) -> Int64Array:
    """Return ordered rings, in an order that makes a ring of their first cores as well.

    Args:
        rings: the cores of each ring.
        rotate: whether x and y change roles in the ring that the rings make.
    """
    rings = order_rings(rings)
    return rings[_order(rings[:, 0], rotate=rotate)]


def _order(ring: Int64Array, *, rotate: bool) -> Int64Array:
    """Return the order in which a ring visits cores `[ring_size, 4]`: int64 `[ring_size]`.

    Within a plane: from the first row on, rows are run through to and fro, with the first column left out, which is the
    way back. In more than one plane: each is run through in turn, every other one backwards, with the corner left out,
    along which the way back leads. Rows and planes are to or fro by their absolute number.
    """
    x, y, z, core = ring.T
    along, across = (y, x) if rotate else (x, y)
    first_column, first_row = along == along.min(), across == across.min()
    planes = z.min() != z.max()
    corner = planes & first_column & first_row
    way_back = first_column & ~first_row
    in_plane = (
        way_back,
        np.where(way_back, -across, across),
        np.where(across % 2 == 1, -along, along),
        core,
    )
    direction = np.where(planes & (z % 2 == 1), -1, 1)
    keys = [np.where(corner, 0, direction * key) for key in in_plane]
    keys[-1] = np.where(corner, core, keys[-1])
    return np.lexsort([*reversed(keys), np.where(corner, -z, z), corner])
