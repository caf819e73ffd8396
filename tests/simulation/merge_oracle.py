"""The merge of all devices, computed once for all clients by the shipped code."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bringup.devices.base import LocalDevice
from bringup.errors import TopologyError
from bringup.runtime.machines.core_table import CoreTable, counts_of, own_entry, own_rows, shares_of, table_of
from bringup.runtime.machines.device_kinds import own_kinds

Int32Array = npt.NDArray[np.int32]


class MergeOracle:
    """The merge of what all clients contribute, however it was brought together.

    Args:
        contributed: the devices of all clients with their ids, in the order in which they were gathered.

    Attributes:
        outcome: the table, or what is wrong with it.
    """

    def __init__(self, contributed: Sequence[tuple[int, Sequence[LocalDevice]]]) -> None:
        size = len(contributed)
        assert [client_id for client_id, _ in contributed] == list(range(size)), "gathered twice, or in another order"
        shares = [devices for _, devices in contributed]
        self._entries = own_entry(0, size, "SIM", len(shares[0]), own_kinds(shares[0]))
        for client_id, devices in enumerate(shares[1:], start=1):
            self._entries += own_entry(client_id, size, "SIM", len(devices), own_kinds(devices))
        counts = self._entries[:, 0]
        self._rows = own_rows(0, counts, shares[0])
        for client_id, devices in enumerate(shares[1:], start=1):
            self._rows += own_rows(client_id, counts, devices)
        divided = shares_of(self._entries)
        each = [divided.own_share(client_id, own_kinds(devices)) for client_id, devices in contributed]
        self._kinds = divided.kinds(np.sum(each, axis=0, dtype=np.uint8))
        self.outcome = self._outcome(self._rows)

    def garbled(self) -> CoreTable | TopologyError:
        """Return the table of a client with wrong core ids."""
        rows = self._rows.copy()
        rows[:, 0] += 1
        return self._outcome(rows)

    def _outcome(self, rows: Int32Array) -> CoreTable | TopologyError:
        try:
            return table_of(counts_of(self._entries), rows, self._kinds)
        except TopologyError as error:
            return error
