"""The physical coordinates of all devices of a job, and the meshes that can be made of them. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, Self

import numpy as np

from ...errors import ConfigurationError, TopologyError
from . import wire
from .axes import Int64Array, place_numbers
from .layout import RingOptions, check_shape, lay_out
from .mesh import Mesh
from .placement import Placement, by_client
from .search import search


class Topology(Placement):
    """Where every device of a job sits. Follows `tf.tpu.experimental.Topology`; cannot be changed.

    Args:
        mesh_shape: the extent of the machine, `[x, y, z, core]`.
        device_coordinates: int32 `[num_clients, devices_per_client, 4]`; for clients with unequal numbers of devices, a
            sequence with one `[devices, 4]` for each client.
        wrap: the axes among x, y and z whose ends are joined by a link, as in a torus. Coordinates do not tell; where
            it is left out, none are.

    Raises:
        TopologyError: the shapes are not these, a coordinate is outside `mesh_shape`, or two devices are in one place.
    """

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
        return wire.encode(self._extents, self._counts, self._locations)

    @classmethod
    def from_proto(cls, data: bytes) -> Self:
        """Return the topology that a serialized `tpu.TopologyProto` describes.

        Raises:
            TopologyError: the bytes are no such message, or what they say makes no sense.
        """
        return cls(*wire.decode(data))

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
