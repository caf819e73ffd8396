"""Runs the faults of `bringup bench failure`, run by run, into the rows of its tables."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....transport.tcp.interfaces import free_ports
from ..host import Host
from ..libraries import BRINGUP
from .faults import Fault, FaultPlan, Limits, plan_run
from .libraries import FAILURE_PEERS, PATIENCE, spec
from .report import FaultRow
from .run import run_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Ran = Callable[[FaultRow, Sequence[str]], None]

PEER_RUNS_MAX = 3
PEER_VICTIMS = (1, 0)
_CLIENT = f"{__package__}.client:LIBRARY"
_CONDUCTOR = f"{run_fault.__module__}:conduct"
_PEER_PAUSE = 0.5


@dataclass(frozen=True, slots=True)
class FailureSettings:
    """How the bench runs, as asked for on the command line; durations in seconds."""

    clients: tuple[int, ...]
    runs: int
    timeout: float
    seed: int
    heartbeat_interval: float
    heartbeat_timeout: float
    deadline: float

    @property
    def limits(self) -> Limits:
        """The time-outs of the jobs in which somebody is stopped or missing."""
        return Limits(self.heartbeat_interval, self.heartbeat_timeout, self.deadline)


def measure_faults(
    settings: FailureSettings, faults: Sequence[Fault], environment: Mapping[str, str], ran: Ran
) -> list[FaultRow]:
    """Run all faults in turn, run by run, so that what else the machine does is shared between them.

    Args:
        settings: How to run.
        faults: The faults.
        environment: The environment of all clients.
        ran: Called after every run, with what is wrong with it.

    Returns:
        The rows, by fault, then by number of clients.
    """
    rng, limits = random.Random(settings.seed), settings.limits
    rows = {
        (fault, clients): FaultRow(BRINGUP.name, fault, clients, limits.bound(fault), limits.floor(fault))
        for fault in faults
        for clients in settings.clients
    }
    with Host(_CLIENT, "fork", environment, _CONDUCTOR) as host:
        for clients in settings.clients:
            for fault in list(faults) * settings.runs:
                plan = plan_run(fault, tuple(free_ports(clients)), limits, settings.timeout, rng)
                row = rows[fault, clients]
                ran(row, row.add(plan, run_fault(host, plan)))
    return list(rows.values())


def measure_peers(
    settings: FailureSettings, names: Sequence[str], environment: Mapping[str, str], ran: Ran
) -> list[FaultRow]:
    """Kill a client, and the one that coordinates, of other libraries, with the smallest number of clients.

    Args:
        settings: How to run; never more than three runs of each row.
        names: Of `FAILURE_PEERS`.
        environment: The environment of all clients.
        ran: Called after every run, with what is wrong with it.
    """
    rows: list[FaultRow] = []
    for name in names:
        peer = FAILURE_PEERS[name]
        with Host(spec(name), "fork", environment, _CONDUCTOR) as host:
            for victim in PEER_VICTIMS:
                fault = Fault("kill", "client" if victim else "coordinator", peer.phase)
                row = FaultRow(peer.measured.name, fault, min(settings.clients), None, 0.0)
                rows.append(row)
                for _ in range(min(settings.runs, PEER_RUNS_MAX)):
                    plan = _plan_peer(fault, victim, row.clients, settings.timeout)
                    ran(row, row.add(plan, run_fault(host, plan)))
    return rows


def _plan_peer(fault: Fault, victim: int, clients: int, timeout: float) -> FaultPlan:
    return FaultPlan(
        kind=fault.kind,
        phase=fault.phase,
        victim=victim,
        ports=tuple(free_ports(clients)),
        order=list(range(clients)),
        pause=_PEER_PAUSE,
        options={},
        environment={},
        patience=PATIENCE,
        timeout=timeout,
        may_end=True,
    )
