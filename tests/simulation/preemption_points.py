"""One process's part in the agreement on a preemption point, as its driver runs it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from bringup.runtime.machines.peer import events as ev
from bringup.runtime.machines.preemption import FromPoint, PointAnswered, PreemptionPoint
from bringup.transport.wire.messages import StepQuery, SyncPoint

from . import bounds

if TYPE_CHECKING:
    from .process import Process


class PreemptionPoints:
    """Calls of `reached_preemption_point`, and notices.

    Attributes:
        is_held: whether a call waits for the others.
    """

    def __init__(self, process: Process) -> None:
        self._process = process
        self._machine = PreemptionPoint(process.client_id)
        self._tickets = itertools.count(1)
        self._held: dict[int, tuple[int, Callable[[], None]]] = {}

    @property
    def is_held(self) -> bool:
        """Whether a call waits for the others."""
        return bool(self._held)

    def reach(self, step: int, then: Callable[[], None]) -> None:
        """Report that the program has reached `step`; calls `then` with whether that is the preemption point."""
        process, ticket = self._process, next(self._tickets)
        self._held[ticket] = (step, then)
        process.wait_begins()
        self._carry_out(self._machine.reached(ticket, step))
        if ticket in self._held:
            bounds.point_was_reached(process, lambda: ticket not in self._held)

    def announce(self, deadline_in: float) -> None:
        """Give notice of the preemption of this client."""
        self._carry_out(list(self._machine.announce(deadline_in, "it received SIGTERM")))

    def take(self, message: StepQuery | SyncPoint) -> None:
        """Take a message of the coordinator."""
        is_asked = isinstance(message, StepQuery)
        self._carry_out(self._machine.asked(message) if is_asked else self._machine.point_set(message))

    def _carry_out(self, effects: FromPoint) -> None:
        process = self._process
        for effect in effects:
            if process.is_over:
                return
            if isinstance(effect, PointAnswered):
                step, then = self._held.pop(effect.ticket)
                process.wait_ends()
                assert process.job is not None
                told = process.job.points.setdefault(step, {})
                told[process.client_id] = effect.is_reached
                # The others agree without a client that is leaving, which may have been at that step before.
                stay = {told[c] for c in told if not process.job.members[c].wants_to_leave}
                assert len(stay) < 2, f"{process.name} is told otherwise at step {step} than another"
                process.later(0.0, then)
            else:
                process.tell_peer(ev.AgreementMessage(effect))
