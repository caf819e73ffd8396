"""The merge of core ids: two all-reduces around the ring, where DTensor's TPU initialisation has one."""

from __future__ import annotations

from collections.abc import Sequence

from ...devices.base import LocalDevice
from ...transport.ring import Ring
from ..machines.core_table import CoreTable, counts_of, own_entry, own_rows, shared_device, table_of
from ..machines.device_claims import own_claims, shared_error


async def merge_devices(
    ring: Ring,
    client_id: int,
    num_clients: int,
    device_type: str,
    devices: Sequence[LocalDevice],
    *,
    hostname: str = "",
    share_devices: bool = False,
    allow_empty: bool = False,
) -> CoreTable:
    """Return the job's table of devices; the same on every client.

    First the type and the number of the devices of each client are merged, so that each knows that they fit and what
    its offset is, then the rows themselves.
    With `allow_empty` some clients may have none. Where two clients have brought up the same device, a third merge
    tells all of them what it is called, and on which hosts: `hostname` is this client's. With
    `share_devices` on both, they may have.

    Raises:
        TopologyError: the merged table is not sound, or two clients have brought up the same device.
        CollectiveMismatchError: the clients do not hold the same number of devices in mind.
    """
    entries = await ring.all_reduce(own_entry(client_id, num_clients, device_type, len(devices)))
    counts = counts_of(entries, allow_empty=allow_empty)
    rows = await ring.all_reduce(own_rows(client_id, counts, devices, share_devices=share_devices))
    if (shared := shared_device(counts, rows)) is not None:
        raise shared_error(shared, await ring.all_reduce(own_claims(client_id, hostname, devices, shared)))
    return table_of(counts, rows)
