"""What the user's program does in every client once the job is up: barriers, and the shutdown."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from .scenario import Step

if TYPE_CHECKING:
    from .process import Process

__all__ = ["Program"]


class Program:
    """The same steps in every client, one after the other, each after some thought; then the wish to shut down.

    Args:
        steps: what to do.
        think: the longest that a client waits before it shuts down.
        stayers: the clients that never do.
        stallers: the clients that hang instead of going through the steps.
        reports: whether it says how far it is.
    """

    def __init__(
        self,
        steps: tuple[Step, ...],
        think: float,
        stayers: tuple[int, ...] = (),
        stallers: tuple[int, ...] = (),
        *,
        reports: bool = False,
    ) -> None:
        self._steps = steps
        self._think = think
        self._stayers = stayers
        self._stallers = stallers
        self._reports = reports

    def prepare(self, process: Process) -> None:
        """Let a process run this once it is up."""
        process.on_up = partial(self._after, 0)
        process.on_barrier = lambda process, done: self._after(done.ticket, process)

    def _after(self, number: int, process: Process) -> None:
        rng = process.world.rng
        if self._reports:
            process.report_progress(number)
        if process.client_id in self._stallers:
            process.stall()
        elif number < len(self._steps):
            process.later(rng.uniform(0, self._steps[number].think), self._do, number, process)
        elif process.client_id not in self._stayers:
            process.later(rng.uniform(0, self._think), process.wish_leave)

    def _do(self, number: int, process: Process) -> None:
        if not process.is_over:
            step = self._steps[number]
            process.enter_barrier(step.barrier, step.timeout)
