"""The trials of all scenarios: the plan of one run, and its course in the host.

The command draws a trial and sends it to a host as JSON. The modules of clients and trials import neither rich nor
each other's libraries: a forked client has what its host has imported.
"""

from __future__ import annotations

import signal
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .process_group import Ended, ProcessGroup, RunFailed
from .scale.figures import Measured, spread, subtract
from .services.figures import Kind, Task, evaluate
from .usage import anonymous_bytes, processor_seconds
from .worker import LAST_MESSAGE, Assignment

READY_TIMEOUT = 600.0
"""Seconds for the imports of all clients: a cold page cache and many fresh interpreters take minutes."""

_WATCH_TIMEOUT = 120.0
"""Seconds for a step of a job beside a load on every core; a second without one."""


_SETTLE_SECONDS = 1.0
"""From when the last client is up until a job counts as idle: an interval of the heartbeats."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The value of a trial, as JSON has it, or the reason why there is none."""

    value: Any = None
    failure: str | None = None


@dataclass(frozen=True, kw_only=True)
class Trial(ABC):
    """One run of a group of clients.

    Attributes:
        ports: A free loopback port per client, in client order.
        order: The ids of the clients that are started, in the order in which their processes are.
        timeout: Seconds for each step.
        early: The clients with a gate of their own, which opens first.
    """

    ports: Sequence[int]
    order: Sequence[int]
    timeout: float
    early: Sequence[int] = ()

    @property
    def fresh(self) -> Collection[int]:
        """The clients that are fresh interpreters though the others are forked."""
        return ()

    def orders(self, client_id: int) -> Mapping[str, Any]:
        """The orders of one client, for JSON."""
        return {}

    @abstractmethod
    def conduct(self, clients: ProcessGroup) -> Any:
        """Take clients that stand at their gates through the trial; returns its value, for JSON.

        Raises:
            RunFailed: it did not get to its end.
        """


def carry_out(program: str, trial: Trial, fork: bool, lifeline: int | None = None) -> Outcome:
    """Carry one trial out in this process.

    Args:
        program: `module:attribute` of the clients' `Program`.
        trial: The trial.
        fork: Whether the clients are forked from this process, which must have one thread then.
        lifeline: See `ProcessGroup`.
    """
    ports = tuple(trial.ports)  # one for all clients
    assignments = [Assignment(one, ports, trial.orders(one)) for one in trial.order]
    fresh = trial.fresh if fork else trial.order
    with ProcessGroup(program, assignments, early=trial.early, fresh=fresh, lifeline=lifeline) as clients:
        try:
            clients.start()
            clients.hear("ready", READY_TIMEOUT)
            return Outcome(trial.conduct(clients))
        except RunFailed as failure:
            return Outcome(failure=str(failure))


@dataclass(frozen=True, kw_only=True)
class StartupTrial(Trial):
    """The time and the processor time from the release of the clients until the last has returned.

    Attributes:
        offset: Seconds from the release of the early clients to that of the others, from which the time counts.
    """

    offset: float = 0.0
    timeout: float = 60.0

    def conduct(self, clients: ProcessGroup) -> dict[str, float | None]:
        """Returns the `seconds`, and the `processor` seconds of a client, `None` where they cannot be read."""
        used = clients.measure(processor_seconds)
        released_at = clients.release(self.offset)
        last: float = max(clients.hear("returned", self.timeout).values())
        used = subtract(clients.measure(processor_seconds), used)
        clients.dismiss()
        clients.hear(LAST_MESSAGE, self.timeout)
        return {"seconds": last - released_at, "processor": statistics.fmean(used.values()) if used else None}


@dataclass(frozen=True, kw_only=True)
class FaultTrial(Trial):
    """A fault in a job whose clients are all in one phase, and the notice that each survivor gets.

    Attributes:
        kind: The fault's; see `Fault`.
        phase: The phase of all clients at the fault.
        victim: The client that the fault hits.
        pause: Seconds from when all are in position until the fault.
        options: Those of `initialize()`.
        environment: Variables that the clients add to their environment.
        patience: Seconds from the fault until a survivor without a notice counts as hung.
        may_end: Whether the end of a survivor's process is its notice, as with other libraries.
    """

    kind: str
    phase: str
    victim: int
    pause: float
    options: Mapping[str, float]
    environment: Mapping[str, str]
    patience: float
    may_end: bool = False

    @property
    def survivors(self) -> tuple[int, ...]:
        """The clients that are to get a notice."""
        return tuple(client_id for client_id in self.order if client_id != self.victim)

    @property
    def fresh(self) -> Collection[int]:
        """A client that is to exit: only an interpreter that was started can end in order."""
        return (self.victim,) if self.kind == "exit" else ()

    def orders(self, client_id: int) -> Mapping[str, Any]:
        own = {"raise": "raises", "exit": "exits"}.get(self.kind, "waits")
        part = own if client_id == self.victim else "survivor"
        return {"part": part, "phase": self.phase, "options": self.options, "environment": self.environment}

    def conduct(self, clients: ProcessGroup) -> list[dict[str, Any]]:
        """Returns the fields of a `Notice` for each survivor."""
        struck_at = self._strike(clients)
        heard = clients.hear("told", self.patience, self.survivors, or_end=self.may_end)
        if not self.may_end:
            clients.hear(LAST_MESSAGE, self.timeout, self.survivors)
        return [{"survivor": one, **_notice(word, struck_at)} for one, word in heard.items()]

    def _strike(self, clients: ProcessGroup) -> float:
        """Bring all clients into position and inflict the fault; returns the time of the moment before."""
        released_at = clients.release()
        clients.hear("placed", self.timeout)
        if self.kind == "missing":
            return released_at
        time.sleep(self.pause)
        if self.kind in ("kill", "stop"):
            return clients.signal(self.victim, signal.SIGKILL if self.kind == "kill" else signal.SIGSTOP)
        clients.dismiss()
        return float(clients.hear("struck", self.timeout, [self.victim])[self.victim])


def _notice(word: Mapping[str, Any] | Ended, struck_at: float) -> dict[str, Any]:
    if isinstance(word, Ended):
        said = {"error": word.how, "text": word.output, "client_id": None, "cause": "", "missing": ()}
        return {"after": word.at - struck_at, **said}
    return {"after": word["at"] - struck_at, **{key: word[key] for key in word if key != "at"}}


@dataclass(frozen=True, kw_only=True)
class WatchTrial(Trial):
    """A healthy job that is up for some seconds, and the heartbeat ages that its clients see.

    Attributes:
        seconds: The job's time.
        heartbeat_interval: The clients' option, in seconds.
    """

    seconds: float
    heartbeat_interval: float
    timeout: float = _WATCH_TIMEOUT

    def orders(self, client_id: int) -> Mapping[str, Any]:
        return {"heartbeat_interval": self.heartbeat_interval}

    def conduct(self, clients: ProcessGroup) -> dict[str, Any]:
        """Returns the fields of `Watched`."""
        clients.release()
        clients.hear("returned", self.timeout)
        up_at = time.monotonic()
        clients.listen(self.seconds)  # until then only a job that fails has anything to say
        seconds = time.monotonic() - up_at
        try:
            clients.dismiss()
            watched = clients.hear("watched", self.timeout).values()
            clients.hear(LAST_MESSAGE, self.timeout)
        except RunFailed as failure:
            return {"seconds": seconds, "failure": str(failure)}
        return {
            "seconds": seconds,
            "largest_age": max(age for age, _, _ in watched),
            "overdue": sorted({client_id for _, overdue, _ in watched for client_id in overdue}),
            "failure": next((failure for _, _, failure in watched if failure is not None), None),
        }


@dataclass(frozen=True, kw_only=True)
class ScaleTrial(Trial):
    """The cost of a job that comes up, is idle, and loses a client.

    Attributes:
        backend: The device type of `initialize()`.
        options: Those of `initialize()`.
        seconds: The idle time.
        victim: The client that is killed after it.
        kind: The fault's; see `Fault`.
    """

    backend: str
    options: Mapping[str, float]
    seconds: float
    victim: int
    kind: str = "kill"

    def orders(self, client_id: int) -> Mapping[str, Any]:
        return {"backend": self.backend, "options": self.options}

    def conduct(self, clients: ProcessGroup) -> dict[str, Any]:
        """Returns the fields of `Measured`."""
        measured = Measured()
        try:
            self._come_up(clients, measured)
            if self._stay_idle(clients, measured):
                self._kill(clients, measured)
        except RunFailed as failure:
            measured.failure = str(failure)
        return asdict(measured)

    def _come_up(self, clients: ProcessGroup, measured: Measured) -> None:
        used, held = clients.measure(processor_seconds), clients.measure(anonymous_bytes)
        released_at = clients.release()
        try:
            measured.wall = max(clients.hear("returned", self.timeout).values()) - released_at
        except RunFailed:
            measured.failed_after = time.monotonic() - released_at
            raise
        finally:  # the first thing, as each client has more to do meanwhile
            measured.processor = spread(subtract(clients.measure(processor_seconds), used))
            measured.memory = spread(subtract(clients.measure(anonymous_bytes), held))

    def _stay_idle(self, clients: ProcessGroup, measured: Measured) -> bool:
        """Returns whether no client was told of a failure, of which there is none."""
        up_at = time.monotonic()
        if clients.stay_silent(_SETTLE_SECONDS):
            began, used = time.monotonic(), clients.measure(processor_seconds)
            is_silent = clients.stay_silent(self.seconds)
            seconds = time.monotonic() - began
            used = subtract(clients.measure(processor_seconds), used)
            measured.idle = spread({client_id: one / seconds for client_id, one in used.items()})
            if is_silent:
                return True
        measured.alarm_after = time.monotonic() - up_at
        heard = clients.hear("told", self.timeout, or_end=True)
        measured.notices = [{"survivor": one, **_notice(word, up_at)} for one, word in heard.items()]
        return False

    def _kill(self, clients: ProcessGroup, measured: Measured) -> None:
        survivors = [client_id for client_id in self.order if client_id != self.victim]
        struck_at = clients.signal(self.victim, signal.SIGKILL)
        heard = clients.hear("told", self.timeout, survivors)
        measured.notices = [{"survivor": one, **_notice(word, struck_at)} for one, word in heard.items()]
        clients.dismiss()
        clients.hear(LAST_MESSAGE, self.timeout, survivors)


@dataclass(frozen=True, kw_only=True)
class ServiceTrial(Trial):
    """Timed calls of the key-value store and the barriers.

    Attributes:
        kind: See `Task`.
        clients: See `Task`.
        calls: Calls of 100 bytes of each client.
        rounds: Rounds of a barrier.
        loop: `uvloop` or `asyncio`: the event loop of the clients' calls.
    """

    kind: Kind
    clients: int
    calls: int
    rounds: int
    loop: str

    def orders(self, client_id: int) -> Mapping[str, Any]:
        names = ("kind", "clients", "calls", "rounds", "loop")
        return {name: getattr(self, name) for name in names}

    def conduct(self, clients: ProcessGroup) -> dict[str, Any]:
        """Returns the samples by figure, and a text for each wrong answer."""
        clients.release()
        samples, wrong = evaluate(Task(self.kind, self.clients), self.calls, self._hear(clients))
        return {"samples": samples, "wrong": wrong}

    def _hear(self, clients: ProcessGroup) -> dict[int, Any]:
        if self.kind == "crowd":  # the server of a crowd has no end of its own, and is killed
            clients.hear("serving", self.timeout, [0])
            clients.dismiss()
            return clients.hear("measured", self.timeout, [1])
        heard = clients.hear("measured", self.timeout)
        clients.dismiss()
        clients.hear(LAST_MESSAGE, self.timeout)
        return heard
