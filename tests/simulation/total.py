"""What a merge comes to: computed by the code that ships, once for all clients, as it is the same for all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bringup.devices.base import LocalDevice
from bringup.errors import TopologyError
from bringup.runtime.machines.core_ids import CoreTable, check_counts, own_counts, own_rows, table_of

__all__ = ["Total"]

Int32Array = npt.NDArray[np.int32]


class Total:
    """The merge of what all clients contribute, in their order.

    Attributes:
        outcome: the table, or what is wrong with it.
    """

    def __init__(self, shares: Sequence[Sequence[LocalDevice]]) -> None:
        size = len(shares)
        self._counts: Int32Array = np.zeros(size, np.int32)
        for client_id, devices in enumerate(shares):
            self._counts += own_counts(client_id, size, len(devices))
        self._rows = own_rows(0, self._counts, shares[0])
        for client_id, devices in enumerate(shares[1:], start=1):
            self._rows += own_rows(client_id, self._counts, devices)
        self.outcome = _outcome(self._counts, self._rows)

    def garbled(self) -> CoreTable | TopologyError:
        """Return what a client makes of it that got other core ids."""
        rows = self._rows.copy()
        rows[:, 0] += 1
        return _outcome(self._counts, rows)


def _outcome(counts: Int32Array, rows: Int32Array) -> CoreTable | TopologyError:
    try:
        check_counts(counts)
        return table_of(counts, rows)
    except TopologyError as error:
        return error
