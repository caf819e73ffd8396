"""The merge of core ids: two all-reduces around the ring, as DTensor's TPU initialisation does one."""

from __future__ import annotations

from collections.abc import Sequence

from ..devices.base import LocalDevice
from ..transport.ring import Ring
from .machines.core_ids import CoreTable, check_counts, own_counts, own_rows, table_of

__all__ = ["merge_devices"]


async def merge_devices(
    ring: Ring, client_id: int, num_clients: int, devices: Sequence[LocalDevice], *, allow_empty: bool = False
) -> CoreTable:
    """Return the job's table of devices; the same on every client.

    First the number of devices of each client is merged, so that each knows its offset, then the rows themselves.
    With `allow_empty` some clients may have none.

    Raises:
        TopologyError: the merged table is not sound.
        RingBrokenError: a neighbour went away.
        CollectiveMismatchError: the clients do not hold the same number of devices in mind.
    """
    counts = await ring.all_reduce(own_counts(client_id, num_clients, len(devices)))
    check_counts(counts, allow_empty=allow_empty)
    rows = await ring.all_reduce(own_rows(client_id, counts, devices))
    return table_of(counts, rows)
