"""Checks of device coordinates, and their conversion to one array. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import TopologyError
from .axes import Extents, Int32Array, Int64Array, place_numbers

_INTEGERS = "iu"


def flatten(device_coordinates: Any) -> tuple[Int64Array, Int64Array]:
    """Return the number of devices of each client, int64 `[n]`, and the coordinates of all, int64 `[D, 4]`.

    Args:
        device_coordinates: `[num_clients, devices_per_client, 4]`, or one `[devices, 4]` for each client.

    Raises:
        TopologyError: it is neither, it has no devices, or a coordinate is not a whole number.
    """
    try:
        whole = np.asarray(device_coordinates)
    except (ValueError, TypeError, OverflowError):  # unequal numbers of devices, or no numbers
        return _joined(device_coordinates)
    if whole.ndim == 3 and whole.shape[2] == 4 and whole.dtype.kind in _INTEGERS and whole.size:
        return np.full(whole.shape[0], whole.shape[1], np.int64), whole.astype(np.int64).reshape(-1, 4)
    if whole.ndim == 0:
        raise TopologyError(
            f"device_coordinates is {device_coordinates!r:.80}, not [num_clients, devices_per_client, 4]"
        )
    return _joined(device_coordinates)


def _joined(device_coordinates: Any) -> tuple[Int64Array, Int64Array]:
    try:
        per_client = list(device_coordinates)
    except TypeError:
        raise TopologyError(
            f"device_coordinates is {device_coordinates!r:.80}, not [num_clients, devices_per_client, 4]"
        ) from None
    clients = [_of_client(client_id, given) for client_id, given in enumerate(per_client)]
    counts = np.fromiter(map(len, clients), np.int64, len(clients))
    if not counts.sum():
        raise TopologyError("device_coordinates has no devices: give at least one [x, y, z, core]")
    return counts, np.concatenate(clients)


def _of_client(client_id: int, given: Any) -> Int64Array:
    try:
        coordinates = np.asarray(given)
    except (ValueError, TypeError, OverflowError):
        raise TopologyError(
            f"the coordinates of client {client_id} are rows of unequal lengths, not [devices, 4]"
        ) from None
    if coordinates.ndim and not len(coordinates):
        return np.empty((0, 4), np.int64)
    if coordinates.ndim != 2 or coordinates.shape[1] != 4:
        raise TopologyError(
            f"the coordinates of client {client_id} have shape {list(coordinates.shape)}, not [devices, 4]"
        )
    if coordinates.dtype.kind not in _INTEGERS:
        raise TopologyError(
            f"the coordinates of client {client_id} are not whole numbers of 64 bits: the first is "
            f"{coordinates[0].tolist()}"
        )
    return coordinates.astype(np.int64)


def owner(counts: npt.NDArray[np.integer[Any]], row: int) -> tuple[int, int]:
    """Return the client and the local index of the device in row `row` of all devices."""
    ends = np.cumsum(counts)
    client_id = int(np.searchsorted(ends, row, side="right"))
    return client_id, row - int(ends[client_id] - counts[client_id])


def by_client(
    counts: npt.NDArray[np.integer[Any]], locations: npt.NDArray[Any]
) -> npt.NDArray[Any] | list[npt.NDArray[Any]]:
    """Return the rows of each client: `[num_clients, devices_per_client, 4]`, or a list of unequal ones."""
    if len(counts) and (counts == counts[0]).all():
        return locations.reshape(len(counts), -1, 4)
    return np.split(locations, np.cumsum(counts)[:-1])


def check_within(extents: Extents, counts: Int64Array, coordinates: Int64Array) -> None:
    """Raise `TopologyError` where a device is outside the machine."""
    outside = ((coordinates < 0) | (coordinates >= np.array(extents))).any(axis=1)
    if outside.any():
        row = int(np.flatnonzero(outside)[0])
        client_id, index = owner(counts, row)
        raise TopologyError(
            f"device {index} of client {client_id} is at {coordinates[row].tolist()}, outside mesh_shape "
            f"{list(extents)} ({int(outside.sum())} such devices)"
        )


def sorted_places(extents: Extents, counts: Int64Array, coordinates: Int32Array) -> tuple[Int64Array, Int64Array]:
    """Return the numbers of the places that have a device, ascending, and the row of the device at each.

    Raises:
        TopologyError: two devices are in one place.
    """
    places = place_numbers(extents, coordinates)
    rows = np.argsort(places, kind="stable")
    places = places[rows]
    twice = np.flatnonzero(places[1:] == places[:-1])
    if twice.size:
        one, other = rows[twice[0]], rows[twice[0] + 1]
        (client, index), (other_client, other_index) = owner(counts, int(one)), owner(counts, int(other))
        raise TopologyError(
            f"device {index} of client {client} and device {other_index} of client {other_client} are both at "
            f"{coordinates[one].tolist()} ({twice.size} such places)"
        )
    return places, rows
