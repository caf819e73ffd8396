"""The job's table of devices: each client's part of the merge, and the checks of the result.

The merge follows DTensor's: each client writes its core ids at its own offset into a vector of zeros, and the sum over
all clients is everybody's table. A sum of disjoint slots hides a slot written twice and one never written, so each row
carries how often it was written.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...devices.base import CoreLocation, LocalDevice
from ...devices.topology.coordinates import owner
from ...errors import TopologyError
from .device_claims import FINGERPRINT_COLUMNS, Shared, all_different, find_shared, hash_of
from .device_kinds import KIND_COLUMNS, DeviceKinds, KindShares, columns_of
from .id_ranges import name_ids

Int32Array = npt.NDArray[np.int32]

_CORE_ID, _WRITTEN, _LOCATED = 0, 1, 2
_LOCATION = slice(3, 7)
_FINGERPRINT = slice(7, 7 + FINGERPRINT_COLUMNS)
_SHARES = 7 + FINGERPRINT_COLUMNS
_COLUMNS = _SHARES + 1
_TYPE_BYTES_MAX = 16
"""Of a device type's name: longer names are compared by their beginning, and the merge stays one small message."""

_TYPE = slice(1, 1 + _TYPE_BYTES_MAX // 4)
_KINDS = slice(_TYPE.stop, _TYPE.stop + KIND_COLUMNS)

_ID_MAX = _PLACES_MAX = np.iinfo(np.int32).max


@dataclass(frozen=True, slots=True)
class CoreTable:
    """The merged table, ordered by client, then by local index; D devices of n clients.

    Attributes:
        counts: int32 `[n]`, devices of each client.
        core_ids: int32 `[D]`, read-only.
        locations: int32 `[D, 4]` (x, y, z, core), or `None` where devices have no location.
        digest: equal on two clients if and only if all of the above is, and the kinds are.
        kinds: of all devices.
    """

    counts: Int32Array
    core_ids: Int32Array
    locations: Int32Array | None
    digest: bytes
    kinds: DeviceKinds

    def location(self, row: int) -> CoreLocation | None:
        """Return the location of the device in row `row`."""
        return None if self.locations is None else CoreLocation(*map(int, self.locations[row]))


def own_entry(client_id: int, num_clients: int, device_type: str, num_devices: int, kinds: bytes) -> Int32Array:
    """Return this client's part of the first merge: int32 `[num_clients, 8]`: count, name of the type, kinds."""
    entries = np.zeros((num_clients, _KINDS.stop), np.int32)
    entries[client_id, 0] = num_devices
    name = device_type.encode()[:_TYPE_BYTES_MAX].ljust(_TYPE_BYTES_MAX, b"\0")
    entries[client_id, _TYPE] = np.frombuffer(name, "<i4")
    entries[client_id, _KINDS] = columns_of(kinds)
    return entries


def shares_of(entries: Int32Array) -> KindShares:
    """Return how the kinds of the devices are to be merged.

    Raises:
        TopologyError: see `KindShares`.
    """
    return KindShares(entries[:, _KINDS])


def counts_of(entries: Int32Array, *, allow_empty: bool = False) -> Int32Array:
    """Return the number of devices of each client, int32 `[num_clients]`, from the merged `entries`.

    Raises:
        TopologyError: the clients have different types of devices, told apart by the first 16 bytes of their names; or
            one has none; or, with `allow_empty`, all have none.
    """
    _check_types(entries[:, _TYPE])
    counts = entries[:, 0].copy()
    empty = np.flatnonzero(counts == 0)
    if empty.size == counts.size:
        raise TopologyError("no client brought a device to the job. Look at the devices of their hosts.")
    if empty.size and not allow_empty:
        raise TopologyError(
            f"{name_ids(empty.tolist())} brought no devices to the job; every client must have at least one. "
            "Look at local_device_ids and at the devices of those hosts, or set allow_empty=True on every client."
        )
    return counts


def _check_types(types: Int32Array) -> None:
    if (types == types[0]).all():
        return
    clients: dict[bytes, list[int]] = {}
    for client_id, name in enumerate(types.astype("<i4")):
        clients.setdefault(name.tobytes().rstrip(b"\0"), []).append(client_id)
    camps = "; ".join(
        f"{name_ids(ids)} {'has' if len(ids) == 1 else 'have'} {name.decode(errors='replace')}"
        for name, ids in clients.items()
    )
    raise TopologyError(
        f"the clients brought up different types of devices: {camps}. Give all of them the same device_type."
    )


def own_rows(
    client_id: int, counts: Int32Array, devices: Sequence[LocalDevice], *, share_devices: bool = False
) -> Int32Array:
    """Return this client's part of the second merge: int32 `[D, 10]`.

    A device without a hardware id gets its position in the job as its core id. With `share_devices`, other clients that
    say so too may have the same ones.

    Raises:
        TopologyError: a core id does not fit.
    """
    rows = np.zeros((int(counts.sum()), _COLUMNS), np.int32)
    offset = int(counts[:client_id].sum())
    for index, device in enumerate(devices):
        core_id = offset + index if device.core_id is None else device.core_id
        if not 0 <= core_id <= _ID_MAX:
            raise TopologyError(
                f"device {index} of client {client_id} has core id {core_id}, which is not between 0 and {_ID_MAX}: "
                "its backend is broken"
            )
        row = rows[offset + index]
        row[_CORE_ID], row[_WRITTEN] = core_id, 1
        if device.location is not None:
            row[_LOCATED], row[_LOCATION] = 1, device.location
        row[_FINGERPRINT], row[_SHARES] = hash_of(device.fingerprint), share_devices
    return rows


def shared_device(counts: Int32Array, rows: Int32Array) -> Shared | None:
    """Return a device that two clients have brought up without sharing it, from the merged `rows`; or `None`."""
    return find_shared(counts, rows[:, _FINGERPRINT], rows[:, _SHARES] == 1)


def table_of(counts: Int32Array, rows: Int32Array, kinds: DeviceKinds) -> CoreTable:
    """Return the table of the merged `rows`; `kinds` are those of all devices.

    Raises:
        TopologyError: a slot was not written exactly once, or ids or locations are not unique; names the clients.
    """
    wrong = np.flatnonzero(rows[:, _WRITTEN] != 1)
    if wrong.size:
        client_id, index = owner(counts, int(wrong[0]))
        raise TopologyError(
            f"the slot of device {index} of client {client_id} was written {int(rows[wrong[0], _WRITTEN])} times in "
            f"the merge ({wrong.size} such slots): two processes act as one client, or one did not take part"
        )
    _check_unique(counts, rows[:, [_CORE_ID]], "core id")
    locations = _locations(counts, rows)
    merged = [part.astype("<i4").tobytes() for part in (counts, rows, kinds.which)]
    digest = hashlib.blake2b(b"".join([*merged, kinds.data]), digest_size=16).digest()
    core_ids = rows[:, _CORE_ID].copy()
    for array in (core_ids, locations):
        if array is not None:
            array.flags.writeable = False
    return CoreTable(counts, core_ids, locations, digest, kinds)


def _locations(counts: Int32Array, rows: Int32Array) -> Int32Array | None:
    located = rows[:, _LOCATED] == 1
    if not located.any():
        return None
    if not located.all():
        without = {owner(counts, int(row))[0] for row in np.flatnonzero(~located)}
        raise TopologyError(
            f"devices of {name_ids(without)} have no location while others have one: "
            "the clients do not run the same kind of device"
        )
    locations = rows[:, _LOCATION].copy()
    _check_unique(counts, locations, "location")
    _check_extent(counts, locations)
    return locations


def _check_extent(counts: Int32Array, locations: Int32Array) -> None:
    """Raise `TopologyError` if the bounding box of all locations has more places than a topology can number."""
    extents = [int(largest) + 1 for largest in locations.max(axis=0)]
    if math.prod(extents) <= _PLACES_MAX:
        return
    axis = int(np.argmax(extents))
    row = int(locations[:, axis].argmax())
    client_id, index = owner(counts, row)
    raise TopologyError(
        f"device {index} of client {client_id} is at {tuple(locations[row].tolist())}: a machine that holds all "
        f"devices of the job then has the extents {extents}, more than {_PLACES_MAX} places. Its backend is broken, or "
        "the clients do not count coordinates from the same place"
    )


def _check_unique(counts: Int32Array, values: Int32Array, what: str) -> None:
    if all_different(values):
        return
    unique, first_rows, inverse = np.unique(values, axis=0, return_index=True, return_inverse=True)
    firsts = first_rows[np.ravel(inverse)]
    row = int(np.flatnonzero(firsts != np.arange(len(values)))[0])
    value = values[row].tolist()
    (one, one_index), (other, other_index) = owner(counts, int(firsts[row])), owner(counts, row)
    raise TopologyError(
        f"{what} {value[0] if len(value) == 1 else tuple(value)} is claimed twice: by device {one_index} of client "
        f"{one} and by device {other_index} of client {other} ({len(values) - len(unique)} such values): "
        "two clients drive the same device, or a backend is broken"
    )
