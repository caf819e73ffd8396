"""The layout of a mesh on a machine, after DTensor's `create_tpu_mesh`. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import ConfigurationError
from ..whole_numbers import as_whole_number
from .axes import AXES, Extents, Int64Array
from .enumeration import enumerate_places
from .rings import order_rings, order_rings_and_their_order

_DEFAULT_RING_AXES = ("core", "x", "y", "z")


@dataclass(frozen=True, slots=True)
class RingOptions:
    """Options for the rings of a mesh; `Topology.mesh` describes them."""

    ring_dims: int | None = None
    ring_axes: Sequence[str] | None = None
    ring_bounds: Sequence[int] | None = None
    can_split_host_across_rings: bool = True
    build_ring_across_rings: bool = False
    rotate_ring_across_rings: bool = False


def check_shape(shape: Any, dim_names: Any, num_devices: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the shape of a mesh and the names of its dimensions, d0, d1, ... where `dim_names` is `None`.

    Raises:
        ConfigurationError: a size is no number from 1, names are not unique or not as many as sizes, or the sizes do
            not multiply to the number of devices.
    """
    sizes = _whole_numbers(shape)
    if not sizes:
        raise ConfigurationError(f"shape is {shape!r}: give the size of each dimension of the mesh, from 1")
    names = [f"d{dim}" for dim in range(len(sizes))] if dim_names is None else _items(dim_names)
    if not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
        raise ConfigurationError(f"dim_names is {dim_names!r}: names of dimensions are texts, and all different")
    if len(names) != len(sizes):
        raise ConfigurationError(f"dim_names is {dim_names!r}, but shape {list(sizes)} has {len(sizes)} dimensions")
    if math.prod(sizes) != num_devices:
        raise ConfigurationError(
            f"a mesh of shape {list(sizes)} has {math.prod(sizes)} positions, but the job has {num_devices} devices"
        )
    return sizes, tuple(names)


def _items(value: Any) -> list[Any]:
    try:
        return [] if isinstance(value, str) else list(value)
    except TypeError:  # also of an array without dimensions, which says that it is iterable
        return []


def _whole_numbers(value: Any) -> tuple[int, ...]:
    """Return the numbers where all are whole and from 1, else none."""
    numbers = [as_whole_number(item) for item in _items(value)]
    checked = tuple(number for number in numbers if number is not None and number >= 1)
    return checked if len(checked) == len(numbers) else ()


def lay_out(extents: Extents, shape: tuple[int, ...], options: RingOptions) -> Int64Array:
    """Return the place of each position of the mesh, row-major: int64 `[size, 4]`.

    Raises:
        ConfigurationError: an option is malformed, or rings cannot be built as asked.
    """
    ring_size = _ring_size(shape, options.ring_dims)
    places = enumerate_places(
        extents,
        _ring_bounds(options.ring_bounds, extents),
        _ring_axes(options.ring_axes),
        split_hosts=options.can_split_host_across_rings,
        ring_size=ring_size,
    )
    rings = places.reshape(-1, ring_size, 4)
    if options.build_ring_across_rings:
        rings = order_rings_and_their_order(rings, rotate=options.rotate_ring_across_rings)
    else:
        rings = order_rings(rings)
    return rings.reshape(-1, 4)


def _ring_size(shape: tuple[int, ...], ring_dims: Any) -> int:
    count = 1 - len(shape) if ring_dims is None else as_whole_number(ring_dims)
    if count is None or not -len(shape) <= count <= len(shape):
        raise ConfigurationError(
            f"ring_dims is {ring_dims!r}; give how many leading dimensions of the mesh make a ring, or, below 0, how "
            f"many trailing ones: from {-len(shape)} to {len(shape)} for a mesh of shape {list(shape)}"
        )
    if count == 0:
        return 1
    return math.prod(shape[:count] if count > 0 else shape[count:])


def _ring_axes(ring_axes: Any) -> Sequence[str]:
    if ring_axes is None:
        return _DEFAULT_RING_AXES
    axes = _items(ring_axes)
    if sorted(map(str, axes)) != sorted(AXES):
        raise ConfigurationError(f"ring_axes is {ring_axes!r}; give x, y, z and core, the fastest first")
    return axes


def _ring_bounds(ring_bounds: Any, extents: Extents) -> Extents:
    if ring_bounds is None:
        return extents
    bounds = _whole_numbers(ring_bounds)
    if len(bounds) != 4:
        raise ConfigurationError(f"ring_bounds is {ring_bounds!r}; give four extents [x, y, z, core], from 1")
    if any(bound > extent for bound, extent in zip(bounds, extents, strict=True)):
        raise ConfigurationError(f"ring_bounds {list(bounds)} should be <= the machine's mesh_shape {list(extents)}")
    x, y, z, core = bounds
    return x, y, z, core
