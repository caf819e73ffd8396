"""Scenarios: the settings of a job, its programs and its faults, drawn from one seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from bringup.runtime.machines.groups import Groups
from bringup.runtime.machines.phases import Phase
from bringup.transport.attempts import TroubleKind

from . import faults
from .dialling import SLOWLY, SWALLOWED
from .faults import Fault
from .group_faults import GroupFaults, draw_group_size
from .network import EVER, LAN, Latency

_LATENCIES = (
    LAN,
    Latency(0.0001, 0.002, loss=0.01),
    Latency(0.0001, 0.005, loss=0.05),
    Latency(0.005, 0.02),
    Latency(0.02, 0.08),
    Latency(0.0001, 0.15),
)
_PHASES = (Phase.RENDEZVOUS, Phase.DEVICES, Phase.RING, Phase.MERGE, Phase.COMMIT, Phase.READY, Phase.LEAVING)
_TROUBLES = (TroubleKind.UNANSWERED, TroubleKind.REFUSED, TroubleKind.BROKEN, SLOWLY, SWALLOWED)
_GROUP_FAULTS_SHARE = 0.6
"""Of the jobs with several groups, to which something happens that concerns these."""

_LIVES_FOR = 6.0
"""Time-outs for which such a job goes on: it is to find out what its groups hide."""

_WEIGHTS = (2, 1, 2, 2, 2, 6, 2)


@dataclass(frozen=True, slots=True)
class Moment:
    """`after` seconds after a client got into a phase, or after the beginning where there is no phase."""

    phase: Phase | None
    client: int
    after: float


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault and when it strikes."""

    moment: Moment
    fault: Fault


@dataclass(frozen=True, slots=True)
class BackendTrouble:
    """A client's devices take `seconds`, `None` for ever, and fail where there is an error."""

    seconds: float | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Step:
    """The program of every client once it is up: work for a while, then wait at a barrier.

    It is one of all clients, or of some.
    """

    barrier: str
    think: float
    timeout: float | None
    clients: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Traffic:
    """Calls on the key-value store.

    Attributes:
        calls: how many some clients make, one after the other.
        pause: the longest between two of them, in seconds.
        watches: the prefixes that some clients watch.
    """

    calls: dict[int, int]
    pause: float
    watches: dict[int, tuple[str, ...]]

    @property
    def clients(self) -> set[int]:
        """Return the clients that call, or watch."""
        return {*self.calls, *self.watches}


@dataclass(frozen=True, slots=True)
class Work:
    """The work of programs with progress reports before each of their steps; the others wait for them.

    Attributes:
        lap: seconds from one report to the next.
        toil: for how long some clients go on, in seconds.
        first: how long some take to their first report, in seconds.
        has_points: whether they come to preemption points.
    """

    lap: float
    toil: dict[int, float] = field(default_factory=dict)
    first: dict[int, float] = field(default_factory=dict)
    has_points: bool = False


@dataclass(slots=True)
class Scenario:
    """All of one run; durations in seconds.

    Attributes:
        spread: within what time the clients start.
        first_dials: how the first connects of some clients go.
        missing: the clients that are never started.
        late: those that start late, and when.
        stayers: those that never shut down on their own.
        stallers: those whose program hangs once they are up, and `stall_timeout` what the coordinator makes of that.
        group_size: the clients of a group, about; 0 for one group of all.
        work: what programs do that report their progress; `None` where they report none.
        traffic: what programs call on the key-value store.
        early: clients that shut down after so many steps, before the others.
        strict: the clients whose job is to fail where their devices become unhealthy.
        think: the longest that a client waits before it shuts down.
    """

    seed: int
    num_clients: int
    latency: Latency
    heartbeat_interval: float
    heartbeat_timeout: float
    initialization_timeout: float
    shutdown_timeout: float
    spread: float
    backend_max: float
    backends: dict[int, BackendTrouble] = field(default_factory=dict)
    first_dials: dict[int, tuple[TroubleKind | str, ...]] = field(default_factory=dict)
    missing: tuple[int, ...] = ()
    late: dict[int, float] = field(default_factory=dict)
    garblers: tuple[int, ...] = ()
    misprinters: tuple[int, ...] = ()
    has_disputed_cores: bool = False
    steps: tuple[Step, ...] = ()
    think: float = 0.0
    stayers: tuple[int, ...] = ()
    stallers: tuple[int, ...] = ()
    stall_timeout: float | None = None
    group_size: int = 0
    work: Work | None = None
    traffic: Traffic | None = None
    early: dict[int, int] = field(default_factory=dict)
    strict: tuple[int, ...] = ()
    plan: list[Planned] = field(default_factory=list)

    @property
    def settings(self) -> dict[str, float]:
        """Return the configuration of all clients."""
        return {
            "heartbeat_interval": self.heartbeat_interval,
            "heartbeat_timeout": self.heartbeat_timeout,
            "initialization_timeout": self.initialization_timeout,
            "shutdown_timeout": self.shutdown_timeout,
        }

    @property
    def horizon(self) -> float:
        """Return a generous bound on the end of the run."""
        work = Work(0.0) if self.work is None else self.work
        toil = max([0.0, *work.toil.values()]) + work.lap
        steps = (len(self.steps) + 1) * (toil + work.lap) + max([0.0, *work.first.values()])
        steps += sum(step.think + (step.timeout or 0.0) for step in self.steps)
        late = max(self.late.values(), default=0.0)
        life = self.spread + late + 3 * self.initialization_timeout + steps + self.think + self.shutdown_timeout
        return life + 8 * self.heartbeat_timeout + 30.0


def draw(seed: int, num_clients: int, group_size: int | None = None) -> Scenario:
    """Return the scenario of a seed; its groups are drawn, too, unless their size is given."""
    scenario = _Draw(random.Random(f"scenario {seed}"), seed, num_clients).scenario
    rng = random.Random(f"groups {seed}")
    drawn = draw_group_size(rng, num_clients)
    scenario.group_size = drawn if group_size is None else group_size
    groups = Groups(num_clients, scenario.group_size)
    if len(groups.leaders) > 1 and rng.random() < _GROUP_FAULTS_SHARE:
        scenario.steps += (Step("life of the groups", _LIVES_FOR * scenario.heartbeat_timeout, None),)
        first = rng.randrange(num_clients)
        for after, fault in GroupFaults(rng, groups, scenario.heartbeat_timeout).draw():
            scenario.plan.append(Planned(Moment(Phase.READY, first, after), fault))
    return scenario


class _Draw:
    def __init__(self, rng: random.Random, seed: int, num_clients: int) -> None:
        self.rng = rng
        self.num_clients = num_clients
        timeout = rng.choice([6.0, 10.0, 10.0, 20.0])
        self.scenario = Scenario(
            seed=seed,
            num_clients=num_clients,
            latency=rng.choice(_LATENCIES),
            heartbeat_interval=timeout / rng.uniform(3.5, 6.0),
            heartbeat_timeout=timeout,
            initialization_timeout=timeout * rng.uniform(1.2, 2.5),
            shutdown_timeout=rng.uniform(1.0, timeout),
            spread=rng.choice([0.0, 0.05, 0.5, 3.0]),
            backend_max=rng.choice([0.0, 0.01, 0.5, 2.0]),
        )
        self._draw_program()
        draws = [draw for draw, _ in _DRAWS.values()]
        weights = [weight for _, weight in _DRAWS.values()]
        for draw in rng.choices(draws, weights, k=rng.choice([0, 1, 1, 1, 1, 2, 2, 2, 3, 4])):
            draw(self)

    # What the clients do.

    def _draw_program(self) -> None:
        rng, timeout = self.rng, self.scenario.heartbeat_timeout
        steps = []
        for number in range(rng.choice([0, 1, 1, 2, 3])):
            limit = rng.choice([None, None, rng.uniform(0.1, timeout)])
            name = rng.choice(["step", f"step {number}"])
            some = self._some() if rng.random() < 0.2 else ()
            steps.append(Step(f"{name} of {some}" if some else name, rng.choice([0.0, 0.05, 1.0]), limit, some))
        self.scenario.steps = tuple(steps)
        self.scenario.think = rng.choice([0.0, 0.1, 1.0, 0.5 * timeout, 1.5 * timeout])
        if rng.random() < 0.08 and self.num_clients > 3:
            self.scenario.stayers = self._clients(rng.choice([1, 1, 3]))
        if rng.random() < 0.2:
            self._draw_work()
        if rng.random() < 0.6:
            self._draw_traffic()
        if rng.random() < 0.1:
            self.early()

    def _some(self) -> tuple[int, ...]:
        count = self.rng.randint(1, self.num_clients)
        return tuple(sorted(self.rng.sample(range(self.num_clients), count)))

    def _draw_traffic(self) -> None:
        """Few clients, whose calls meet, for about as long as the programs go on."""
        rng, scenario = self.rng, self.scenario
        scenario.think = max(scenario.think, rng.choice([0.0, 1.0]))
        calls = {client: rng.choice([10, 30, 60]) for client in self._clients(rng.choice([1, 3, 5]))}
        prefixes = rng.sample(["", "d", "n", "d/e", "w"], k=2)
        watches = {client: tuple(prefixes[: rng.randint(1, 2)]) for client in self._clients(rng.choice([0, 1, 3]))}
        lasting = scenario.think + sum(step.think for step in scenario.steps)
        scenario.traffic = Traffic(calls, max(0.001, lasting / max(calls.values())), watches)

    def _draw_work(self, *, some_toil: bool = False) -> None:
        """A stall timeout longer than any client thinks, and some that the others wait for, longer than that."""
        rng = self.rng
        longest = max([self.scenario.think, *(step.think for step in self.scenario.steps)])
        timeout = self.scenario.stall_timeout = 1.1 * longest + rng.uniform(0.5, self.scenario.heartbeat_timeout)
        toil, first = (
            {client: timeout * rng.uniform(0.5, 2.5) for client in self._clients(count)}
            for count in (rng.choice([some_toil, 1, 1, 2]), rng.choice([0, 0, 1]))
        )
        self.scenario.work = Work(timeout * rng.choice([0.1, 0.4, 0.8]), toil, first, some_toil or rng.random() < 0.6)

    # Whom, when, for how long.

    def _client(self) -> int:
        """Every client is as likely as another, but the coordinator's more so."""
        return 0 if self.rng.random() < 0.15 else self.rng.randrange(self.num_clients)

    def _clients(self, count: int) -> tuple[int, ...]:
        return tuple(sorted({self._client() for _ in range(count)}))

    def _seconds(self) -> float:
        """Shorter than the timeout, about as long, longer, or for ever."""
        timeout = self.scenario.heartbeat_timeout
        share = self.rng.choice([0.02, 0.2, 0.4, 0.6, 0.8, 1.0, 1.3, 2.0])
        return EVER if self.rng.random() < 0.15 else timeout * share * self.rng.uniform(0.9, 1.1)

    def _moment(self) -> Moment:
        rng = self.rng
        if rng.random() < 0.25:
            return Moment(None, 0, rng.uniform(0.0, self.scenario.spread + self.scenario.backend_max + 1.0))
        phase = rng.choices(_PHASES, _WEIGHTS)[0]
        lasting = self.scenario.think if phase is Phase.READY else 0.05
        return Moment(phase, self._client(), rng.choice([0.0, rng.uniform(0.0, 0.01), rng.uniform(0.0, lasting)]))

    def plan(self, fault: Fault, moment: Moment | None = None) -> None:
        self.scenario.plan.append(Planned(moment or self._moment(), fault))

    # What befalls them.

    def crash(self) -> None:
        rng = self.rng
        clients = self._clients(rng.choice([1, 1, 1, 1, 2, 5]))
        if rng.random() < 0.1:
            clients = tuple(range(1, self.num_clients))
        self.plan(faults.Crash(clients, rng.random() < 0.3, rng.random() < 0.2))

    def stop(self) -> None:
        clients = (0,) if self.rng.random() < 0.3 else self._clients(self.rng.choice([1, 1, 1, 3]))
        self.plan(faults.Stop(clients, self._seconds()))

    def sleep(self) -> None:
        self.plan(faults.Sleep(self.rng.choice([0.5, 3.0]) * self.scenario.heartbeat_timeout))

    def cut_off(self) -> None:
        way = self.rng.choice(["both ways", "to it", "from it"])
        self.plan(faults.CutOff(self.rng.randrange(1, self.num_clients), way, self._seconds()))

    def cut_between(self) -> None:
        rng, everybody = self.rng, list(range(self.num_clients))
        some = rng.sample(everybody, rng.choice([1, 1, min(2, self.num_clients - 1), max(1, self.num_clients // 3)]))
        others = [c for c in everybody if c not in some]
        if rng.random() < 0.5:
            others = [(some[0] + 1) % self.num_clients]
        self.plan(faults.CutBetween(tuple(some), tuple(others), rng.random() < 0.4, self._seconds()))

    def break_connection(self) -> None:
        rng, timeout = self.rng, self.scenario.heartbeat_timeout
        times, period = rng.choice([(1, 0.0), (1, 0.0), (5, 0.01), (10, timeout / 5)])
        count = rng.choice([1, 1, 3, self.num_clients])
        clients = tuple(range(1, self.num_clients)) if count == self.num_clients else self._clients(count)
        moment = None
        if rng.random() < 0.6:
            # Where what is said once is on its way.
            on_its_way = rng.uniform(0.0, 2 * self.scenario.latency.high)
            moment = Moment(rng.choice([Phase.RING, Phase.COMMIT, Phase.COMMIT, Phase.LEAVING]), clients[0], on_its_way)
        side = rng.choice(["both", "both", "client", "client", "host"])
        late = rng.choice([0.0, rng.uniform(0.0, 1.0), rng.uniform(0.0, 0.2 * timeout)])
        self.plan(faults.BreakConnection(clients, times, period, side, late), moment)

    def break_link(self) -> None:
        self.plan(faults.BreakLink(self._client()))

    def trouble_dials(self) -> None:
        """Mostly where everybody dials: at the beginning, and once the job has formed."""
        rng = self.rng
        troubles = tuple(rng.choice(_TROUBLES) for _ in range(rng.choice([1, 1, 2])))
        clients = self._clients(rng.choice([1, 3, self.num_clients]))
        self.plan(faults.TroubleDials(clients, troubles), self._moment_before_dials())

    def first_dials(self) -> None:
        """Before the coordinator has heard of them."""
        troubles = tuple(self.rng.choice([*_TROUBLES, SWALLOWED]) for _ in range(self.rng.choice([1, 1, 2])))
        self.scenario.first_dials = dict.fromkeys(self._clients(self.rng.choice([1, 3])), troubles)

    def lose_names(self) -> None:
        rng = self.rng
        clients = self._clients(rng.choice([1, 3, self.num_clients]))
        if rng.random() < 0.5:
            # What was known before has to do.
            moment = Moment(rng.choice([Phase.COMMIT, Phase.READY]), clients[0], 0.0)
            self.plan(faults.LoseNames(clients, 3 * self.scenario.heartbeat_timeout, rng.choice([0.0, 5.0])), moment)
            return self.plan(faults.BreakConnection(clients, 1, 0.0), replace(moment, after=0.01))
        seconds = rng.choice([0.1, 1.0, self._seconds()])
        fault = faults.LoseNames(clients, min(seconds, 3600.0), rng.choice([0.0, 0.0, 1.0, 5.0]))
        return self.plan(fault, self._moment_before_dials())

    def _moment_before_dials(self) -> Moment | None:
        rng = self.rng
        if rng.random() < 0.3:
            return None
        return Moment(None, 0, rng.choice([0.0, rng.uniform(0.0, self.scenario.spread + 0.05)]))

    def restart(self) -> None:
        rng = self.rng
        after = rng.choice([0.0, 0.01, 0.5, self.scenario.heartbeat_timeout])
        self.plan(faults.Restart(self._client(), rng.random() < 0.6, rng.random() < 0.5, after))

    def abort(self) -> None:
        error = self.rng.choice([KeyboardInterrupt("by hand"), SystemExit(3), ValueError("the program failed")])
        self.plan(faults.Abort(self._client(), error))

    def sicken(self) -> None:
        client = self._client()
        if self.rng.random() < 0.6:
            self.scenario.strict = self.rng.choice([(client,), tuple(range(self.num_clients))])
        self.plan(faults.Sicken(client), Moment(Phase.READY, self._client(), self.rng.choice([0.0, 0.1, 1.0])))

    def overload(self) -> None:
        """While the job comes up, for longer than a coordinator may be silent later."""
        rng, timeout = self.rng, self.scenario.heartbeat_timeout
        self.scenario.initialization_timeout *= rng.choice([1.0, 3.0])
        moment = Moment(rng.choice([Phase.RENDEZVOUS, Phase.RING, Phase.MERGE, Phase.COMMIT]), self._client(), 0.0)
        self.plan(faults.Overload(timeout * rng.choice([0.3, 1.2, 2.0]), timeout * rng.choice([1.0, 3.0])), moment)

    def preempt(self) -> None:
        """Mostly of a client that others wait for, which wait at a barrier, or in their shutdown."""
        rng = self.rng
        self._draw_work(some_toil=True)
        assert self.scenario.work is not None
        self.scenario.shutdown_timeout = max(self.scenario.shutdown_timeout, rng.choice([0.0, 10.0]))
        client = rng.choice([*self.scenario.work.toil, self._client()])
        phase = rng.choice([Phase.READY, Phase.LEAVING])
        moment = Moment(phase, self._client(), rng.choice([0.0, 0.01, 1.0, 5.0]))
        self.plan(faults.Preempt(client, rng.choice([0.0, 0.0, 10.0])), moment)

    def backend(self) -> None:
        rng, timeout = self.rng, self.scenario.initialization_timeout
        seconds = rng.choice([0.0, 0.01, 0.5, 0.9 * timeout, None])
        error = "no such chip" if seconds is not None and rng.random() < 0.7 else None
        self.scenario.backends[self._client()] = BackendTrouble(seconds, error)

    def missing(self) -> None:
        self.scenario.missing = self._clients(self.rng.choice([1, 1, 3]))

    def late(self) -> None:
        """Where the job comes up just in time, somebody may be stopped as it does."""
        share = self.rng.choice([0.3, 0.9, 0.99, 1.0, 1.1])
        self.scenario.late[self._client()] = share * self.scenario.initialization_timeout
        if self.rng.random() < 0.5:
            stop = faults.Stop(self._clients(1), self.rng.uniform(0.2, 0.6) * self.scenario.heartbeat_timeout)
            self.plan(stop, Moment(Phase.COMMIT, self._client(), self.rng.uniform(0.0, 0.01)))

    def stall(self) -> None:
        self._draw_work()
        self.scenario.stallers = self._clients(self.rng.choice([1, 1, 2]))

    def early(self) -> None:
        """Some programs have fewer steps than the others."""
        steps, stayers = len(self.scenario.steps), self.scenario.stayers
        leavers = [client for client in self._clients(self.rng.choice([1, 3])) if client not in stayers]
        self.scenario.early = {client: self.rng.randint(0, steps) for client in leavers}

    def garble(self) -> None:
        """Either the merge or the roster of a client goes wrong."""
        garbled = self._clients(1)
        if self.rng.random() < 0.5:
            self.scenario.garblers = garbled
        else:
            self.scenario.misprinters = garbled

    def dispute(self) -> None:
        self.scenario.has_disputed_cores = True


_DRAWS = {
    "Crash": (_Draw.crash, 20),
    "Stop": (_Draw.stop, 21),
    "Sleep": (_Draw.sleep, 3),
    "CutOff": (_Draw.cut_off, 14),
    "CutBetween": (_Draw.cut_between, 9),
    "BreakConnection": (_Draw.break_connection, 14),
    "BreakLink": (_Draw.break_link, 5),
    "TroubleDials": (_Draw.trouble_dials, 9),
    "FirstDials": (_Draw.first_dials, 5),
    "LoseNames": (_Draw.lose_names, 6),
    "Restart": (_Draw.restart, 8),
    "Abort": (_Draw.abort, 6),
    "Sicken": (_Draw.sicken, 6),
    "Overload": (_Draw.overload, 5),
    "Preempt": (_Draw.preempt, 8),
    "Backend": (_Draw.backend, 7),
    "Missing": (_Draw.missing, 3),
    "Late": (_Draw.late, 6),
    "Stall": (_Draw.stall, 3),
    "Garble": (_Draw.garble, 3),
    "DisputedCore": (_Draw.dispute, 1),
}
KINDS = (*_DRAWS, "Starve", "Stay", "Early", "Traffic", "Strict")
"""The faults by their names, and the defects that a job has from the beginning."""
