"""Carries one run of the services out, in the host."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ..process_group import READY_TIMEOUT, Clients, RunFailed
from ..worker import LAST_MESSAGE, Place
from .figures import Kind, Task, evaluate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..host import Host


CONDUCTOR = f"{__name__}:conduct"
"""The host's conductor."""


@dataclass(frozen=True, slots=True)
class ServicePlan:
    """One run.

    Attributes:
        ports: A free loopback port per process.
        kind: See `Task`.
        clients: See `Task`.
        calls: How many calls of 100 bytes a client makes.
        rounds: How many rounds of a barrier.
        loop: `uvloop` or `asyncio`.
        timeout: Seconds for all clients to have measured, and again for all to have left.
    """

    ports: tuple[int, ...]
    kind: Kind
    clients: int
    calls: int
    rounds: int
    loop: str
    timeout: float


@dataclass(frozen=True, slots=True)
class ServiceOutcome:
    """What one run gave: a sample for each figure's key, what was wrong, or why there is nothing."""

    samples: Mapping[str, float] = field(default_factory=dict)
    wrong: tuple[str, ...] = ()
    failure: str | None = None


def run_services(host: Host, plan: ServicePlan) -> ServiceOutcome:
    """Have a host carry one run out; bounded by the plan's own time-out."""
    answer = host.ask(asdict(plan))
    return ServiceOutcome(answer.get("samples", {}), tuple(answer.get("wrong", ())), answer["failure"])


def conduct(library: str, plan: Mapping[str, Any], fork: bool) -> dict[str, Any]:
    """Carry out a plan that has come as JSON; the host's conductor."""
    return asdict(carry_out(library, ServicePlan(**plan), fork))


def carry_out(library: str, plan: ServicePlan, fork: bool) -> ServiceOutcome:
    """Carry one run out in this process, which must have one thread.

    Args:
        library: `module:attribute` of the clients' `Library`.
        plan: The run.
        fork: Whether the clients are forked from this process.
    """
    orders = {"kind": plan.kind, "clients": plan.clients, "calls": plan.calls, "rounds": plan.rounds, "loop": plan.loop}
    ids = range(len(plan.ports))
    places = [Place(client_id, tuple(plan.ports), orders) for client_id in ids]
    with Clients(library, places, fresh=() if fork else ids) as clients:
        try:
            clients.start()
            clients.hear("ready", READY_TIMEOUT)
            clients.release()
            heard = _hear(clients, plan)
        except RunFailed as failure:
            return ServiceOutcome(failure=str(failure))
    samples, wrong = evaluate(Task(plan.kind, plan.clients), plan.calls, heard)
    return ServiceOutcome(samples, tuple(wrong))


def _hear(clients: Clients, plan: ServicePlan) -> dict[int, Any]:
    if plan.kind == "crowd":  # what serves it has no end of its own, and is killed
        clients.hear("serving", plan.timeout, [0])
        clients.dismiss()
        return clients.hear("measured", plan.timeout, [1])
    heard = clients.hear("measured", plan.timeout)
    clients.dismiss()
    clients.hear(LAST_MESSAGE, plan.timeout)
    return heard
