"""The merge of all devices, computed once for all clients by the shipped code."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bringup.devices.base import LocalDevice
from bringup.errors import TopologyError
from bringup.runtime.machines.core_table import CoreTable, counts_of, own_entry, own_rows, table_of

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
        self._entries = own_entry(0, size, "SIM", len(shares[0]))
        for client_id, devices in enumerate(shares[1:], start=1):
            self._entries += own_entry(client_id, size, "SIM", len(devices))
        counts = self._entries[:, 0]
        self._rows = own_rows(0, counts, shares[0])
        for client_id, devices in enumerate(shares[1:], start=1):
            self._rows += own_rows(client_id, counts, devices)
        self.outcome = _outcome(self._entries, self._rows)

    def garbled(self) -> CoreTable | TopologyError:
        """Return the table of a client with wrong core ids."""
        rows = self._rows.copy()
        rows[:, 0] += 1
        return _outcome(self._entries, rows)


def _outcome(entries: Int32Array, rows: Int32Array) -> CoreTable | TopologyError:
    try:
        return table_of(counts_of(entries), rows)
    except TopologyError as error:
        return error
