"""The faults of `bringup bench failure`: what is done to whom and when, the bound of each, and who is to be blamed."""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["kill", "raise", "exit", "stop", "missing"]
Victim = Literal["client", "coordinator"]

FEWEST_CLIENTS = 3
"""A victim, a client that is missing, and one that survives."""

_TOLD_OF_END = 0.25
_TOLD_OF_SILENCE = 1.0
_TOLD_OF_ABSENCE = 0.5
_SILENCE = re.compile(r"no heartbeat for ([\d.]+) s")
_ROUNDING = 0.05
_OTHERS_TOO = "Clients that failed with it"
# In heartbeat intervals; a longer one between two heartbeats of a client that runs is called overdue.
_LONGEST_GAP = 1.5
_NEVER = 600.0
_PAUSE = (0.1, 0.5)
_TEXT_CHARACTERS_MAX = 2000


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        kind: `kill` (SIGKILL), `raise` (an exception leaves `async with`), `exit` (`sys.exit` without shutdown), `stop`
            (SIGSTOP) or `missing` (it never starts).
        victim: Whether it befalls client 0, which hosts the coordinator, or another.
        phase: What all clients are doing then.
    """

    kind: Kind
    victim: Victim
    phase: str

    @property
    def title(self) -> str:
        """What the table calls it."""
        signals = {"kill": "SIGKILL", "stop": "SIGSTOP"}
        return f"{signals.get(self.kind, self.kind)} {self.victim}"


_PHASES = ("rendezvous", "devices", "idle", "barrier", "collective")
_VICTIMS: tuple[Victim, ...] = ("client", "coordinator")
CATALOGUE = (
    *(Fault("kill", victim, phase) for phase in _PHASES for victim in _VICTIMS),
    *(Fault(kind, victim, "idle") for kind in ("raise", "exit", "stop") for victim in _VICTIMS),
    # Without the coordinator nobody gets as far as the rendezvous.
    Fault("missing", "client", "rendezvous"),
    Fault("missing", "coordinator", "connect"),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """The time-outs of the jobs in which somebody is stopped or missing, in seconds; the others have the defaults."""

    heartbeat_interval: float
    heartbeat_timeout: float
    deadline: float

    def options(self, fault: Fault) -> dict[str, float]:
        """The options of `initialize()`."""
        if fault.kind == "stop":
            return {"heartbeat_interval": self.heartbeat_interval, "heartbeat_timeout": self.heartbeat_timeout}
        return {"initialization_timeout": self.deadline} if fault.kind == "missing" else {}

    def bound(self, fault: Fault) -> float:
        """Within which time all survivors are to be told."""
        if fault.kind == "stop":
            return self.heartbeat_timeout + _TOLD_OF_SILENCE
        return self.deadline + _TOLD_OF_ABSENCE if fault.kind == "missing" else _TOLD_OF_END

    def floor(self, fault: Fault) -> float:
        """Before which time none may be told: silence counts from the last heartbeat, which was before the stop."""
        if fault.kind == "stop":
            return self.heartbeat_timeout - _LONGEST_GAP * self.heartbeat_interval
        return self.deadline if fault.kind == "missing" else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """One run.

    Attributes:
        kind: The fault's.
        phase: What all clients do when it comes.
        victim: Whom it befalls.
        ports: A free loopback port per client, in client order.
        order: The clients that are started, in this order.
        pause: Seconds from when all are in position until the fault.
        options: Those of `initialize()`.
        environment: What the clients add to their environment.
        patience: Seconds from the fault until a survivor that has heard nothing has hung.
        timeout: Seconds for every other step.
        may_end: Whether a survivor that ends has thereby been told, as other libraries' clients are.
    """

    kind: Kind
    phase: str
    victim: int
    ports: Sequence[int]
    order: Sequence[int]
    pause: float
    options: Mapping[str, float]
    environment: Mapping[str, str]
    patience: float
    timeout: float
    may_end: bool = False

    @property
    def survivors(self) -> tuple[int, ...]:
        """The clients that are to be told."""
        return tuple(client_id for client_id in self.order if client_id != self.victim)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What one survivor was told.

    Attributes:
        by: The survivor.
        after: Seconds after the fault.
        error: The type of the exception.
        text: Its text.
        client_id: Whom it names.
        cause: The cause it names.
        missing: The clients it calls missing.
    """

    by: int
    after: float
    error: str
    text: str
    client_id: int | None
    cause: str
    missing: Collection[int]


def describe(error: BaseException) -> Mapping[str, Any]:
    """What an exception tells a survivor: the fields of `Told` that depend on it alone."""
    return {
        "error": type(error).__name__,
        "text": str(error)[:_TEXT_CHARACTERS_MAX],
        "client_id": getattr(error, "client_id", None),
        "cause": getattr(error, "cause", "")[:_TEXT_CHARACTERS_MAX],
        "missing": sorted(getattr(error, "missing", ())),
    }


def plan_run(fault: Fault, ports: Sequence[int], limits: Limits, timeout: float, rng: random.Random) -> FaultPlan:
    """Draw one run: who is the victim, in which order the processes start, and how long after that the fault comes."""
    num_clients = len(ports)
    victim = 0 if fault.victim == "coordinator" else rng.randrange(1, num_clients)
    order = list(range(num_clients))
    rng.shuffle(order)
    if fault.kind == "missing":
        order.remove(victim)
    elif fault.phase == "rendezvous":
        order.remove(rng.choice([client_id for client_id in order if client_id not in (0, victim)]))
    return FaultPlan(
        kind=fault.kind,
        phase=fault.phase,
        victim=victim,
        ports=ports,
        order=order,
        pause=rng.uniform(*_PAUSE),
        options=limits.options(fault),
        environment={"BRINGUP_SIM_START_SECONDS": f"{_NEVER:g}"} if fault.phase == "devices" else {},
        patience=limits.bound(fault) + timeout,
        timeout=timeout,
    )


def complaints(plan: FaultPlan, told: Collection[Told]) -> Iterator[str]:
    """Yield a text for each survivor that was told before the fault, or of another client, or of another cause."""
    for one in told:
        if one.after < 0:
            yield f"client {one.by} was told before the fault: {one.error}: {one.text}"
        elif not _is_right(plan, one):
            yield f"client {one.by} was told, after client {plan.victim} {_DONE[plan.kind]}: {one.error}: {one.text}"


_DONE: Mapping[Kind, str] = {
    "kill": "was killed",
    "raise": "raised",
    "exit": "exited",
    "stop": "was stopped",
    "missing": "was not started",
}


def _is_right(plan: FaultPlan, told: Told) -> bool:
    if plan.kind == "missing":
        return told.error == "RendezvousTimeoutError" and list(told.missing) == [plan.victim]
    types = ("PeerFailedError", "CoordinatorLostError") if plan.victim == 0 else ("PeerFailedError",)
    is_alone = _OTHERS_TOO not in told.text
    return told.error in types and told.client_id == plan.victim and is_alone and _fits(plan, told.cause)


def _fits(plan: FaultPlan, cause: str) -> bool:
    match plan.kind:
        case "raise":
            return cause.startswith("RuntimeError:")
        case "exit":
            return cause.startswith("SystemExit:")
        case "stop":
            silence = _SILENCE.search(cause)
            return silence is not None and float(silence[1]) >= plan.options["heartbeat_timeout"] - _ROUNDING
        case "kill" if plan.victim != 0:
            return cause.startswith("process died")
    return _SILENCE.search(cause) is None
