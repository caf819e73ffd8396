"""The start-up harness: release the clients of one run at one instant, time the last to come up."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ..process_group import READY_TIMEOUT, Clients, RunFailed
from ..worker import LAST_MESSAGE, Place

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Plan:
    """One run: the ports, the order in which the processes start, and who is released early.

    Attributes:
        ports: A free loopback port per client, in client order.
        order: The client ids in the order in which their processes are started.
        early: The client ids that are released `offset` before the others; the time counts from the others' release.
        offset: Seconds between the two releases.
        timeout: Seconds from the release until all must have returned, and again for all to have left.
    """

    ports: tuple[int, ...]
    order: tuple[int, ...]
    early: tuple[int, ...] = ()
    offset: float = 0.0
    timeout: float = 60.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run gave: `seconds` from the release until the last client had returned, or why it failed."""

    seconds: float | None = None
    failure: str | None = None


def conduct(library: str, plan: Mapping[str, Any], fork: bool) -> dict[str, Any]:
    """Carry out a plan that has come as JSON; the host's conductor."""
    return asdict(carry_out(library, Plan(**plan), fork))


def carry_out(library: str, plan: Plan, fork: bool) -> Outcome:
    """Carry one run out in this process, which must have one thread.

    Args:
        library: `module:attribute` of the `Library` that is measured.
        plan: The run.
        fork: Whether the clients are forked from this process, which then should have loaded the library.
    """
    places = [Place(client_id, tuple(plan.ports)) for client_id in plan.order]
    with Clients(library, places, early=plan.early, fresh=() if fork else plan.order) as clients:
        try:
            clients.start()
            clients.hear("ready", READY_TIMEOUT)
            released = clients.release(plan.offset)
            last = max(clients.hear("returned", plan.timeout).values())
            clients.dismiss()
            clients.hear(LAST_MESSAGE, plan.timeout)
        except RunFailed as failure:
            return Outcome(None, str(failure))
    return Outcome(last - released)
