"""The topology of a job: the coordinates of all devices, and their meshes. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from numbers import Real
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ...errors import ConfigurationError, TopologyError
from ..whole_numbers import as_whole_number
from . import proto
from .axes import Extents, Int32Array, Int64Array, extents_of, place_numbers, wrap_of
from .coordinates import by_client, check_within, flatten, owner, sorted_places
from .layout import RingOptions, check_shape, lay_out
from .mesh import Mesh
from .search import search

_LISTED_MAX = 2**22
"""The most places without a device that are listed: 64 MiB."""


class Topology:
    """The coordinates of every device of a job. Follows `tf.tpu.experimental.Topology`; immutable.

    Args:
        mesh_shape: the extent of the machine, `[x, y, z, core]`.
        device_coordinates: int32 `[num_clients, devices_per_client, 4]`; for clients with unequal numbers of devices, a
            sequence with one `[devices, 4]` for each client.
        wrap: the axes among x, y and z whose ends are joined by a link, as in a torus. Coordinates do not tell; where
            it is left out, none are.

    Raises:
        TopologyError: the shapes are not these, a coordinate is outside `mesh_shape`, or two devices are in one place.
    """

    def __init__(self, mesh_shape: Sequence[int], device_coordinates: Any, *, wrap: Iterable[str] = ()) -> None:
        self._extents = extents_of(mesh_shape)
        self._wrap = wrap_of(wrap)
        self._counts, coordinates = flatten(device_coordinates)
        check_within(self._extents, self._counts, coordinates)
        self._locations = _fixed(coordinates)
        self._places, self._rows = sorted_places(self._extents, self._counts, self._locations)

    @classmethod
    def of_locations(cls, counts: npt.NDArray[np.integer[Any]], locations: npt.NDArray[np.integer[Any]]) -> Self:
        """Return the topology of a merged table: int32 `[D, 4]` in client order, `counts` devices of each client."""
        return cls((locations.max(axis=0).astype(np.int64) + 1).tolist(), by_client(counts, locations))

    @property
    def mesh_shape(self) -> Int32Array:
        """The extent of the machine, read-only int32 `[4]`: x, y, z, core."""
        return _fixed(np.array(self._extents))

    @property
    def extents(self) -> Extents:
        """The extent of the machine as a tuple."""
        return self._extents

    @property
    def wrap(self) -> tuple[str, ...]:
        """The axes whose ends are joined by a link."""
        return self._wrap

    @property
    def device_coordinates(self) -> Int32Array | list[Int32Array]:
        """Read-only int32 `[num_clients, devices_per_client, 4]`; a list where numbers differ."""
        return by_client(self._counts, self._locations)

    @property
    def locations(self) -> Int32Array:
        """The coordinates of all devices in client order, then local order: read-only int32 `[num_devices, 4]`."""
        return self._locations

    @property
    def num_clients(self) -> int:
        """The number of clients."""
        return len(self._counts)

    @property
    def num_devices(self) -> int:
        """The number of devices of all clients."""
        return len(self._locations)

    @property
    def num_missing(self) -> int:
        """The number of places of the machine without a device."""
        return math.prod(self._extents) - self.num_devices

    @property
    def missing_devices(self) -> Int32Array:
        """The places of the machine that have no device: int32 `[num_missing, 4]`, core fastest, x slowest.

        Raises:
            TopologyError: there are too many to list; `num_missing` counts them.
        """
        if self.num_missing > _LISTED_MAX:
            raise TopologyError(
                f"{self.num_missing} places of the machine of mesh_shape {list(self._extents)} have no device, which "
                f"are too many to list ({_LISTED_MAX} at most); num_missing has their number"
            )
        # The k-th hole comes after those devices that have at most k holes before them.
        holes_before = self._places - np.arange(self.num_devices)
        numbers = np.arange(self.num_missing)
        numbers += np.searchsorted(holes_before, numbers, side="right")
        return np.stack(np.unravel_index(numbers, self._extents), axis=-1).astype(np.int32)

    @cached_property
    def _ends(self) -> Int64Array:
        return np.cumsum(self._counts)

    def rows_of(self, client_id: int) -> slice:
        """Return the rows of a client in the table of all devices.

        Raises:
            ConfigurationError: there is no such client.
        """
        number = as_whole_number(client_id)
        if number is None or not 0 <= number < self.num_clients:
            raise ConfigurationError(f"client_id is {client_id!r}; the clients are 0 to {self.num_clients - 1}")
        end = int(self._ends[number])
        return slice(end - int(self._counts[number]), end)

    def client_ids(self) -> Int64Array:
        """Return the client of each device: int64 `[num_devices]`."""
        return np.repeat(np.arange(self.num_clients), self._counts)

    def tpu_device_ordinal_at_coordinates(self, device_coordinates: Sequence[int]) -> int:
        """Return the local index of the device at `[x, y, z, core]` on its client, -1 where there is none.

        Raises:
            TopologyError: the place is outside the machine.
        """
        row = self._row_at(device_coordinates)
        return -1 if row < 0 else owner(self._counts, row)[1]

    def task_ordinal_at_coordinates(self, device_coordinates: Sequence[int]) -> int:
        """Return the client whose device is at `[x, y, z, core]`, -1 where there is none.

        Raises:
            TopologyError: the place is outside the machine.
        """
        row = self._row_at(device_coordinates)
        return -1 if row < 0 else owner(self._counts, row)[0]

    def tpu_device_name_at_coordinates(self, device_coordinates: Sequence[int], job: str | None = None) -> str:
        """Return TensorFlow's name of the device at `[x, y, z, core]`, as `/job:worker/task:1/device:TPU:3`.

        Raises:
            TopologyError: the place is outside the machine, or has no device.
        """
        client_id, index = self._owner_at(device_coordinates)
        return f"{_job(job)}/task:{client_id}/device:TPU:{index}"

    def cpu_device_name_at_coordinates(self, device_coordinates: Sequence[int], job: str | None = None) -> str:
        """Return TensorFlow's name of the CPU on the client of the device at `[x, y, z, core]`.

        For example `/job:worker/task:1/device:CPU:0`.

        Raises:
            TopologyError: the place is outside the machine, or has no device.
        """
        client_id, _ = self._owner_at(device_coordinates)
        return f"{_job(job)}/task:{client_id}/device:CPU:0"

    def _owner_at(self, device_coordinates: Sequence[int]) -> tuple[int, int]:
        if (row := self._row_at(device_coordinates)) < 0:
            raise TopologyError(
                f"there is no device at {list(device_coordinates)}, one of {self.num_missing} places that have none"
            )
        return owner(self._counts, row)

    def _row_at(self, device_coordinates: Sequence[int]) -> int:
        try:
            place = np.asarray(device_coordinates)
        except (ValueError, TypeError, OverflowError):  # a nested sequence of unequal lengths, or no numbers
            raise TopologyError(f"{device_coordinates!r:.80} is not a place [x, y, z, core]") from None
        if place.shape != (4,) or place.dtype.kind not in "iu" or ((place < 0) | (place >= self._extents)).any():
            raise TopologyError(
                f"{place.tolist()} is not a place [x, y, z, core] of the machine of mesh_shape {list(self._extents)}"
            )
        number = place_numbers(self._extents, place)
        found = int(np.searchsorted(self._places, number))
        if found == len(self._places) or self._places[found] != number:
            return -1
        return int(self._rows[found])

    def mesh(
        self,
        client_id: int,
        shape: Sequence[int],
        dim_names: Sequence[str],
        ring_dims: int | None = None,
        ring_axes: Sequence[str] | None = None,
        ring_bounds: Sequence[int] | None = None,
        can_split_host_across_rings: bool = True,
        build_ring_across_rings: bool = False,
        rotate_ring_across_rings: bool = False,
    ) -> Mesh:
        """Return a mesh of all devices, its rings in the orders of DTensor's `create_tpu_mesh`.

        Args:
            client_id: the client whose devices are the mesh's local ones.
            shape: the size of each dimension; their product is the number of devices.
            dim_names: the name of each dimension.
            ring_dims: how many leading (above 0) or trailing (below 0) dimensions make a ring together; 0: no rings are
                built. Default: all but the first.
            ring_axes: in which order axes are run through, the fastest first. Default: core, x, y, z.
            ring_bounds: the block of the machine, `[x, y, z, core]`, whose devices are taken before the next block's.
                Default: all of the machine.
            can_split_host_across_rings: `False` keeps the 2x2 chips of a host in one ring.
            build_ring_across_rings: order the rings so that they make a ring too.
            rotate_ring_across_rings: in that ring of rings, run along y first instead of x.

        Raises:
            ConfigurationError: an argument is malformed, or rings cannot be built as asked.
            TopologyError: some places of the machine have no device.
        """
        sizes, names = self._checked(client_id, shape, dim_names)
        options = RingOptions(
            ring_dims,
            ring_axes,
            ring_bounds,
            can_split_host_across_rings,
            build_ring_across_rings,
            rotate_ring_across_rings,
        )
        return self._mesh_of(client_id, sizes, names, lay_out(self._extents, sizes, options))

    def best_mesh(
        self,
        shape: Sequence[int],
        dim_names: Sequence[str] | None = None,
        *,
        client_id: int = 0,
        weights: Mapping[str, float] | None = None,
    ) -> Mesh:
        """Return the mesh whose rings have the fewest hops, of all that were searched.

        Searched are the ways to give the factors of the machine's axes to the mesh's dimensions, with closed tours in
        each; and what `mesh` makes by default, than which the result is never worse. Of very many ways, as for a mesh
        of ten dimensions, the most promising are looked at; that may take some seconds, and blocks.

        Args:
            shape: the size of each dimension; their product is the number of devices.
            dim_names: the name of each dimension. Default: d0, d1, ...
            client_id: the client whose devices are the mesh's local ones.
            weights: how much a hop along a dimension counts, for instance its share of the traffic; 1 where left out.
                What is made small is the weighted sum of the hops of all rings; without weights, `Mesh.cost`.

        Raises:
            ConfigurationError: an argument is malformed.
            TopologyError: some places of the machine have no device.
        """
        sizes, names = self._checked(client_id, shape, dim_names)
        places = search(self._extents, self._wrap, sizes, _weights({} if weights is None else weights, names))
        return self._mesh_of(client_id, sizes, names, places)

    def _checked(
        self, client_id: int, shape: Sequence[int], dim_names: Sequence[str] | None
    ) -> tuple[tuple[int, ...], tuple[str, ...]]:
        self.rows_of(client_id)
        checked = check_shape(shape, dim_names, self.num_devices)
        if self.num_missing:
            first = np.flatnonzero(self._places != np.arange(self.num_devices))
            hole = np.unravel_index(int(first[0]) if first.size else self.num_devices, self._extents)
            raise TopologyError(
                f"a mesh needs a device in every place of the machine, but {self.num_missing} of mesh_shape "
                f"{list(self._extents)} have none; the first is {[int(index) for index in hole]}"
            )
        return checked

    def _mesh_of(self, client_id: int, shape: tuple[int, ...], dim_names: tuple[str, ...], places: Int64Array) -> Mesh:
        device_ids = self._rows[place_numbers(self._extents, places)]
        return Mesh(self, client_id, shape, dim_names, device_ids)

    def to_proto(self) -> bytes:
        """Return the wire form of TensorFlow's `tpu.TopologyProto`, which does not hold `wrap`.

        Raises:
            TopologyError: the clients have unequal numbers of devices, which the form cannot say.
        """
        return proto.encode(self._extents, self._counts, self._locations)

    @classmethod
    def from_proto(cls, data: bytes) -> Self:
        """Return the topology that a serialized `tpu.TopologyProto` describes.

        Raises:
            TopologyError: the bytes are no such message, or what they say makes no sense.
        """
        return cls(*proto.decode(data))

    def to_json(self) -> dict[str, Any]:
        """Return `mesh_shape` and `device_coordinates` as lists, and `wrap` where an axis does."""
        per_client = by_client(self._counts, self._locations)
        return {
            "mesh_shape": list(self._extents),
            "device_coordinates": [one.tolist() for one in per_client],
            **({"wrap": list(self._wrap)} if self._wrap else {}),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the topology that `to_json` described.

        Raises:
            TopologyError: a key is missing, or what they say makes no sense.
        """
        for key in ("mesh_shape", "device_coordinates"):
            if not isinstance(value, Mapping) or key not in value:
                raise TopologyError(f"the description of a topology has no {key!r}")
        return cls(value["mesh_shape"], value["device_coordinates"], wrap=value.get("wrap", ()))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Topology)
            and (self._extents, self._wrap) == (other._extents, other._wrap)
            and np.array_equal(self._counts, other._counts)
            and np.array_equal(self._locations, other._locations)
        )

    def __hash__(self) -> int:
        return hash((self._extents, self._wrap, self._counts.tobytes(), self._locations.tobytes()))

    def __repr__(self) -> str:
        wrapping = f", wrapping around in {', '.join(self._wrap)}" if self._wrap else ""
        extents = "x".join(map(str, self._extents))
        clients = f"{self.num_clients} client{'s' * (self.num_clients != 1)}"
        return f"<Topology {extents}, {self.num_devices} devices of {clients}{wrapping}>"


def _fixed(numbers: npt.NDArray[np.integer[Any]]) -> Int32Array:
    copy = numbers.astype(np.int32)
    copy.flags.writeable = False
    return copy


def _job(job: str | None) -> str:
    return "" if job is None else f"/job:{job}"


def _weights(weights: Any, dim_names: Sequence[str]) -> tuple[float, ...]:
    if not isinstance(weights, Mapping):
        raise ConfigurationError(
            f"weights is {weights!r:.80}; give a number for some of {', '.join(dim_names)}, by name"
        )
    for name, weight in weights.items():
        if name not in dim_names:
            raise ConfigurationError(f"weights has {name!r}, which is no dimension: they are {', '.join(dim_names)}")
        if not (isinstance(weight, Real) and 0 <= float(weight) < math.inf):
            raise ConfigurationError(f"weights[{name!r}] is {weight!r}; give a number from 0")
    return tuple(float(weights.get(name, 1.0)) for name in dim_names)
