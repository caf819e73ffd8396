"""The simulated ring: links between neighbours, and what runs over them: the roster, then the merge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from bringup.devices.base import LocalDevice
from bringup.errors import TopologyError
from bringup.runtime.machines.peer import events as ev
from bringup.runtime.machines.roster import Roster
from bringup.transport.attempts import Goal, Trouble, TroubleKind

from .dialling import Dial
from .merge_oracle import MergeOracle
from .network import Stream

if TYPE_CHECKING:
    from .process import Process
    from .world import World

Shares = list[Sequence[LocalDevice]]

_CLOSED = "the other side closed the connection"
_RESET = "Connection reset by peer"
_UNACKNOWLEDGED_MAX = 10.0


class _Link:
    """From one peer to its right neighbour. Data goes one way, the end both ways."""

    def __init__(self, opener: RingEnd, acceptor: RingEnd) -> None:
        self._opener = opener
        self._acceptor = acceptor
        network = opener.process.world.network
        self._there = Stream(network, opener.process.client_id, acceptor.process)
        self._back = Stream(network, acceptor.process.client_id, opener.process)
        self._back.put(opener.link_up, "right", self)
        self._there.put(acceptor.link_up, "left", self)

    def send(self, shares: Shares | None, merged: MergeOracle | None) -> None:
        """Bring a step of the merge to the right neighbour."""
        self._put(self._acceptor.take, shares, merged)

    def send_roster(self, roster: Roster) -> None:
        """Bring the roster to the right neighbour."""
        self._put(self._acceptor.take_roster, roster)

    def _put(self, take: Callable[..., None], *content: Any) -> None:
        self._there.put(take, *content)
        if self._there.is_stuck:
            self._opener.process.later(_UNACKNOWLEDGED_MAX, self._give_up)

    def close(self, side: str) -> None:
        """The peer to which it is the `side` link ends it."""
        if side == "right":
            self._there.end(self._acceptor.link_broken, "left", _CLOSED)
        else:
            self._back.end(self._opener.link_broken, "right", _CLOSED)

    def break_off(self) -> None:
        """Something between the two ends it."""
        self._there.reset(self._acceptor.link_broken, "left", _RESET)
        self._back.reset(self._opener.link_broken, "right", _RESET)

    def _give_up(self) -> None:
        if self._there.is_stuck:
            process, acceptor = self._opener.process, self._acceptor.process
            process.world.network.broken_links.update((process.client_id, acceptor.client_id))
            self._there.drop()
            self._opener.link_broken("right", "Connection timed out")


class RingEnd:
    """One client's two links: it opens the right one, and accepts the left one."""

    def __init__(self, ring: SimulatedRing, process: Process, joined: ev.ConnectRing) -> None:
        self.process = process
        self.left = joined.left
        self.right = joined.right
        self.is_closed = False
        self._ring = ring
        self._tag = joined.tag
        self._links: dict[str, _Link] = {}
        self.dial = Dial(
            process,
            Goal.LINK,
            self.right.client_id,
            lambda dial: ring.knock(self),
            is_wanted=lambda: self._is_wanted,
            report=self._report,
            final=lambda trouble: self.link_broken("right", trouble.text),
        )
        self._could_not_open = False
        self._breaks: list[ev.LinkBroken] = []
        self._merging: ev.Tag | None = None
        self._devices: Sequence[LocalDevice] | None = None
        self._shares: Shares | None = None
        self._roster = Roster(joined.roster) if joined.roster else None

    # Links.

    def _report(self, trouble: Trouble) -> None:
        is_refused = trouble.kind is TroubleKind.REFUSED
        self.process.tell_peer(ev.LinkDelayed(self.right.client_id, trouble.text, is_refused))

    @property
    def _is_wanted(self) -> bool:
        return not (self.is_closed or self._could_not_open or "right" in self._links)

    def link_up(self, side: str, link: _Link) -> None:
        """One of the two links stands. The driver watches them once both do."""
        if self.is_closed:
            return link.close(side)
        self._links[side] = link
        if side == "right":
            self.dial.worked()
        if len(self._links) == 2:
            self.process.tell_peer(ev.RingConnected(self._tag))
            self._pass_roster_on()
            for event in self._breaks:
                self.process.tell_peer(event)
        return None

    def link_broken(self, side: str, cause: str) -> None:
        """A link ended, or the right one could not be opened."""
        event = ev.LinkBroken((self.left if side == "left" else self.right).client_id, cause)
        self._breaks.append(event)
        self._could_not_open |= side == "right" and side not in self._links
        if not self.is_closed and (self._could_not_open or len(self._links) == 2):
            self.process.tell_peer(event)

    @property
    def is_linked(self) -> bool:
        """Whether both links stand, so that the driver watches them."""
        return len(self._links) == 2 and not self.is_closed

    def break_link(self) -> None:
        """Break the link to the right neighbour."""
        self._links["right"].break_off()

    def close(self) -> None:
        """End both links."""
        self.is_closed = True
        for side, link in self._links.items():
            link.close(side)

    # The roster.

    def take_roster(self, roster: Roster) -> None:
        """The roster comes from the left neighbour."""
        self._roster = roster
        self._pass_roster_on()

    def _pass_roster_on(self) -> None:
        if self._roster is None or not self.is_linked:
            return
        roster, self._roster = self._roster, None
        own, world = self.process, self._ring.world
        if own.client_id != self._ring.size - 1:
            self._links["right"].send_roster(roster)
        kept = misprinted(roster) if own.client_id in world.misprinters else roster
        own.tell_peer(ev.RosterArrived(self._tag, kept))

    # The merge.

    def merge(self, tag: ev.Tag, devices: Sequence[LocalDevice]) -> None:
        """Take part in the merge: the sum goes along the ring from client 0 on, and its total once around."""
        self._merging, self._devices = tag, devices
        if self.process.client_id == 0:
            self._shares = []
        self._contribute()

    def take(self, shares: Shares | None, merged: MergeOracle | None) -> None:
        """A step of the merge comes from the left neighbour."""
        if merged is not None:
            return self._finish(merged)
        self._shares = shares
        return self._contribute()

    def _contribute(self) -> None:
        if self._shares is None or self._devices is None or self.is_closed:
            return
        shares, self._shares = self._shares, None
        shares.append(self._devices)
        if len(shares) == self._ring.size:
            self._finish(MergeOracle(shares))
        else:
            self._links["right"].send(shares, None)

    def _finish(self, merged: MergeOracle) -> None:
        if self._merging is None or self.is_closed:
            return
        if self._ring.size > 1 and self.process.client_id != self._ring.size - 2:
            self._links["right"].send(None, merged)
        tag, self._merging = self._merging, None
        is_garbled = self.process.client_id in self._ring.world.garblers
        outcome = merged.garbled() if is_garbled else merged.outcome
        event = ev.MergeFailed(tag, outcome) if isinstance(outcome, TopologyError) else ev.Merged(tag, outcome)
        # Not from within what the machine does now.
        self.process.later(0.0, self.process.tell_peer, event)


def misprinted(roster: Roster) -> Roster:
    """Return a roster with one row wrong."""
    *others, last = roster
    return Roster.of([*others, replace(last, pid=last.pid + 1)])


class SimulatedRing:
    """The ring of one job."""

    def __init__(self, world: World, size: int) -> None:
        self.world = world
        self.size = size
        self._ends: dict[int, RingEnd] = {}
        self._callers: dict[int, RingEnd] = {}

    def join(self, process: Process, joined: ev.ConnectRing) -> None:
        """Open the link to the right neighbour, and accept the left one's; both may join later."""
        end = process.ring_end = self._ends[process.incarnation] = RingEnd(self, process, joined)
        if self.size == 1:
            process.later(0.0, process.tell_peer, ev.RingConnected(joined.tag))
            return process.later(0.0, process.tell_peer, ev.RosterArrived(joined.tag, Roster(joined.roster)))
        self._greet(process)
        return end.dial.attempt()

    def knock(self, caller: RingEnd) -> None:
        """Somebody asks for a link at its right neighbour's address."""
        neighbour = self.world.listener(caller.right.link_address)
        delay = self.world.network.delay()
        if neighbour is None:
            caller.process.later(delay, caller.dial.fail, TroubleKind.REFUSED)
        elif neighbour.incarnation != caller.right.incarnation:
            caller.process.later(delay, caller.dial.fail, TroubleKind.DENIED)
        else:
            self._callers[neighbour.incarnation] = caller
            neighbour.deliver(self._greet, neighbour)

    def _greet(self, process: Process) -> None:
        """Accept the left neighbour, once both have heard that the job has formed."""
        end = self._ends.get(process.incarnation)
        if end is not None and (caller := self._callers.pop(process.incarnation, None)) and not caller.is_closed:
            _Link(caller, end)

    def leave(self, process: Process) -> None:
        """A process is gone: its neighbours see its links end, and so does one that waits for it to accept."""
        if process.ring_end is not None:
            process.ring_end.close()
        caller = self._callers.pop(process.incarnation, None)
        if caller is not None:
            caller.process.later(self.world.network.delay(), caller.dial.fail, TroubleKind.BROKEN)
