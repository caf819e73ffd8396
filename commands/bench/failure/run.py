"""Carries a fault out, in the host: all clients in position, the fault, and when each survivor was told of it."""

from __future__ import annotations

import signal
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ..process_group import READY_TIMEOUT, Clients, Ended, RunFailed
from ..worker import LAST_MESSAGE, Place
from .faults import FaultPlan, Told

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..host import Host


@dataclass(frozen=True, slots=True)
class FaultOutcome:
    """What one run gave.

    Attributes:
        told: What each survivor was told, or nothing.
        failure: Why there is nothing: a survivor hung, or the run did not get as far as the fault.
    """

    told: Sequence[Told] = ()
    failure: str | None = None


def run_fault(host: Host, plan: FaultPlan) -> FaultOutcome:
    """Have a host carry one run out; bounded by the plan's own time-outs."""
    answer = host.ask(asdict(plan))
    return FaultOutcome([Told(**one) for one in answer.get("told", ())], answer["failure"])


def conduct(library: str, plan: Mapping[str, Any], fork: bool) -> dict[str, Any]:
    """Carry out a plan that has come as JSON; the host's conductor."""
    return asdict(carry_out(library, FaultPlan(**plan), fork))


def carry_out(library: str, plan: FaultPlan, fork: bool) -> FaultOutcome:
    """Carry one run out in this process, which must have one thread.

    Args:
        library: `module:attribute` of the clients' `Library`.
        plan: The run.
        fork: Whether the clients are forked from this process; one that is to exit is a fresh interpreter anyway, as
            only an interpreter that was started can end in order.
    """
    fresh = [client_id for client_id in plan.order if not fork or (plan.kind == "exit" and client_id == plan.victim)]
    places = [Place(client_id, tuple(plan.ports), _orders(plan, client_id)) for client_id in plan.order]
    with Clients(library, places, fresh=fresh) as clients:
        try:
            clients.start()
            clients.hear("ready", READY_TIMEOUT)
            struck_at = _strike(clients, plan)
            told = _collect(clients, plan, struck_at)
            if not plan.may_end:
                clients.hear(LAST_MESSAGE, plan.timeout, plan.survivors)
        except RunFailed as failure:
            return FaultOutcome((), str(failure))
    return FaultOutcome(told)


def _orders(plan: FaultPlan, client_id: int) -> dict[str, Any]:
    own = {"raise": "raises", "exit": "exits"}.get(plan.kind, "waits")
    return {
        "part": own if client_id == plan.victim else "survivor",
        "phase": plan.phase,
        "options": plan.options,
        "environment": plan.environment,
    }


def _strike(clients: Clients, plan: FaultPlan) -> float:
    """Bring all clients into position and let the fault come; the time is that of the moment before."""
    released_at = clients.release()
    clients.hear("placed", plan.timeout)
    if plan.kind == "missing":
        return released_at
    time.sleep(plan.pause)
    if plan.kind in ("kill", "stop"):
        return clients.signal(plan.victim, signal.SIGKILL if plan.kind == "kill" else signal.SIGSTOP)
    clients.dismiss()
    return float(clients.hear("struck", plan.timeout, [plan.victim])[plan.victim])


def _collect(clients: Clients, plan: FaultPlan, struck_at: float) -> list[Told]:
    heard = clients.hear("told", plan.patience, plan.survivors, or_end=plan.may_end)
    return [_told(client_id, word, struck_at) for client_id, word in heard.items()]


def _told(client_id: int, word: Mapping[str, Any] | Ended, struck_at: float) -> Told:
    if isinstance(word, Ended):
        after = word.at - struck_at
        return Told(by=client_id, after=after, error=word.how, text=word.output, client_id=None, cause="", missing=())
    return Told(by=client_id, after=word["at"] - struck_at, **{key: word[key] for key in word if key != "at"})
