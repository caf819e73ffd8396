"""The faults of `bringup bench failure`: what happens to whom and when, the time bounds, and the expected notice.

The tests of faults and the simulator have tables of their own: theirs are actions on a live process under test and on
a simulated network (cuts, delays, duplicates, full tables), which no trial can inflict; common to all three are only
the words kill and stop.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..trials import FaultTrial, ScaleTrial

Kind = Literal["kill", "raise", "exit", "stop", "missing"]
Victim = Literal["client", "coordinator"]

FEWEST_CLIENTS = 3
"""A victim, a client that is missing, and a survivor."""

_NOTICE_OF_END = 0.25
"""Seconds; far below any time-out that could tell of an end instead."""
_NOTICE_BEYOND_SILENCE = 1.0
"""Seconds beyond the heartbeat timeout, which the detector extends by its own loop's lag."""
_NOTICE_BEYOND_DEADLINE = 0.5
"""Seconds beyond the deadline of the initialization: clients that are released together reach it one by one."""
_SILENCE = re.compile(r"no heartbeat for ([\d.]+) s")
_ROUNDING = 0.05
_OTHERS_TOO = "Clients that failed with it"
# In heartbeat intervals; a longer one between two heartbeats of a client that runs is called overdue.
_LONGEST_GAP = 1.5
_NEVER = 600.0
_PAUSE = (0.1, 0.5)  # seconds, drawn: a fault is to come at any moment between two heartbeats
_DONE: Mapping[str, str] = {
    "kill": "was killed",
    "raise": "raised",
    "exit": "exited",
    "stop": "was stopped",
    "missing": "was not started",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        kind: `kill` (SIGKILL), `raise` (an exception leaves `async with`), `exit` (`sys.exit` without shutdown), `stop`
            (SIGSTOP) or `missing` (it never starts).
        victim: Client 0, which hosts the coordinator, or another.
        phase: The phase of all clients at the fault.
    """

    kind: Kind
    victim: Victim
    phase: str

    @property
    def title(self) -> str:
        """The fault's name in tables."""
        signals = {"kill": "SIGKILL", "stop": "SIGSTOP"}
        return f"{signals.get(self.kind, self.kind)} {self.victim}"


_PHASES = ("rendezvous", "devices", "idle", "barrier", "collective")
VICTIMS: tuple[Victim, ...] = ("client", "coordinator")
CATALOGUE = (
    *(Fault("kill", victim, phase) for phase in _PHASES for victim in VICTIMS),
    *(Fault(kind, victim, "idle") for kind in ("raise", "exit", "stop") for victim in VICTIMS),
    # Without the coordinator nobody gets as far as the rendezvous.
    Fault("missing", "client", "rendezvous"),
    Fault("missing", "coordinator", "connect"),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """The time-outs of jobs with a stopped or missing client, in seconds; all others have the defaults."""

    heartbeat_interval: float
    heartbeat_timeout: float
    deadline: float

    def options(self, fault: Fault) -> dict[str, float]:
        """The options of `initialize()`."""
        if fault.kind == "stop":
            return {"heartbeat_interval": self.heartbeat_interval, "heartbeat_timeout": self.heartbeat_timeout}
        return {"initialization_timeout": self.deadline} if fault.kind == "missing" else {}

    def bound(self, fault: Fault) -> float:
        """The time by which all survivors are to have a notice."""
        if fault.kind == "stop":
            return self.heartbeat_timeout + _NOTICE_BEYOND_SILENCE
        return self.deadline + _NOTICE_BEYOND_DEADLINE if fault.kind == "missing" else _NOTICE_OF_END

    def floor(self, fault: Fault) -> float:
        """The time before which none may have one; silence counts from the last heartbeat before the stop."""
        if fault.kind == "stop":
            return self.heartbeat_timeout - _LONGEST_GAP * self.heartbeat_interval
        return self.deadline if fault.kind == "missing" else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """The failure as one survivor was told of it.

    Attributes:
        survivor: Its client id.
        after: Seconds after the fault.
        error: The type of the exception.
        text: Its text.
        client_id: The client that it names.
        cause: The cause that it names.
        missing: The clients that it calls missing.
    """

    survivor: int
    after: float
    error: str
    text: str
    client_id: int | None
    cause: str
    missing: Collection[int]


def draw_trial(fault: Fault, ports: Sequence[int], limits: Limits, timeout: float, rng: random.Random) -> FaultTrial:
    """Draw one run: the victim, the order in which the processes start, and the pause before the fault."""
    num_clients = len(ports)
    victim = 0 if fault.victim == "coordinator" else rng.randrange(1, num_clients)
    order = list(range(num_clients))
    rng.shuffle(order)
    if fault.kind == "missing":
        order.remove(victim)
    elif fault.phase == "rendezvous":
        order.remove(rng.choice([client_id for client_id in order if client_id not in (0, victim)]))
    return FaultTrial(
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


def complaints(trial: FaultTrial | ScaleTrial, notices: Collection[Notice]) -> Iterator[str]:
    """Yield a text for each notice that came before the fault, or names another client or another cause."""
    for one in notices:
        who = f"client {one.survivor} was told"
        if one.after < 0:
            yield f"{who} before the fault: {one.error}: {one.text}"
        elif not _is_right(trial, one):
            yield f"{who}, after client {trial.victim} {_DONE[trial.kind]}: {one.error}: {one.text}"


def _is_right(trial: FaultTrial | ScaleTrial, notice: Notice) -> bool:
    if trial.kind == "missing":
        return notice.error == "RendezvousTimeoutError" and list(notice.missing) == [trial.victim]
    types = ("PeerFailedError", "CoordinatorLostError") if trial.victim == 0 else ("PeerFailedError",)
    is_alone = _OTHERS_TOO not in notice.text
    return notice.error in types and notice.client_id == trial.victim and is_alone and _fits(trial, notice.cause)


def _fits(trial: FaultTrial | ScaleTrial, cause: str) -> bool:
    match trial.kind:
        case "raise":
            return cause.startswith("RuntimeError:")
        case "exit":
            return cause.startswith("SystemExit:")
        case "stop":
            silence = _SILENCE.search(cause)
            return silence is not None and float(silence[1]) >= trial.options["heartbeat_timeout"] - _ROUNDING
        case "kill" if trial.victim != 0:
            return cause.startswith("process died")
    return _SILENCE.search(cause) is None
