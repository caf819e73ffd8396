"""A mesh: all devices of a job in a logical array with named dimensions. Pure."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ...errors import ConfigurationError
from .axes import Int32Array, Int64Array
from .hops import ring_steps

if TYPE_CHECKING:
    from .topology import Topology


class Mesh:
    """All devices of a job in an array with named dimensions, as one client sees it. Made by `Topology.mesh`.

    Positions are numbered row-major, as DTensor's global device ids are. Devices along a dimension make rings: the last
    is followed by the first.

    Args:
        topology: where the devices are.
        client_id: the client that sees it.
        shape: the size of each dimension.
        dim_names: the name of each dimension.
        device_ids: the device at each position, row-major: its row in the table of all devices, int `[size]`.
    """

    def __init__(
        self,
        topology: Topology,
        client_id: int,
        shape: tuple[int, ...],
        dim_names: tuple[str, ...],
        device_ids: Int64Array,
    ) -> None:
        self._topology = topology
        self._client_id = client_id
        self._dim_names = dim_names
        self._device_ids: Int32Array = device_ids.astype(np.int32).reshape(shape)
        self._device_ids.flags.writeable = False

    @property
    def topology(self) -> Topology:
        """The topology of the devices."""
        return self._topology

    @property
    def client_id(self) -> int:
        """The client whose devices are the local ones."""
        return self._client_id

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each dimension."""
        return self._device_ids.shape

    @property
    def dim_names(self) -> tuple[str, ...]:
        """The name of each dimension."""
        return self._dim_names

    @property
    def size(self) -> int:
        """The number of devices."""
        return self._device_ids.size

    @property
    def device_ids(self) -> Int32Array:
        """The device at each position: `Device.id`, read-only int32 of the mesh's shape."""
        return self._device_ids

    @cached_property
    def locations(self) -> Int32Array:
        """The location of the device at each position: read-only int32 `[*shape, 4]` (x, y, z, core)."""
        locations = self._topology.locations[self._device_ids]
        locations.flags.writeable = False
        return locations

    @property
    def local_device_ids(self) -> list[int]:
        """The position of each of this client's devices in the mesh, by local index; DTensor's local device ids."""
        found: list[int] = self._local_positions.tolist()
        return found

    @property
    def local_device_locations(self) -> list[dict[str, int]]:
        """The index of each of this client's devices in every dimension, by local index."""
        indices = np.stack(np.unravel_index(self._local_positions, self.shape), axis=-1).tolist()
        return [dict(zip(self._dim_names, index, strict=True)) for index in indices]

    @cached_property
    def _local_positions(self) -> Int64Array:
        own = self._topology.rows_of(self._client_id)
        positions = np.flatnonzero((self._device_ids >= own.start) & (self._device_ids < own.stop))
        return positions[np.argsort(self._device_ids.ravel()[positions])]

    def dim_size(self, name: str) -> int:
        """Return the size of a dimension.

        Raises:
            ConfigurationError: the mesh has no such dimension.
        """
        return self.shape[self._dim(name)]

    def neighbours(self, dim: str) -> Int32Array:
        """Return each device's neighbours in its ring along a dimension.

        Returns:
            int32 `[*shape, 2]`: the device before, and the one after.

        Raises:
            ConfigurationError: the mesh has no such dimension.
        """
        axis = self._dim(dim)
        return np.stack([np.roll(self._device_ids, step, axis=axis) for step in (1, -1)], axis=-1)

    def hops(self, *dims: str) -> Int64Array:
        """Return the links of the machine between each device and the next in its ring along `dims`.

        Where several dimensions are given, the ring runs through all of them, the last fastest. The cores of a chip are
        0 hops apart. Axes wrap around where the topology says so (`Topology.wrap`).

        Returns:
            int64 `[*others, ring_size]`: the sizes of the dimensions that are not given, then the devices of each ring.

        Raises:
            ConfigurationError: the mesh has no such dimension, one is given twice, or none is.
        """
        axes = [self._dim(dim) for dim in dims]
        if not axes or len(set(axes)) < len(axes):
            raise ConfigurationError(
                f"a ring runs along one or more different dimensions of the mesh, not {list(dims)}"
            )
        others = [axis for axis in range(len(self.shape)) if axis not in axes]
        rings = self.locations.transpose(*others, *axes, len(self.shape)).astype(np.int64)
        rings = rings.reshape(*(self.shape[axis] for axis in others), -1, 4)
        return ring_steps(rings, self._topology.extents, self._topology.wrap)

    def ring_hops(self, *dims: str) -> Int64Array:
        """Return the hops of each whole ring along `dims`, the last device back to the first too: int64 `[*others]`."""
        total: Int64Array = self.hops(*dims).sum(axis=-1)
        return total

    @cached_property
    def cost(self) -> int:
        """The hops of all rings along all dimensions."""
        return sum(int(self.hops(dim).sum()) for dim in self._dim_names)

    def _dim(self, name: str) -> int:
        if name not in self._dim_names:
            raise ConfigurationError(f"the mesh has no dimension {name!r}; it has {', '.join(self._dim_names)}")
        return self._dim_names.index(name)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Mesh)
            and (self._client_id, self._dim_names, self.shape) == (other._client_id, other._dim_names, other.shape)
            and np.array_equal(self._device_ids, other._device_ids)
            and self._topology == other._topology
        )

    def __hash__(self) -> int:
        return hash((self._client_id, self._dim_names, self.shape, self._device_ids.tobytes()))

    def __repr__(self) -> str:
        dims = ", ".join(f"{name}={size}" for name, size in zip(self._dim_names, self.shape, strict=True))
        return f"<Mesh {dims}, {self.size} devices, of client {self._client_id}>"
