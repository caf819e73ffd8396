"""The physical coordinates of all devices of a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import TopologyError

__all__ = ["Topology"]

Int32Array = npt.NDArray[np.int32]


class Topology:
    """Where every device of a job sits. Follows `tf.tpu.experimental.Topology`.

    Args:
        mesh_shape: the extent of the machine, `[x, y, z, core]`.
        device_coordinates: int32 `[num_clients, devices_per_client, 4]`; for clients with unequal numbers of devices, a
            sequence with one `[devices, 4]` for each client.

    Raises:
        TopologyError: the shapes are not these, or a coordinate is outside `mesh_shape`.
    """

    def __init__(self, mesh_shape: Sequence[int], device_coordinates: npt.ArrayLike | Sequence[npt.ArrayLike]) -> None:
        shape = np.array(mesh_shape, np.int32)
        if shape.shape != (4,) or (shape < 1).any():
            raise TopologyError(f"mesh_shape {list(mesh_shape)} is not four positive extents [x, y, z, core]")
        per_client = [np.array(one, np.int32) for one in device_coordinates]  # type: ignore[union-attr]
        for client_id, coordinates in enumerate(per_client):
            if coordinates.ndim != 2 or coordinates.shape[1] != 4:
                raise TopologyError(
                    f"the coordinates of client {client_id} have shape {list(coordinates.shape)}, not [devices, 4]"
                )
            if ((coordinates < 0) | (coordinates >= shape)).any():
                raise TopologyError(f"a coordinate of client {client_id} is outside mesh_shape {shape.tolist()}")
            coordinates.flags.writeable = False
        shape.flags.writeable = False
        self._mesh_shape = shape
        self._per_client = per_client

    @classmethod
    def of_locations(cls, counts: Int32Array, locations: Int32Array) -> Topology:
        """Return the topology of a merged table: int32 `[D, 4]` in client order, `counts` devices of each client."""
        return cls((locations.max(axis=0) + 1).tolist(), np.split(locations, np.cumsum(counts)[:-1]))

    @property
    def mesh_shape(self) -> Int32Array:
        """The extent of the machine, int32 `[4]`: x, y, z, core."""
        return self._mesh_shape

    @property
    def device_coordinates(self) -> Int32Array | list[Int32Array]:
        """int32 `[num_clients, devices_per_client, 4]`; where numbers of devices differ, a list with one for each."""
        if len({len(one) for one in self._per_client}) == 1:
            stacked = np.stack(self._per_client)
            stacked.flags.writeable = False
            return stacked
        return list(self._per_client)

    @property
    def num_clients(self) -> int:
        """How many clients there are."""
        return len(self._per_client)

    @property
    def num_devices(self) -> int:
        """How many devices there are in all."""
        return sum(len(one) for one in self._per_client)

    def to_json(self) -> dict[str, Any]:
        """Return `mesh_shape` and `device_coordinates` as lists."""
        return {
            "mesh_shape": self._mesh_shape.tolist(),
            "device_coordinates": [one.tolist() for one in self._per_client],
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Topology) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(str(self.to_json()))

    def __repr__(self) -> str:
        extents = "x".join(map(str, self._mesh_shape.tolist()))
        return f"<Topology {extents}, {self.num_devices} devices of {self.num_clients} clients>"
