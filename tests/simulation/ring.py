"""The simulated rings: links between neighbours, and the merge that runs over them, with the roster.

Who sends what to whom, and when, is the schedule that ships; here it is carried out one hop at a time.
"""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from bringup.devices.base import LocalDevice
from bringup.errors import TopologyError
from bringup.runtime.machines.peer import events as ev
from bringup.runtime.machines.roster import Roster
from bringup.transport.attempts import Goal, Trouble, TroubleKind
from bringup.transport.collectives.schedule import Hop, RingOf, gathering, rings_of, spreading
from bringup.transport.wire.messages import MemberInfo, WatchMessage

from . import costs
from .dialling import Dial
from .merge_oracle import MergeOracle
from .network import Stream

if TYPE_CHECKING:
    from .process import Process
    from .world import World

Shares = list[tuple[int, Sequence[LocalDevice]]]

_CLOSED = "the other side closed the connection"
_RESET = "Connection reset by peer"
_UNACKNOWLEDGED_MAX = 10.0


class _Link:
    """From one peer to its right neighbour. Its bytes go one way, watch messages the other, its end both ways."""

    def __init__(self, opener: _Place, acceptor: _Place) -> None:
        self._opener = opener
        self._acceptor = acceptor
        network = opener.process.world.network
        self._there = Stream(network, opener.process.client_id, acceptor.process)
        self._back = Stream(network, acceptor.process.client_id, opener.process, sender=acceptor.process)
        self._back.put(opener.link_up, "right", self)
        self._there.put(acceptor.link_up, "left", self)

    def send(self, value: Any) -> None:
        """Bring a value to the right neighbour."""
        self._there.put(self._acceptor.take, value)
        if self._there.is_stuck:
            self._opener.process.later(_UNACKNOWLEDGED_MAX, self._give_up)

    def send_watch(self, message: WatchMessage) -> None:
        """Bring a watch message to the left neighbour."""
        self._back.put(self._opener.take_watch, message)

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


class _Place:
    """One client's place in one ring: it opens the link to its right neighbour, and accepts that of its left one.

    Attributes:
        links: those that stand, by side.
        came: values of the left neighbour that nothing has taken yet.
    """

    def __init__(self, end: RingEnd, of: RingOf, left: MemberInfo, right: MemberInfo) -> None:
        self.process = end.process
        self.end = end
        self.of = of
        self.left = left
        self.right = right
        self.links: dict[str, _Link] = {}
        self.came: deque[Any] = deque()
        self.could_not_open = False
        self.dial = Dial(
            end.process,
            Goal.LINK,
            right.client_id,
            lambda dial: end.rings.knock(self),
            is_wanted=lambda: not (end.is_closed or self.could_not_open or "right" in self.links),
            report=self._report,
            final=lambda trouble: self.link_broken("right", trouble.text),
        )

    def _report(self, trouble: Trouble) -> None:
        is_refused = trouble.kind is TroubleKind.REFUSED
        self.process.tell_peer(ev.LinkDelayed(self.right.client_id, trouble.text, is_refused))

    def link_up(self, side: str, link: _Link) -> None:
        """One of the two links stands."""
        if self.end.is_closed:
            return link.close(side)
        self.links[side] = link
        if side == "right":
            self.dial.worked()
        return self.end.link_up()

    def link_broken(self, side: str, cause: str) -> None:
        """A link ended, or the right one could not be opened."""
        self.could_not_open |= side == "right" and side not in self.links
        self.end.link_broken((self.left if side == "left" else self.right).client_id, cause)

    def take_watch(self, message: WatchMessage) -> None:
        """A watch message comes from the right neighbour."""
        self.process.work(costs.LINK_MESSAGE)
        self.process.tell_peer(ev.Watched(message))

    def take(self, value: Any) -> None:
        """A value comes from the left neighbour."""
        self.process.work(costs.HOP)
        self.came.append(value)
        self.end.go_on()


@dataclass(frozen=True, slots=True)
class _Collective:
    """A call of one client: the n-th of one meets the n-th of all others.

    Attributes:
        own: what this client contributes; those of a later one are added with `+=`.
        at_root: what client 0 hands out, of what it has gathered.
        done: told of what was handed out.
    """

    own: Any
    at_root: Callable[[Any], Any]
    done: Callable[[Any], None]


class RingEnd:
    """One client's links in all rings that it is in, and its part in what runs over them.

    Attributes:
        rings: of the job.
        is_closed: whether its links are ended.
    """

    def __init__(self, rings: SimulatedRing, process: Process, joined: ev.ConnectRing) -> None:
        self.process = process
        self.rings = rings
        self.is_closed = False
        self._joined = joined
        pairs = list(zip(joined.neighbours[::2], joined.neighbours[1::2], strict=True))
        own = process.client_id
        others = [(left, right) for left, right in pairs if left.client_id != own]
        kinds = rings_of(own, joined.place)
        self.places = {of: _Place(self, of, *pair) for of, pair in zip(kinds, others, strict=True)}
        self._is_linked = False
        self._breaks: list[ev.LinkBroken] = []
        self._calls: deque[_Collective] = deque()
        self._hops: deque[Hop] = deque()
        self._value: Any = None

    # Links.

    def open(self) -> None:
        """Look for the right neighbours."""
        for place in self.places.values():
            place.dial.attempt()
        if not self.places:
            self.process.later(0.0, self.link_up)

    def link_up(self) -> None:
        """One more link stands. The driver watches them once all do."""
        if self._is_linked or any(len(place.links) < 2 for place in self.places.values()):
            return
        self._is_linked = True
        self.process.tell_peer(ev.RingConnected(self._joined.tag))
        for event in self._breaks:
            self.process.tell_peer(event)

    def link_broken(self, client_id: int, cause: str) -> None:
        """The link with a neighbour ended, or could not be opened."""
        event = ev.LinkBroken(client_id, cause)
        self._breaks.append(event)
        could_not_open = any(place.could_not_open for place in self.places.values())
        if not self.is_closed and (could_not_open or self._is_linked):
            self.process.tell_peer(event)

    @property
    def is_linked(self) -> bool:
        """Whether all links stand, so that the driver watches them."""
        return self._is_linked and not self.is_closed

    def break_link(self, of: RingOf = RingOf.GROUP) -> None:
        """Break the link to the right neighbour in a ring."""
        self.places[of].links["right"].break_off()

    def send_watch(self, message: WatchMessage) -> None:
        """Send a watch message to the left neighbour in the group."""
        if self.is_linked:
            self.places[RingOf.GROUP].links["left"].send_watch(message)

    def close(self) -> None:
        """End all links."""
        self.is_closed = True
        for place in self.places.values():
            for side, link in place.links.items():
                link.close(side)

    # What runs over them.

    def merge(self, merge: ev.Merge) -> None:
        """Take part in the merge: client 0 hands out the devices of all, and the roster."""
        own = self.process.client_id

        def done(merged: tuple[Roster, MergeOracle]) -> None:
            # Not from within what the machine does now.
            self.process.later(0.0, self._merged, merge.tag, *merged)

        def handed_out(shares: Shares) -> tuple[Roster, MergeOracle]:
            assert len(shares) == self.rings.size, f"of {self.rings.size} clients {len(shares)} were gathered"
            return Roster(merge.roster), MergeOracle(shares)

        self._call(_Collective([(own, merge.devices)], handed_out, done))

    def _merged(self, tag: ev.Tag, roster: Roster, merged: MergeOracle) -> None:
        client_id, world = self.process.client_id, self.rings.world
        outcome = merged.garbled() if client_id in world.garblers else merged.outcome
        if isinstance(outcome, TopologyError):
            return self.process.tell_peer(ev.MergeFailed(tag, outcome))
        kept = misprinted(roster) if client_id in world.misprinters else roster
        return self.process.tell_peer(ev.Merged(tag, outcome, kept))

    def _call(self, call: _Collective) -> None:
        self._calls.append(call)
        if len(self._calls) == 1:
            self._begin()
        self.go_on()

    def _begin(self) -> None:
        own, place = self.process.client_id, self._joined.place
        self._hops.extend(itertools.chain(*gathering(own, place), (spreading(own, place),)))
        self._value = self._calls[0].own

    def go_on(self) -> None:
        """Take all hops of the first calls that can be taken."""
        while self._calls and not self.is_closed and self._is_linked:
            hop = self._hops[0]
            if hop.receive is not None and not self.places[hop.receive].came:
                return
            self._hops.popleft()
            if hop.receive is not None:
                self._take(self.places[hop.receive].came.popleft(), hop)
            elif not self._hops:
                self._value = self._calls[0].at_root(self._value)
            for of in hop.send:
                self.places[of].links["right"].send(self._value)
            if not self._hops:
                self._finish()

    def _take(self, value: Any, hop: Hop) -> None:
        if hop.add:
            value += self._value
        self._value = value

    def _finish(self) -> None:
        call, value = self._calls.popleft(), self._value
        if self._calls:
            self._begin()
        call.done(value)


def misprinted(roster: Roster) -> Roster:
    """Return a roster with one row wrong."""
    *others, last = roster
    return Roster.of([*others, replace(last, pid=last.pid + 1)])


class SimulatedRing:
    """The rings of one job."""

    def __init__(self, world: World, size: int) -> None:
        self.world = world
        self.size = size
        self._ends: dict[int, RingEnd] = {}
        self._callers: defaultdict[int, dict[_Place, None]] = defaultdict(dict)

    def join(self, process: Process, joined: ev.ConnectRing) -> None:
        """Open the links to the right neighbours, and accept the left ones'; all may join later."""
        end = process.ring_end = self._ends[process.incarnation] = RingEnd(self, process, joined)
        self._greet(process)
        end.open()

    def knock(self, caller: _Place) -> None:
        """Somebody asks for a link at its right neighbour's address."""
        neighbour = self.world.listener(caller.right.link_address)
        delay = self.world.network.delay()
        if neighbour is None:
            caller.process.later(delay, caller.dial.fail, TroubleKind.REFUSED)
        elif neighbour.incarnation != caller.right.incarnation:
            caller.process.later(delay, caller.dial.fail, TroubleKind.DENIED)
        else:
            self._callers[neighbour.incarnation][caller] = None
            neighbour.deliver(self._greet, neighbour)

    def _greet(self, process: Process) -> None:
        """Accept the left neighbours, once both sides have heard that the job has formed."""
        end = self._ends.get(process.incarnation)
        if end is None:
            return
        for caller in self._callers.pop(process.incarnation, ()):
            if not caller.end.is_closed:
                _Link(caller, end.places[caller.of])

    def leave(self, process: Process) -> None:
        """A process is gone: its neighbours see its links end, and so does one that waits for it to accept."""
        if process.ring_end is not None:
            process.ring_end.close()
        for caller in self._callers.pop(process.incarnation, ()):
            caller.process.later(self.world.network.delay(), caller.dial.fail, TroubleKind.BROKEN)
