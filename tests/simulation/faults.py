"""The faults of a simulation: crashes, stops, cuts, broken connections, restarts and others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from bringup.runtime.machines.id_ranges import COORDINATOR
from bringup.transport.attempts import TroubleKind

from . import bounds
from .network import EVER

if TYPE_CHECKING:
    from .process import Process
    from .world import World

_WAYS = ("both ways", "to it", "from it")


class Fault(Protocol):
    """A fault; the classes below are the kinds."""

    def strike(self, world: World) -> bool:
        """Carry it out; returns whether it changed anything."""
        ...


@dataclass(frozen=True, slots=True)
class Crash:
    """Processes die together, without a goodbye; where their hosts go down, too, nothing ends their connections."""

    clients: tuple[int, ...]
    with_reset: bool
    takes_host_down: bool

    def strike(self, world: World) -> bool:
        """See `Fault`."""
        victims = [process for client_id in self.clients if (process := world.current(client_id)) is not None]
        for victim in victims:
            if self.takes_host_down:
                _isolate(world, victim)
            victim.crash(with_reset=self.with_reset)
        return bool(victims)


def _isolate(world: World, victim: Process) -> None:
    world.network.cut({victim.client_id}, None)
    world.network.cut(None, {victim.client_id})


@dataclass(frozen=True, slots=True)
class Stop:
    """Processes stop, and go on after some time, or never."""

    clients: tuple[int, ...]
    seconds: float

    def strike(self, world: World) -> bool:
        """See `Fault`."""
        victims = [process for client_id in self.clients if (process := world.current(client_id)) is not None]
        for victim in victims:
            victim.stop()
            if self.seconds < EVER:
                world.clock.after(self.seconds, victim.resume)
            else:
                world.give_up_on(victim)
        return bool(victims)


@dataclass(frozen=True, slots=True)
class Sleep:
    """All processes stop, as those of one machine do that is suspended."""

    seconds: float

    def strike(self, world: World) -> bool:
        """See `Fault`."""
        victims = [process for process in world.running if process.has_begun and not process.is_stopped]
        for victim in victims:
            victim.stop()
            # Each wakes up at another moment, but all at once.
            world.clock.after(self.seconds + world.rng.uniform(0, 0.01), victim.resume)
        return bool(victims)


@dataclass(frozen=True, slots=True)
class CutOff:
    """A client's host and the coordinator's cannot talk; `way` is as the client sees it."""

    client: int
    way: str
    seconds: float

    def strike(self, world: World) -> bool:
        """See `Fault`."""
        victim = world.current(self.client)
        if victim is None or self.client == COORDINATOR:
            return False
        cuts = []
        if self.way != "to it":
            cuts.append(world.network.cut({self.client}, {COORDINATOR}, self.seconds))
        if self.way != "from it":
            cuts.append(world.network.cut({COORDINATOR}, {self.client}, self.seconds))
        bounds.process_is_silent(victim, lambda: all(cut.until == EVER for cut in cuts), "cut off", is_alive=True)
        return True


@dataclass(frozen=True, slots=True)
class CutBetween:
    """Some hosts and some others cannot talk."""

    some: tuple[int, ...]
    others: tuple[int, ...]
    one_way: bool
    seconds: float

    def strike(self, world: World) -> bool:
        """See `Fault`."""
        world.network.cut(set(self.some), set(self.others), self.seconds)
        if not self.one_way:
            world.network.cut(set(self.others), set(self.some), self.seconds)
        return True


@dataclass(frozen=True, slots=True)
class BreakConnection:
    """The connections of clients to the coordinator break, again and again, though nobody is hurt.

    Where one side alone is told at once, the other goes on to receive what is on its way, `late` seconds later.
    """

    clients: tuple[int, ...]
    times: int
    period: float
    side: str = "both"
    late: float = 0.0

    def strike(self, world: World) -> bool:
        """See `Fault`."""
        victims = [process for client_id in self.clients if (process := world.current(client_id)) is not None]
        broken = [victim for victim in victims if victim.break_connection(self.side, self.late)]
        if self.times > 1 and not world.is_calm:
            again = BreakConnection(self.clients, self.times - 1, self.period, self.side, self.late)
            world.clock.after(self.period, world.strike, again)
        return bool(broken)


@dataclass(frozen=True, slots=True)
class BreakLink:
    """The link from a client to its right neighbour breaks, though both live; of a leader, any of its links."""

    client: int

    def strike(self, world: World) -> bool:
        """See `Fault`."""
        left = world.current(self.client)
        if left is None or left.job is None or left.ring_end is None or not left.ring_end.is_linked:
            return False
        if not left.ring_end.places:
            return False
        of = world.rng.choice(list(left.ring_end.places))
        right = world.current(left.ring_end.places[of].right.client_id)
        if right is None or left.job is not right.job or right.ring_end is None:
            return False
        world.network.broken_links.update((left.client_id, right.client_id))
        if right.ring_end.is_linked:
            bounds.link_broke(left, right)
        left.ring_end.break_link(of)
        return True


@dataclass(frozen=True, slots=True)
class TroubleDials:
    """The next connects that clients ask for fail, or are slow, though nobody is hurt."""

    clients: tuple[int, ...]
    troubles: tuple[TroubleKind | str, ...]

    def strike(self, world: World) -> bool:
        """See `Fault`."""
        victims = [process for client_id in self.clients if (process := world.current(client_id)) is not None]
        for victim in victims:
            victim.dials.troubles.extend(self.troubles)
        return bool(victims)


@dataclass(frozen=True, slots=True)
class LoseNames:
    """No name can be looked up on the hosts of clients; a look-up takes so long to fail."""

    clients: tuple[int, ...]
    seconds: float
    lookup_seconds: float

    def strike(self, world: World) -> bool:
        """See `Fault`."""
        now = world.clock.now
        victims = [process for client_id in self.clients if (process := world.current(client_id)) is not None]
        for victim in victims:
            victim.dials.lose_names(now, now + self.seconds, self.lookup_seconds)
        return bool(victims)


@dataclass(frozen=True, slots=True)
class Restart:
    """A client is started once more, after it was killed or beside the one that lives."""

    client: int
    kills: bool
    reuses_port: bool
    after: float

    def strike(self, world: World) -> bool:
        """See `Fault`."""
        former = world.current(self.client)
        if former is None:
            return False
        if self.kills:
            former.crash()
        address = former.link_address if self.kills and self.reuses_port else ""
        world.start(self.client, at=world.clock.now + self.after, link_address=address)
        return True


@dataclass(frozen=True, slots=True)
class Abort:
    """A client's user gives up."""

    client: int
    error: BaseException

    def strike(self, world: World) -> bool:
        """See `Fault`."""
        victim = world.current(self.client)
        if victim is not None:
            victim.deliver(victim.abort, self.error)
        return victim is not None


@dataclass(frozen=True, slots=True)
class Sicken:
    """A client's devices say that they are not well, which is a failure only where it was asked for."""

    client: int

    def strike(self, world: World) -> bool:
        """See `Fault`."""
        victim = world.current(self.client)
        if victim is not None:
            victim.deliver(victim.sicken)
        return victim is not None


@dataclass(frozen=True, slots=True)
class Preempt:
    """A client gives a preemption notice, with a deadline in `deadline_in` seconds; this alone is no failure."""

    client: int
    deadline_in: float

    def strike(self, world: World) -> bool:
        """See `Fault`."""
        victim = world.current(self.client)
        if victim is not None:
            victim.deliver(victim.points.announce, self.deadline_in)
        return victim is not None


@dataclass(frozen=True, slots=True)
class Overload:
    """The coordinator's process handles its messages `lag` seconds late, until the job is up."""

    lag: float
    seconds: float

    def strike(self, world: World) -> bool:
        """See `Fault`."""
        host = world.current(COORDINATOR)
        if host is None or host.hosted is None or host.hosted.committed_at is not None or host.hosted.verdicts:
            return False
        host.overload(self.lag, self.seconds)
        return True


@dataclass(frozen=True, slots=True)
class Starve:
    """The coordinator's process handles its messages `lag` seconds late, while the job is up."""

    lag: float
    seconds: float

    def strike(self, world: World) -> bool:
        """See `Fault`."""
        host = world.current(COORDINATOR)
        if host is None or host.hosted is None or host.hosted.committed_at is None or host.hosted.verdicts or host.lag:
            return False
        host.overload(self.lag, self.seconds)
        return True
