"""Where the devices of a job are, and which device is where. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ...errors import ConfigurationError, TopologyError
from .axes import Extents, Int32Array, Int64Array, extents_of, place_numbers, wrap_of
from .coordinates import check_within, flatten, owner, sorted_places

_LISTED_MAX = 2**22
"""The most places without a device that are listed: 64 MiB."""


class Placement:
    """Where every device of a job sits: the data of a `Topology`, which says more, and look-ups in it."""

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
        """How many clients there are."""
        return len(self._counts)

    @property
    def num_devices(self) -> int:
        """How many devices there are in all."""
        return len(self._locations)

    @property
    def num_missing(self) -> int:
        """How many places of the machine have no device."""
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
        """Return which of all devices are a client's.

        Raises:
            ConfigurationError: there is no such client.
        """
        if not isinstance(client_id, int | np.integer) or not 0 <= client_id < self.num_clients:
            raise ConfigurationError(f"client_id is {client_id!r}; the clients are 0 to {self.num_clients - 1}")
        end = int(self._ends[int(client_id)])
        return slice(end - int(self._counts[int(client_id)]), end)

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

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Placement)
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


def by_client(
    counts: npt.NDArray[np.integer[Any]], locations: npt.NDArray[Any]
) -> npt.NDArray[Any] | list[npt.NDArray[Any]]:
    """Return the rows of each client: `[num_clients, devices_per_client, 4]`, or a list of unequal ones."""
    if len(counts) and (counts == counts[0]).all():
        return locations.reshape(len(counts), -1, 4)
    return np.split(locations, np.cumsum(counts)[:-1])


def _job(job: str | None) -> str:
    return "" if job is None else f"/job:{job}"
