"""The merge of all devices, computed once for all clients by the shipped code."""

from __future__ import annotations

from collections.abc import Sequence

from bringup.devices.base import LocalDevice
from bringup.errors import TopologyError
from bringup.runtime.machines.core_table import CoreTable, Reports, own_report


class MergeOracle:
    """The merge of what all clients contribute, however it was brought together.

    Args:
        contributed: the devices of all clients with their ids, in the order in which they were gathered.

    Attributes:
        outcome: the table, or what is wrong with it.
    """

    def __init__(self, contributed: Sequence[tuple[int, Sequence[LocalDevice]]]) -> None:
        size = len(contributed)
        self._parts = [own_report(client_id, size, "SIM", devices) for client_id, devices in contributed]
        self.outcome = self._outcome(Reports(self._parts))

    def garbled(self) -> CoreTable | TopologyError:
        """Return the table of a client with wrong core ids."""
        reports = Reports(self._parts)
        reports.rows = reports.rows.copy()
        reports.rows[:, 0] += 1
        return self._outcome(reports)

    def _outcome(self, reports: Reports) -> CoreTable | TopologyError:
        try:
            reports.check(allow_empty=False)
            return reports.table()
        except TopologyError as error:
            return error
