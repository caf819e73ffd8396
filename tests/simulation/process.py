"""One simulated process: the machines that ship, and what their drivers do for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bringup.errors import DeviceInitializationError
from bringup.runtime.drivers.coordinator import LATECOMERS_TIMEOUT
from bringup.runtime.machines import events as ev
from bringup.runtime.machines.coordinator import CoordinatorMachine
from bringup.runtime.machines.peer import PeerConfig, PeerMachine
from bringup.runtime.machines.phases import Phase

from . import invariants

if TYPE_CHECKING:
    from .ring import RingEnd
    from .wire import SimulatedSession
    from .world import World

__all__ = ["Driven", "Process"]

Machine = PeerMachine | CoordinatorMachine

_LATENESS_MAX = 0.0005
"""Seconds by which a timer of an event loop may be late."""

_CLOSE_TIMEOUT = 1.0


class Driven:
    """One machine with its driver's loop: a deadline is met before the next event is taken in."""

    def __init__(self, process: Process, machine: Machine, perform: Callable[[Any], None], who: str) -> None:
        self.machine = machine
        self.is_over = False
        self._process = process
        self._perform = perform
        self._who = who
        self._armed_for: float | None = None

    def take(self, event: Any) -> None:
        """Take in one event."""
        self._wake_when_due()
        clock = self._process.world.clock
        if not self.is_over:
            clock.note(self._who, event)
            self._carry_out(self.machine.handle(event, clock.now))
            self._arm()
        elif isinstance(self.machine, PeerMachine):
            # A driver has left its loop by then; a machine that has ended must not mind.
            assert self.machine.handle(event, clock.now) == [], f"{self._who} acts after its end"

    def _carry_out(self, effects: list[Any]) -> None:
        invariants.after_step(self._process, self.machine, effects)
        for effect in effects:
            self._process.world.clock.note(self._who, effect)
            self._perform(effect)

    def _wake_when_due(self) -> None:
        now = self._process.world.clock.now
        while not self.is_over and (due := self.machine.deadline()) is not None and due <= now:
            self._carry_out(self.machine.wake(now))
            after = self.machine.deadline()
            assert after is None or after > now, f"{self._who} was woken at its deadline {due} and is due again"

    def _arm(self) -> None:
        """See to it that there is a timer for the deadline; one that is too early is armed again when it fires."""
        due = None if self.is_over else self.machine.deadline()
        if due is None or (self._armed_for is not None and self._armed_for <= due):
            return
        self._armed_for = due
        world = self._process.world
        late = world.rng.uniform(0, _LATENESS_MAX)
        world.clock.at(max(due, world.clock.now) + late, lambda: self._process.deliver(lambda: self._on_timer(due)))

    def _on_timer(self, armed_for: float) -> None:
        if self._armed_for != armed_for:
            return
        self._armed_for = None
        self._wake_when_due()
        self._arm()


class Process:
    """A client's process: its peer, on client 0 the coordinator too.

    Attributes:
        up: what came up, with the time.
        failed: what it raised, with the time.
        left: how its shutdown ended, with the time.
        barriers: how its barrier calls ended, with the times.
        is_unreachable: whether its host answers nothing.
        backend_seconds: how long its devices take to come up; `None` for ever.
        backend_error: what its devices fail with.
    """

    def __init__(self, world: World, config: PeerConfig, link_address: str, name: str, began: float) -> None:
        self.world = world
        self.config = config
        self.link_address = link_address
        self.name = name
        self.peer = Driven(self, PeerMachine(config, began), self._perform, name)
        self.coordinator: Driven | None = None
        self.session: SimulatedSession | None = None
        self.ring_end: RingEnd | None = None
        self.is_alive = True
        self.is_stopped = False
        self.is_listening = True
        self.is_unreachable = False
        self.is_over = False
        self.began = began
        self.backend_seconds: float | None = 0.0
        self.backend_error: str | None = None
        self.up: tuple[float, ev.Up] | None = None
        self.failed: tuple[float, BaseException] | None = None
        self.left: tuple[float, ev.Left] | None = None
        self.barriers: list[tuple[float, ev.BarrierDone]] = []
        self.is_aborted = False
        self._is_gone = False
        self._waits_for_latecomers = False
        self._backlog: list[Callable[[], None]] = []
        self._triggers: defaultdict[Phase, list[Callable[[], None]]] = defaultdict(list)

    @property
    def client_id(self) -> int:
        """The id it was given."""
        return self.config.client_id

    @property
    def incarnation(self) -> int:
        """The one it drew."""
        return self.config.incarnation

    @property
    def machine(self) -> PeerMachine:
        """The peer's."""
        assert isinstance(self.peer.machine, PeerMachine)
        return self.peer.machine

    # What reaches it.

    def deliver(self, action: Callable[[], None]) -> None:
        """Let something happen here: now, when the process continues, or never, as it is dead."""
        if self.is_stopped:
            self._backlog.append(action)
        elif self.is_alive:
            action()

    def later(self, delay: float, action: Callable[[], None]) -> None:
        """Let something happen here in `delay` seconds."""
        self.world.clock.after(delay, lambda: self.deliver(action))

    def tell_peer(self, event: ev.PeerEvent) -> None:
        """Give the peer an event."""
        phase = self.machine.phase
        self.peer.take(event)
        if self.machine.phase is not phase:
            for action in self._triggers.pop(self.machine.phase, ()):
                action()

    def tell_coordinator(self, event: ev.CoordinatorEvent) -> None:
        """Give the coordinator an event."""
        if self.coordinator is not None:
            self.coordinator.take(event)
            if self._waits_for_latecomers and self._has_told_all:
                self._end_of_process()

    # What befalls it.

    def on_phase(self, phase: Phase, action: Callable[[], None]) -> None:
        """Do `action` as soon as the peer gets into `phase` by an event."""
        self._triggers[phase].append(action)

    def crash(self) -> None:
        """End the process without a word: the kernel closes what it had open."""
        self.world.culprits.add(self.client_id)
        self.is_alive = self.is_stopped = self.is_listening = False
        self._backlog.clear()
        if self.session is not None:
            self.session.end_up("the stream broke")
        self._end_of_process()

    def abort(self, error: BaseException) -> None:
        """Let the user give up."""
        self.world.culprits.add(self.client_id)
        self.is_aborted = True
        self.tell_peer(ev.Abort(error))

    def stop(self) -> None:
        """Stop the process, as SIGSTOP does: all stays open, nothing moves."""
        self.world.culprits.add(self.client_id)
        self.is_stopped = True

    def resume(self) -> None:
        """Let a stopped process go on, with all that has come meanwhile."""
        self.is_stopped = False
        backlog, self._backlog = self._backlog, []
        for action in backlog:
            self.deliver(action)

    @property
    def _has_told_all(self) -> bool:
        """Whether there is nobody left to whom the coordinator here, if there is one, must say why the job failed."""
        if self.coordinator is None or not self.is_alive or self.is_aborted:
            return True
        assert isinstance(self.coordinator.machine, CoordinatorMachine)
        return self.coordinator.machine.has_told_all

    # The peer's effects.

    def _perform(self, effect: ev.PeerEffect) -> None:
        match effect:
            case ev.Send(message):
                assert self.session is not None, f"{self.name} sends {message} without a session"
                self.session.send_up(message)
            case ev.Connect(tag):
                self.world.wire.dial(self, tag)
            case ev.StartBackend(tag):
                self._start_backend(tag)
            case ev.ConnectRing():
                self.world.ring_of(effect.job_id).join(self, effect)
            case ev.Merge(tag, devices):
                assert self.ring_end is not None
                self.ring_end.merge(tag, devices)
            case ev.Up():
                self.up = (self.world.clock.now, effect)
                self.world.unsettled.discard(self)
            case ev.BarrierDone():
                self.barriers.append((self.world.clock.now, effect))
            case ev.Failed(error):
                self.failed = (self.world.clock.now, error)
                self._end_of_peer()
            case ev.Left():
                self.left = (self.world.clock.now, effect)
                self._end_of_peer()

    def _start_backend(self, tag: ev.Tag) -> None:
        if self.backend_seconds is None:
            return
        event: ev.PeerEvent = ev.BackendStarted(tag, self.world.devices[self.client_id])
        if (cause := self.backend_error) is not None:
            self.world.culprits.add(self.client_id)
            error = DeviceInitializationError(cause, client_id=self.client_id, cause=cause)
            event = ev.BackendFailed(tag, error)
        self.later(self.backend_seconds, lambda: self.tell_peer(event))

    # Its end.

    def _end_of_peer(self) -> None:
        """Last words first; the links and the listener go once the coordinator has them, or after a second."""
        self.is_over = self.peer.is_over = True
        self.world.unsettled.discard(self)
        if self.session is None:
            return self._end_of_process()
        self.session.end_up("the client closed its session", then=self._end_of_process)
        return self.later(_CLOSE_TIMEOUT, self._end_of_process)

    def _end_of_process(self) -> None:
        if self._is_gone:
            return None
        if not self._has_told_all and not self._waits_for_latecomers:
            self._waits_for_latecomers = True
            return self.later(LATECOMERS_TIMEOUT, self._end_of_process)
        self._is_gone = self.is_over = self.peer.is_over = True
        self.is_listening = False
        self.world.unsettled.discard(self)
        self.world.leave_rings(self)
        if self.coordinator is not None:
            self.coordinator.is_over = True
            self.world.lose_host(self)
        return None
