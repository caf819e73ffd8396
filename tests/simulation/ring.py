"""The simulated ring: links between neighbours, and the merge that runs over them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bringup.devices.base import LocalDevice
from bringup.errors import TopologyError
from bringup.runtime.machines import events as ev
from bringup.runtime.machines.core_ids import CoreTable, check_counts, own_counts, own_rows, table_of
from bringup.transport.messages import MemberInfo

if TYPE_CHECKING:
    from .process import Process
    from .world import World

__all__ = ["RingEnd", "SimulatedRing"]

Int32Array = npt.NDArray[np.int32]

_CLOSED = "the other side closed the connection"


class RingEnd:
    """One client's two links: it opens the right one, and accepts the left one."""

    def __init__(self, ring: SimulatedRing, process: Process, joined: ev.ConnectRing) -> None:
        self.process = process
        self.left = joined.left
        self.right = joined.right
        self.is_closed = False
        self._ring = ring
        self._tag = joined.tag
        self._links_up: set[str] = set()
        self._breaks: list[ev.LinkBroken] = []
        self._merging: ev.Tag | None = None

    def link_up(self, side: str) -> None:
        """One of the two links stands. The driver watches them once both do."""
        self._links_up.add(side)
        if len(self._links_up) == 2 and not self.is_closed:
            self.process.tell_peer(ev.RingConnected(self._tag))
            for event in self._breaks:
                self.process.tell_peer(event)

    def link_broken(self, side: str, cause: str) -> None:
        """A link ended, or the right one could not be opened."""
        event = ev.LinkBroken((self.left if side == "left" else self.right).client_id, cause)
        could_not_open = side == "right" and side not in self._links_up
        self._breaks.append(event)
        if not self.is_closed and (could_not_open or len(self._links_up) == 2):
            self.process.tell_peer(event)

    def merge(self, tag: ev.Tag, devices: Sequence[LocalDevice]) -> None:
        """Take part in the merge."""
        self._merging = tag
        self._ring.contribute(self.process, devices)

    def merged(self, outcome: CoreTable | TopologyError) -> None:
        """The merge is done here."""
        if self._merging is None or self.is_closed:
            return
        tag, self._merging = self._merging, None
        if isinstance(outcome, TopologyError):
            self.process.tell_peer(ev.MergeFailed(tag, outcome))
        else:
            self.process.tell_peer(ev.Merged(tag, outcome))

    def close(self) -> None:
        """End both links."""
        self.is_closed = True


class SimulatedRing:
    """The ring of one job."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ends: dict[int, RingEnd] = {}
        self._contributions: dict[int, Sequence[LocalDevice]] = {}

    def join(self, process: Process, joined: ev.ConnectRing) -> None:
        """Open the link to the right neighbour, and accept the left one's; both may join later."""
        end = self._ends[process.client_id] = process.ring_end = RingEnd(self, process, joined)
        if self._world.num_clients == 1:
            return process.tell_peer(ev.RingConnected(joined.tag))
        if self._world.listener(joined.right.link_address) is None:
            process.later(self._delay(), partial(end.link_broken, "right", "connection refused"))
        self._establish(end, self._ends.get(joined.right.client_id))
        return self._establish(self._ends.get(joined.left.client_id), end)

    def contribute(self, process: Process, devices: Sequence[LocalDevice]) -> None:
        """Once all have contributed, the sums go round to everybody."""
        self._contributions[process.client_id] = devices
        if len(self._contributions) < self._world.num_clients:
            return
        shares = sorted(self._contributions.items())
        counts: Int32Array = sum(own_counts(i, len(shares), len(devices)) for i, devices in shares)  # type: ignore[assignment]
        rows: Int32Array = sum(own_rows(i, counts, devices) for i, devices in shares)  # type: ignore[assignment]
        arrival = 0.0
        for client_id, _ in shares:
            arrival += self._delay()
            end = self._ends[client_id]
            end.process.later(arrival, partial(self._hand_out, end, counts, rows))

    def leave(self, process: Process) -> None:
        """The links of a process end: its neighbours see it, and so does one that waits for it to accept."""
        own = self._ends.get(process.client_id)
        if own is not None and own.process is process:
            own.close()
        for end in self._ends.values():
            for side, neighbour in (("left", end.left), ("right", end.right)):
                is_linked = side == "right" or (own is not None and own.process is process)
                if _is(neighbour, process) and end.process is not process and is_linked:
                    end.process.later(self._delay(), partial(end.link_broken, side, _CLOSED))

    def _hand_out(self, end: RingEnd, counts: Int32Array, rows: Int32Array) -> None:
        received = rows.copy()
        if end.process.client_id in self._world.garblers:
            received[:, 0] += 1
        try:
            check_counts(counts)
            end.merged(table_of(counts.copy(), received))
        except TopologyError as error:
            end.merged(error)

    def _establish(self, opener: RingEnd | None, acceptor: RingEnd | None) -> None:
        if opener is None or acceptor is None or opener.is_closed or acceptor.is_closed:
            return
        opener.process.later(self._delay(), partial(opener.link_up, "right"))
        acceptor.process.later(self._delay(), partial(acceptor.link_up, "left"))

    def _delay(self) -> float:
        return self._world.wire.delay() + self._world.wire.delay()


def _is(member: MemberInfo, process: Process) -> bool:
    return member.incarnation == process.incarnation
