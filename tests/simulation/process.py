"""One simulated client process: the shipped machines, and their drivers' part."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from bringup.errors import ConfigurationError, DeviceInitializationError
from bringup.runtime.machines.coordinator import events as coordinator_events
from bringup.runtime.machines.coordinator.machine import CoordinatorMachine
from bringup.runtime.machines.id_ranges import pack_ids
from bringup.runtime.machines.peer import events as ev
from bringup.runtime.machines.peer.config import PeerConfig
from bringup.runtime.machines.peer.machine import PeerMachine
from bringup.runtime.machines.peer.program import OwnProgram
from bringup.runtime.machines.phases import Phase
from bringup.runtime.machines.session.limits import ending_of
from bringup.transport.wire.services import EnterBarrier, ServiceReply

from . import bounds, invariants
from .control_plane import CoordinatorLink, CoordinatorSessions
from .dialling import Dials
from .machine_runner import MachineRunner
from .network import EVER
from .os_process import OsProcess
from .preemption_points import PreemptionPoints

if TYPE_CHECKING:
    from .job import Job
    from .ring import RingEnd
    from .world import World

_LEAVE_GRACE = 1.0


class Process(OsProcess):
    """A client's process: its peer, on client 0 the coordinator too.

    Attributes:
        up: what came up, with the time.
        failed: what it raised, with the time.
        left: how its shutdown ended, with the time.
        barriers: how its barrier calls ended, with the times.
        job: the one it was taken into, once it has been.
        hosted: the job whose coordinator it hosts.
        backend_seconds: how long its devices take to come up; `None` for ever.
        backend_error: what its devices fail with.
        link: its session with the coordinator; `sessions`: those of the coordinator here.
        heard_at: when the coordinator last heard it, and `heard_host_at` the other way round.
        leave_wished_at: when its user wanted to shut down.
        barrier_calls: name and count of each call, and how many take part, by ticket.
        works_since: since when its program has been at work at a step, without waiting for others.
        longest_work: the longest that it was so, of those that are over.
        last_step: the one that its program came to last.
        points: its part in the agreement on a preemption point.
        overloads: from when until when it was overloaded.
        is_let_go: whether the coordinator has heard that it wants to leave.
        is_cut_off: whether it lost the coordinator because of what lies between them.
        is_stranger: whether it was started with settings of another job.
        is_over: whether its peer has ended.
        is_aborted: whether its user gave up.
        is_sick: whether its devices are unhealthy.
        has_failed_itself: whether what ended it is its own: its user, its devices, its port.
    """

    def __init__(self, world: World, config: PeerConfig, link_address: str, name: str, began: float) -> None:
        super().__init__(world, name, link_address)
        self.config = config
        self.client_id = config.client_id
        self.incarnation = config.incarnation
        self.machine = PeerMachine(config, began)
        self.program = OwnProgram()
        self.peer = MachineRunner(self, self.machine, self._perform, name)
        self.coordinator: MachineRunner | None = None
        self.hosted: Job | None = None
        self.job: Job | None = None
        self.link = CoordinatorLink(self)
        self.sessions = CoordinatorSessions(self)
        self.dials = Dials(config.registration_patience)
        self.ring_end: RingEnd | None = None
        self.is_over = False
        self.is_aborted = False
        self.is_sick = False
        self.has_failed_itself = False
        self.began = began
        self.heard_at: float | None = None
        self.heard_host_at = began
        self.leave_wished_at: float | None = None
        self.barrier_calls: dict[int, tuple[str, int, int]] = {}
        self.works_since: float | None = None
        self.longest_work = 0.0
        self.last_step = -1
        self.points = PreemptionPoints(self)
        self.is_stranger = False
        self.overloads: list[tuple[float, float]] = []
        self.is_let_go = False
        self.is_cut_off = False
        self.backend_seconds: float | None = 0.0
        self.backend_error: str | None = None
        self.up: tuple[float, ev.Up] | None = None
        self.failed: tuple[float, BaseException] | None = None
        self.left: tuple[float, ev.Left] | None = None
        self.barriers: list[tuple[float, ServiceReply]] = []
        self.on_up: Callable[[Process], None] | None = None
        self.on_barrier: Callable[[Process, ServiceReply], None] | None = None
        self._triggers: defaultdict[Phase, list[Callable[[], None]]] = defaultdict(list)

    # What reaches it.

    def tell_peer(self, event: ev.PeerEvent) -> None:
        """Give the peer an event."""
        if not self._triggers:
            return self.peer.take(event)
        phase = self.machine.phase
        self.peer.take(event)
        if self.machine.phase is not phase:
            for action in self._triggers.pop(self.machine.phase, ()):
                action()
        return None

    def tell_coordinator(self, event: coordinator_events.CoordinatorEvent) -> None:
        """Give the coordinator an event."""
        if self.coordinator is not None and not self.coordinator.is_over:
            self.coordinator.take(event)
            if self._has_told_all:
                self.sessions.all_told()

    # What its user wants.

    def wish_leave(self) -> None:
        """Shut down."""
        if self.up is None or self.is_over or self.leave_wished_at is not None:
            return
        now = self.leave_wished_at = self.world.clock.now
        self._note_work_ends()
        self.tell_peer(ev.LeaveRequested())
        due = now + self.config.shutdown_timeout + _LEAVE_GRACE + self.world.patience
        self.world.clock.at(due, invariants.waits_no_longer, self, "for its shutdown", self.has_ended, now)

    def enter_barrier(self, name: str, timeout: float | None = None, clients: tuple[int, ...] = ()) -> int:
        """Wait at a barrier of some clients, all where none are named; returns the ticket of the call."""
        ticket = len(self.barrier_calls) + 1
        count = sum(1 for other, _, _ in self.barrier_calls.values() if other == name)
        self.barrier_calls[ticket] = (name, count, len(clients) or self.world.num_clients)
        if self.job is not None:
            self.job.arrivals[name, count] += 1
        if timeout is not None:
            bounds.barrier_was_called(self, ticket, timeout)
        if self.job is not None and not self.is_over:
            self.wait_begins()
            self.job.services.call(
                self, EnterBarrier(ticket, name, pack_ids(clients), -1.0 if timeout is None else timeout)
            )
        return ticket

    def barrier_done(self, reply: ServiceReply) -> None:
        """A barrier call is answered."""
        if self.is_over:
            return
        self.barriers.append((self.world.clock.now, reply))
        self.wait_ends()
        if self.on_barrier is not None:
            self.on_barrier(self, reply)

    def report_progress(self, step: int) -> None:
        """Say how far its program is."""
        self._note_work_ends()
        self.works_since = self.world.clock.now
        self.program.report(step, self.world.clock.now)
        self._tell_progress()

    def next_step(self) -> int:
        """Return the step that its program comes to next: they are counted up by one."""
        self.last_step += 1
        return self.last_step

    def wait_begins(self) -> None:
        """A call of its program waits for the others from now on."""
        self._note_work_ends()
        self.program.wait_begins()
        self._tell_progress()

    def wait_ends(self) -> None:
        """Such a call is over."""
        self.program.wait_ends(self.world.clock.now)
        self._tell_progress()
        if self.has_begun_steps:
            self.works_since = self.world.clock.now

    def _tell_progress(self) -> None:
        if not self.is_over and (state := self.program.state()) is not None:
            self.tell_peer(state)

    def _note_work_ends(self) -> None:
        if self.works_since is not None:
            self.longest_work = max(self.longest_work, self.world.clock.now - self.works_since)
        self.works_since = None

    def stall(self) -> None:
        """Its program goes no further, though it waits for nobody."""
        timeout = None if self.job is None else self.job.config.stall_timeout
        if timeout is not None:
            self.world.clock.note(self.name, "stalls")
            bounds.program_stalled(self, timeout)

    @property
    def is_connected(self) -> bool:
        """Whether it and the coordinator use the same connection."""
        carrier = self.link.carrier
        return carrier is not None and carrier.sessions.carries(carrier)

    @property
    def neighbours(self) -> set[int]:
        """The clients at the other ends of its links."""
        places = () if self.ring_end is None else self.ring_end.places.values()
        return {member.client_id for place in places for member in (place.left, place.right)}

    @property
    def wants_to_leave(self) -> bool:
        """Whether its user wants to shut down."""
        return self.leave_wished_at is not None

    @property
    def has_begun_steps(self) -> bool:
        """Whether its program has come to a step."""
        return self.program.state() is not None

    @property
    def is_in_dark(self) -> bool:
        """Whether it does not know yet that a coordinator has taken it in: it takes any that answers."""
        return self.machine.phase is Phase.CONNECT

    def has_ended(self) -> bool:
        """Return whether its peer has ended."""
        return self.is_over

    def is_settled(self) -> bool:
        """Return whether it has come up, or ended."""
        return self.up is not None or self.is_over

    # What befalls it.

    def begin(self) -> None:
        """`initialize()` is called."""
        self.has_begun = True
        if self.client_id == 0 and not self.world.host_coordinator(self):
            self.failed = (self.world.clock.now, ConfigurationError("the coordinator cannot listen: the port is taken"))
            self.is_over = self.has_failed_itself = True
            return self.end()
        return self.tell_peer(ev.Begin())

    def on_phase(self, phase: Phase, action: Callable[[], None]) -> None:
        """Do `action` as soon as the peer gets into `phase` by an event."""
        self._triggers[phase].append(action)

    def overload(self, lag: float, seconds: float) -> None:
        """Handle what comes `lag` seconds late, for so many seconds."""
        self.lag = lag
        self.overloads.append((self.world.clock.now, EVER))
        self.world.clock.after(seconds, self.recover)

    def recover(self) -> None:
        """It is overloaded no longer."""
        if self.lag:
            self.overloads[-1] = (self.overloads[-1][0], self.world.clock.now)
            self.catch_up()

    def abort(self, error: BaseException) -> None:
        """Cancel the user's call."""
        if not self.is_over:
            bounds.process_gave_up(self)
            self.is_aborted = self.has_failed_itself = True
            self.tell_peer(ev.Abort(error))

    def sicken(self) -> None:
        """Make its devices unhealthy, which is noticed once they are watched: when it is up."""
        if self.up is None or self.is_over:
            return
        self.is_sick = True
        if self.config.fails_when_unhealthy and not self.wants_to_leave:
            bounds.process_gave_up(self)
            self.has_failed_itself = True
        self.tell_peer(ev.HealthChanged(False, "a link of a chip is down"))

    # The peer's effects.

    def _perform(self, effect: ev.PeerEffect) -> None:
        match effect:
            case ev.Send(message):
                self.link.send(message)
            case ev.Connect(tag):
                self.link.connect(tag)
            case ev.Redial(patience):
                self.link.redial(patience)
            case ev.Probe():
                self.world.wire.probe(self, effect, self.tell_peer, self.config.heartbeat_timeout)
            case ev.StartBackend(tag):
                self._start_backend(tag)
            case ev.ConnectRing():
                self.world.ring_of(effect.job_id).join(self, effect)
            case ev.Merge():
                assert self.ring_end is not None
                self.ring_end.merge(effect)
            case ev.SendWatch(message):
                assert self.ring_end is not None
                self.ring_end.send_watch(message)
            case ev.Preempt(message):
                self.points.take(message)
            case ev.Up():
                self.up = (self.world.clock.now, effect)
                self.world.unsettled.pop(self, None)
                if self.on_up is not None:
                    self.on_up(self)
            case ev.Failed(error):
                self.failed = (self.world.clock.now, error)
                self._end_peer()
            case ev.Left():
                self.left = (self.world.clock.now, effect)
                self._end_peer()

    def _start_backend(self, tag: ev.Tag) -> None:
        if self.backend_seconds is not None:
            self.later(self.backend_seconds, self._backend_answers, tag)

    def _backend_answers(self, tag: ev.Tag) -> None:
        cause = self.backend_error
        if cause is None:
            return self.tell_peer(ev.BackendStarted(tag, self.world.devices[self.client_id]))
        bounds.process_gave_up(self)
        self.has_failed_itself |= not self.is_over
        error = DeviceInitializationError(cause, client_id=self.client_id, cause=cause)
        return self.tell_peer(ev.BackendFailed(tag, error))

    # Its end.

    def _end_peer(self) -> None:
        self.is_over = True
        self.peer.end()
        self.world.unsettled.pop(self, None)
        # The others hear the cause before they see links break.
        self.link.finish(self._close_coordinator)

    def _close_coordinator(self) -> None:
        if self.gone_at < EVER:
            return None
        if self.coordinator is None:
            return self.end()
        error, has_left = (None if self.failed is None else self.failed[1]), self.left is not None
        gave_up = self.is_aborted or not self.link.machine.was_opened
        ending = ending_of(error, self.client_id, has_left=has_left, gave_up=gave_up)
        return self.sessions.close(ending, self._on_flushed, self.end)

    def _on_flushed(self) -> None:
        self.sessions.stay(is_needed=not self._has_told_all)

    @property
    def _has_told_all(self) -> bool:
        if self.coordinator is None:
            return False
        assert isinstance(self.coordinator.machine, CoordinatorMachine)
        return self.coordinator.machine.has_told_all

    def end(self) -> None:
        """All that it held is closed."""
        if self.gone_at < EVER:
            return
        self.gone_at = self.world.clock.now
        self.is_over = True
        self.is_listening = False
        self.link.abandon()
        if self.job is not None:
            self.job.services.end_of(self)
        self.peer.end()
        for connection in list(self.connections):
            connection.close_at_client()
        for connection in list(self.served):
            connection.close_at_host()
        if self.coordinator is not None:
            self.coordinator.end()
        self.world.process_ended(self)
