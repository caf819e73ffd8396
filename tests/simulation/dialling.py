"""Dialling between simulated processes: names, connects and time-outs. The shipped retry policy decides.

`transport.dial.reach` makes attempts as `Attempts` says and `transport.names` looks up as a `NameRecord` says; here
the same objects are asked, and the kernel, the resolver and the network are simulated.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from bringup.runtime.machines.session.limits import OPEN_TIMEOUT
from bringup.transport.attempts import CONNECT_TIMEOUT, Attempts, Goal, NameRecord, Trouble, TroubleKind

if TYPE_CHECKING:
    from .process import Process

SLOWLY = "slowly"
"""An outcome of a connect beside the kinds of trouble: it takes seconds, and works."""

SWALLOWED = "swallowed"
"""It works, but what is said over it is lost, either way, and its end, too."""

_ASKED_AGAIN = 1.0
"""Seconds after which the kernel asks once more for a connection."""

_SLOW_MAX = 2.0
# What proves a death is not made up here: such a network has no cure.
_MAY_BE_REFUSED = (Goal.COORDINATOR, Goal.LINK)
_OF_ALL = (Goal.COORDINATOR, Goal.SESSION)
_MAY_BE_SWALLOWED = (Goal.COORDINATOR, Goal.SESSION)


class Dials:
    """The known names of one process, and the faults of its next attempts to connect.

    Attributes:
        registration_patience: for how many seconds an answer to the next registration is waited for.
        no_names_until: until when no name can be looked up.
        lookup_seconds: how long a look-up that fails takes.
        troubles: how the next connects go.
        hindrances: from when until when something was in the way of a connect that was asked for.
        outages: from when until when no name could be looked up.
    """

    def __init__(self, registration_patience: float) -> None:
        self.registration_patience = registration_patience
        self.no_names_until = 0.0
        self.lookup_seconds = 0.0
        self.troubles: deque[TroubleKind | str] = deque()
        self.hindrances: list[tuple[float, float]] = []
        self.outages: list[tuple[float, float]] = []
        self.records: defaultdict[int, NameRecord] = defaultdict(NameRecord)
        self.waiting: defaultdict[int, list[Callable[[], None]]] = defaultdict(list)

    def lose_names(self, since: float, until: float, lookup_seconds: float) -> None:
        """Fail every look-up for a while."""
        self.no_names_until, self.lookup_seconds = max(self.no_names_until, until), lookup_seconds
        self.outages.append((since, until))


class Dial:
    """The attempts of one process to reach another.

    Attributes:
        goal: what for.

    Args:
        process: who dials.
        goal: what for.
        target: the number of the host.
        arrive: called at the other side when a connection is asked for there.
        is_wanted: whether it is still of use.
        report: told of trouble, whenever that changes.
        final: told of the trouble that ends it.
    """

    def __init__(
        self,
        process: Process,
        goal: Goal,
        target: int,
        arrive: Callable[[Dial], None],
        *,
        is_wanted: Callable[[], bool],
        report: Callable[[Trouble], None] = lambda trouble: None,
        final: Callable[[Trouble], None] = lambda trouble: None,
    ) -> None:
        self.process = process
        self.goal = goal
        self._target = target
        self._arrive = arrive
        self._is_wanted = is_wanted
        self._report = report
        self._final = final
        self._last: TroubleKind | None = None
        self._swallowed_since: float | None = None
        self._attempts = Attempts(goal, process.world.clock.now, process.world.num_clients if goal in _OF_ALL else 1)

    def attempt(self) -> None:
        """Try once."""
        if not self._is_wanted():
            return None
        dials, now = self.process.dials, self.process.world.clock.now
        record = dials.records[self._target]
        if record.begin(now):
            self._look_up(record, now)
        if record.hosts:
            return self._connect(now)
        if record.is_asking(now):
            return dials.waiting[self._target].append(self._looked_up)
        return self.fail(TroubleKind.UNRESOLVED)

    def worked(self) -> None:
        """Somebody who was looked for has answered."""
        record = self.process.dials.records[self._target]
        record.worked(record.hosts[0])

    def is_swallowed(self) -> bool:
        """Return whether the connection, which is made now, is of no use, and note for how long that hinders."""
        if self._swallowed_since is None:
            return False
        dials, world = self.process.dials, self.process.world
        patience = OPEN_TIMEOUT if self.goal is Goal.SESSION else dials.registration_patience
        dials.registration_patience *= 1 if self.goal is Goal.SESSION else 2
        dials.hindrances.append((self._swallowed_since, world.clock.now + patience + 4 * world.network.latency.worst))
        return True

    def fail(self, kind: TroubleKind) -> None:
        """An attempt has failed."""
        if not self._is_wanted():
            return None
        trouble = Trouble(kind, kind.value)
        delay = self._attempts.delay(kind, self.process.world.clock.now)
        if delay is None:
            return self._final(trouble)
        if kind is not self._last:
            self._last = kind
            self._report(trouble)
        return self.process.later(delay, self.attempt)

    def _look_up(self, record: NameRecord, now: float) -> None:
        dials = self.process.dials
        if now >= dials.no_names_until:
            return record.found((f"10.0.0.{self._target}",))
        if not dials.lookup_seconds:
            return record.failed("temporary failure in name resolution")
        return self.process.later(dials.lookup_seconds, self._lookup_failed, record)

    def _lookup_failed(self, record: NameRecord) -> None:
        record.failed("temporary failure in name resolution")
        waiting = self.process.dials.waiting.pop(self._target, [])
        for go_on in waiting:
            go_on()

    def _looked_up(self) -> None:
        if self.process.dials.records[self._target].hosts:
            return self._connect(self.process.world.clock.now)
        return self.fail(TroubleKind.UNRESOLVED)

    def _connect(self, began: float) -> None:
        process = self.process
        troubles = process.dials.troubles if process.client_id != self._target else ()
        if not troubles:
            return self._ask(began)
        trouble = process.dials.troubles.popleft()
        if trouble is TroubleKind.REFUSED and self.goal not in _MAY_BE_REFUSED:
            trouble = TroubleKind.BROKEN
        if trouble == SWALLOWED and self.goal not in _MAY_BE_SWALLOWED:
            trouble = TroubleKind.UNANSWERED
        world = process.world
        world.clock.note(process.name, f"dials client {self._target}: {trouble}")
        if trouble == SWALLOWED:
            self._swallowed_since = began
            return self._ask(began)
        seconds = world.network.delay()
        if trouble is TroubleKind.UNANSWERED:
            seconds = CONNECT_TIMEOUT
        elif isinstance(trouble, str):
            seconds = world.rng.uniform(0, _SLOW_MAX)
        process.dials.hindrances.append((began, began + seconds))
        if isinstance(trouble, str):
            return process.later(seconds, self._ask, began + seconds)
        return process.later(seconds, self.fail, trouble)

    def _ask(self, began: float) -> None:
        """Ask for a connection, as the kernel does: once more after a second, and then it is given up for a new one."""
        process, network = self.process, self.process.world.network
        now = process.world.clock.now
        if not network.is_cut_between(process.client_id, self._target):
            return process.world.clock.after(network.delay(), self._arrive, self)
        if now < began + _ASKED_AGAIN:
            return process.later(_ASKED_AGAIN, self._ask, began)
        return process.later(began + CONNECT_TIMEOUT - now, self._unanswered)

    def _unanswered(self) -> None:
        self.fail(TroubleKind.UNANSWERED)
