"""The job's table of devices: each client's part of the merge, and the checks of the result.

DTensor's merge adds up vectors of zeros in which each client has written its core ids at its own offset: a sum hides a
slot written twice and one never written. Here each client reports its devices, and everybody has all reports.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...devices.base import CoreLocation, LocalDevice
from ...devices.topology.coordinates import owner
from ...errors import TopologyError
from ...transport.wire.control import decode, encode
from ...transport.wire.form import MalformedMessageError
from ...transport.wire.messages import DeviceReport
from .device_claims import FINGERPRINT_COLUMNS, Shared, all_different, find_shared, hash_of
from .device_kinds import DeviceKinds, kinds_of, own_kinds
from .id_ranges import name_ids

Int32Array = npt.NDArray[np.int32]

_CORE_ID, _LOCATED = 0, 1
_LOCATION = slice(2, 6)
_FINGERPRINT = slice(6, 6 + FINGERPRINT_COLUMNS)
_SHARES = 6 + FINGERPRINT_COLUMNS
_COLUMNS = _SHARES + 1
_ROW = struct.Struct(f"<{_COLUMNS}i")
_POSITION = -1
"""For the core id of a device without one in hardware."""

_REPORTS_BYTES_MAX = 48 * 1024 * 1024
"""Of the reports of all clients, each of which may have an equal share; the roster has the rest of a message."""

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


def own_report(
    client_id: int,
    num_clients: int,
    device_type: str,
    devices: Sequence[LocalDevice],
    *,
    share_devices: bool = False,
) -> bytes:
    """Return the wire form of this client's part of the merge.

    With `share_devices`, other clients that say so too may have the same devices.

    Raises:
        TopologyError: a core id does not fit, or there are too many devices, or texts that are too long.
    """
    rows = b"".join(_own_row(client_id, *device, share_devices) for device in enumerate(devices))
    report = encode(DeviceReport(client_id, device_type, own_kinds(devices), rows))
    if len(report) > (most := _REPORTS_BYTES_MAX // num_clients):
        raise TopologyError(
            f"the {len(devices)} devices of client {client_id} take {len(report)} bytes in the merge, more than the "
            f"{most} that a client of a job of {num_clients} may take. A kind is the name of a model: its backend is "
            "broken."
        )
    return report


def _own_row(client_id: int, index: int, device: LocalDevice, share_devices: bool) -> bytes:
    core_id = _POSITION if device.core_id is None else device.core_id
    if device.core_id is not None and not 0 <= core_id <= _ID_MAX:
        raise TopologyError(
            f"device {index} of client {client_id} has core id {core_id}, which is not between 0 and {_ID_MAX}: "
            "its backend is broken"
        )
    location = (0, 0, 0, 0, 0) if device.location is None else (1, *device.location)
    return _ROW.pack(core_id, *location, *hash_of(device.fingerprint), share_devices)


class Reports:
    """The reports of all clients.

    Args:
        parts: their wire forms, in the order in which they were gathered.

    Attributes:
        counts: int32 `[num_clients]`, devices of each client.
        rows: int32 `[D, 9]`, ordered by client, then by local index.
        kinds: of all devices.

    Raises:
        TopologyError: one of them is none, or comes from another client than is due.
    """

    def __init__(self, parts: Sequence[bytes]) -> None:
        reports = [_report_of(client_id, part) for client_id, part in enumerate(parts)]
        self.counts = np.array([len(report.rows) // _ROW.size for report in reports], np.int32)
        rows = np.frombuffer(b"".join(report.rows for report in reports), "<i4")
        self.rows = rows.astype(np.int32, copy=False).reshape(-1, _COLUMNS)
        self.kinds = kinds_of(report.kinds for report in reports)
        self._types = [report.device_type for report in reports]

    def check(self, *, allow_empty: bool) -> None:
        """Check that all clients have devices of one type.

        Raises:
            TopologyError: they have different types of devices; or one has none; or, with `allow_empty`, all have none.
        """
        _check_types(self._types)
        empty = [client_id for client_id, count in enumerate(self.counts.tolist()) if count == 0]
        if len(empty) == self.counts.size:
            raise TopologyError("no client brought a device to the job. Look at the devices of their hosts.")
        if empty and not allow_empty:
            raise TopologyError(
                f"{name_ids(empty)} brought no devices to the job; every client must have at least one. "
                "Look at local_device_ids and at the devices of those hosts, or set allow_empty=True on every client."
            )

    def shared_device(self) -> Shared | None:
        """Return a device that two clients have brought up without sharing it; or `None`."""
        return find_shared(self.counts, self.rows[:, _FINGERPRINT], self.rows[:, _SHARES] == 1)

    def table(self) -> CoreTable:
        """Return the job's table.

        A device without a hardware id gets its position in the job as its core id.

        Raises:
            TopologyError: ids or locations are not unique; names the clients.
        """
        ids = self.rows[:, _CORE_ID]
        core_ids = np.where(ids == _POSITION, np.arange(len(ids), dtype=np.int32), ids)
        _check_unique(self.counts, core_ids[:, np.newaxis], "core id")
        locations = _locations(self.counts, self.rows)
        for array in (core_ids, locations):
            if array is not None:
                array.flags.writeable = False
        return CoreTable(self.counts, core_ids, locations, self._digest(), self.kinds)

    def _digest(self) -> bytes:
        merged = [part.astype("<i4").tobytes() for part in (self.counts, self.rows, self.kinds.which)]
        return hashlib.blake2b(b"".join([*merged, self.kinds.data]), digest_size=16).digest()


def _report_of(client_id: int, part: bytes) -> DeviceReport:
    try:
        message = decode(part)
    except MalformedMessageError as error:
        raise TopologyError(f"client {client_id} sent devices that cannot be read: {error}") from None
    if not isinstance(message, DeviceReport) or len(message.rows) % _ROW.size:
        raise TopologyError(f"client {client_id} sent something else than its devices: a {type(message).__name__}")
    if message.client_id != client_id:
        raise TopologyError(
            f"the merge has the devices of client {message.client_id} where those of client {client_id} are due: "
            "two processes act as one client, or one did not take part"
        )
    return message


def _check_types(types: list[str]) -> None:
    if len(set(types)) == 1:
        return
    clients: dict[str, list[int]] = {}
    for client_id, name in enumerate(types):
        clients.setdefault(name, []).append(client_id)
    camps = "; ".join(f"{name_ids(ids)} {'has' if len(ids) == 1 else 'have'} {name}" for name, ids in clients.items())
    raise TopologyError(
        f"the clients brought up different types of devices: {camps}. Give all of them the same device_type."
    )


def _locations(counts: Int32Array, rows: Int32Array) -> Int32Array | None:
    located = rows[:, _LOCATED] == 1
    if True not in located:
        return None
    if False in located:
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
