"""Runs one machine as the loop of its driver does: deadlines are met before events are handled."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bringup.runtime.machines.coordinator.machine import CoordinatorMachine
from bringup.runtime.machines.peer.machine import PeerMachine

from . import invariants

if TYPE_CHECKING:
    from .process import Process

LATENESS_MAX = 0.0005
"""Seconds by which a timer of an event loop may be late."""

_WAKES_MAX = 10
"""Times that a machine may be woken on end: each time it does one of the things that have fallen due."""


class MachineRunner:
    """One machine of one process.

    Attributes:
        machine: the code that ships.
        is_over: whether its driver has left its loop.
    """

    def __init__(
        self, process: Process, machine: PeerMachine | CoordinatorMachine, perform: Callable[[Any], None], who: str
    ) -> None:
        self.machine = machine
        self.is_over = False
        self._process = process
        self._clock = process.world.clock
        self._perform = perform
        self._who = who
        self._due: float | None = None
        self._armed_for: float | None = None
        machine.caught_up(self._clock.now)

    def take(self, event: Any) -> None:
        """Take in one event."""
        now = self._clock.now
        if not self._process.is_behind:
            self.machine.caught_up(now)
        if self._due is not None and self._due <= now:
            self._wake_when_due()
        if not self.is_over:
            self._clock.note(self._who, event)
            self._carry_out(event, self.machine.handle(event, now))
            self._arm()
        elif isinstance(self.machine, PeerMachine):
            # A driver has left its loop by then; a machine that has ended must not mind.
            assert self.machine.handle(event, now) == [], f"{self._who} acts after its end"

    def end(self) -> None:
        """The driver leaves its loop."""
        self.is_over = True
        self._due = None

    def _carry_out(self, event: Any, effects: list[Any]) -> None:
        if effects:
            invariants.after_step(self._process, self.machine, event, effects)
            for effect in effects:
                self._clock.note(self._who, effect)
                self._perform(effect)
        self._due = None if self.is_over else self.machine.deadline()

    def _wake_when_due(self) -> None:
        now = self._clock.now
        if not self._process.is_behind:
            self.machine.caught_up(now)
        for _ in range(_WAKES_MAX):
            if self._due is None or self._due > now:
                return
            self._carry_out(None, self.machine.wake(now))
        raise AssertionError(f"{self._who} was woken {_WAKES_MAX} times at {now}, and is due again at {self._due}")

    def _arm(self) -> None:
        """See to it that there is a timer for the deadline; one that is too early is armed again when it fires."""
        due = self._due
        if due is None or (self._armed_for is not None and self._armed_for <= due):
            return
        self._armed_for = due
        process = self._process
        late = process.world.rng.random() * LATENESS_MAX
        self._clock.at(max(due, self._clock.now) + late, process.deliver, self._on_timer, due)

    def _on_timer(self, armed_for: float) -> None:
        if self._armed_for != armed_for:
            return
        self._armed_for = None
        self._wake_when_due()
        self._arm()
