"""The user's program in every client once the job is up: barriers, progress, calls, shutdown."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from .key_value_program import KeyValueProgram

if TYPE_CHECKING:
    from .process import Process
    from .scenario import Step, Traffic, Work


class Program:
    """The same steps in every client, one after the other, each after some thought; then the wish to shut down.

    Meanwhile some call the key-value store.

    Args:
        steps: what to do.
        think: the longest that a client waits before it shuts down.
        stayers: the clients that never do.
        stallers: the clients that hang instead of going through the steps.
        work: what those that report their progress do meanwhile; `None` where none reports any.
        traffic: the calls on the key-value store; `None` where there are none.
        early: the clients that shut down after so many steps.
    """

    def __init__(
        self,
        steps: tuple[Step, ...],
        think: float,
        stayers: tuple[int, ...] = (),
        stallers: tuple[int, ...] = (),
        work: Work | None = None,
        traffic: Traffic | None = None,
        early: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        self._steps = steps
        self._think = think
        self._stayers = stayers
        self._stallers = stallers
        self._work = work
        self._traffic = traffic
        self._early = early

    def prepare(self, process: Process) -> None:
        """Run this program in a process once it is up."""
        process.on_up = self._begin
        process.on_barrier = lambda process, done: self._after(self._number_of(done.ticket, process), process)

    def _begin(self, process: Process) -> None:
        if self._traffic is not None and process.client_id in self._traffic.clients:
            KeyValueProgram(process, self._traffic).begin()
        first = 0.0 if self._work is None else self._work.first.get(process.client_id, 0.0)
        process.later(first, self._after, 0, process)

    def _number_of(self, ticket: int, process: Process) -> int:
        """Return how many steps a client has gone through, of which it has no part in some, with this call."""
        own = [n for n, step in enumerate(self._steps) if not step.clients or process.client_id in step.clients]
        return own[ticket - 1] + 1

    def _after(self, number: int, process: Process) -> None:
        if process.is_over:
            return None
        if self._work is None:
            return self._go_on(number, process)
        lap = self._work.lap if number else 0.0
        until = process.world.clock.now + lap + self._work.toil.get(process.client_id, 0.0)
        return process.later(lap, self._unless_over, process, until, partial(self._go_on, number, process))

    def _lap(self, process: Process, until: float, then: partial[None]) -> None:
        """Come to one step after the other until a time."""
        assert self._work is not None
        process.report_progress(process.next_step())
        is_done = process.world.clock.now >= until
        more = then if is_done else partial(process.later, self._work.lap, self._unless_over, process, until, then)
        if self._work.has_points:
            process.points.reach(process.last_step, more)
        else:
            more()

    def _unless_over(self, process: Process, until: float, then: partial[None]) -> None:
        if not process.is_over:
            self._lap(process, until, then)

    def _go_on(self, number: int, process: Process) -> None:
        rng = process.world.rng
        if process.client_id in self._stallers:
            process.stall()
        elif number < self._early.get(process.client_id, len(self._steps)):
            process.later(rng.uniform(0, self._steps[number].think), self._do, number, process)
        elif process.client_id not in self._stayers:
            process.later(rng.uniform(0, self._think), process.wish_leave)

    def _do(self, number: int, process: Process) -> None:
        if process.is_over:
            return
        step = self._steps[number]
        if not step.clients or process.client_id in step.clients:
            process.enter_barrier(step.barrier, step.timeout, step.clients)
        else:
            self._after(number + 1, process)
