"""A run of clients that watch for false alarms, in the host."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ..process_group import READY_TIMEOUT, Clients, RunFailed
from ..worker import LAST_MESSAGE, Place

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_STEP_TIMEOUT = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPlan:
    """One run: a free loopback port per client, the order of the processes' starts, and for how many seconds."""

    ports: Sequence[int]
    order: Sequence[int]
    seconds: float
    heartbeat_interval: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What one run gave.

    Attributes:
        seconds: For how long the job was up.
        largest_age: The largest heartbeat age of any client that any client saw, in seconds.
        overdue: The clients that were overdue in the eyes of any other.
        failure: What ended the job, or why it did not come up.
    """

    seconds: float = 0.0
    largest_age: float = 0.0
    overdue: Sequence[int] = ()
    failure: str | None = None


def conduct(library: str, plan: Mapping[str, Any], fork: bool) -> dict[str, Any]:
    """Carry out a plan that has come as JSON; the host's conductor."""
    return asdict(carry_out(library, WatchPlan(**plan), fork))


def carry_out(library: str, plan: WatchPlan, fork: bool) -> Watched:
    """Carry one run out in this process, which must have one thread."""
    orders = {"heartbeat_interval": plan.heartbeat_interval}
    places = [Place(client_id, tuple(plan.ports), orders) for client_id in plan.order]
    up_at: float | None = None
    with Clients(library, places, fresh=() if fork else plan.order) as clients:
        try:
            clients.start()
            clients.hear("ready", READY_TIMEOUT)
            clients.release()
            clients.hear("returned", _STEP_TIMEOUT)
            up_at = time.monotonic()
            clients.listen(plan.seconds)  # nobody says anything unless the job fails
            seconds = time.monotonic() - up_at
            clients.dismiss()
            watched = clients.hear("watched", _STEP_TIMEOUT).values()
            clients.hear(LAST_MESSAGE, _STEP_TIMEOUT)
        except RunFailed as failure:
            return Watched(seconds=0.0 if up_at is None else time.monotonic() - up_at, failure=str(failure))
    failures = [failure for _, _, failure in watched if failure is not None]
    return Watched(
        seconds=seconds,
        largest_age=max(age for age, _, _ in watched),
        overdue=sorted({client_id for _, overdue, _ in watched for client_id in overdue}),
        failure=failures[0] if failures else None,
    )
