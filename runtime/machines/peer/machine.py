"""The peer of one client, from `initialize()` to the end of the job.

Theory of operation. A peer starts its devices and its search for the coordinator at once. It registers, and from the
coordinator's first answer on it sends heartbeats and expects answers. When all clients have registered the coordinator
says so, and the peer links with its neighbours. Once it has its links and its devices, it merges these into the job's
table, and gets the roster with it. It reports both digests: once the coordinator has the same of all, the job is up::

    NEW -> CONNECTING -> REGISTERING -> WAITING -> BRINGING_UP -> COMMITTING -> UP -> LEAVING -> CLOSED
                 ^            |
                 +------------+  the coordinator went before it had answered: it was an old one, or a stranger

A connection that breaks later is no failure: the session goes on over another one, and a coordinator that is not heard
is dialled again before its silence has lasted too long. That its port refuses is proof that it has gone.

From any state the peer may fail, which is final. It fails at once when it is told so; when it finds out itself, it says
goodbye with the cause, and the coordinator tells the others.
"""

from __future__ import annotations

from ....devices.base import LocalDevice
from ....errors import AuthenticationError, BringupError
from ....transport.ports import ProbeOutcome
from ....transport.wire.messages import (
    Beat,
    Commit,
    CoordinatorMessage,
    Dismissed,
    Formed,
    Goodbye,
    Heartbeat,
    HeartbeatAck,
    Leave,
    Leaving,
    LinkDelayed,
    Ready,
    Refused,
    StepQuery,
    Suspect,
    SyncPoint,
    Verdict,
    WatchMessage,
)
from ..core_table import CoreTable
from ..detector import Lag
from ..failure_errors import goodbye_cause, of_refusal
from ..id_ranges import unpack_ids
from ..job_lists import named
from ..pacing import phase_report_delay
from ..phases import Phase, Progress, Timeline
from ..probes import Tags
from ..roster import Roster
from . import events as ev
from .config import PeerConfig
from .coordinator_watch import CoordinatorWatch
from .group_watch import GroupWatch
from .heartbeats import Heartbeats
from .job_view import ClientState, JobView
from .leavers import Leavers
from .outbox import Outbox
from .program import place_of
from .states import BEFORE_UP, REGISTERED, RING_NEEDED, PeerState

_GRACE = 1.0
"""Seconds for the coordinator's answer, after the time that it gives the others to shut down."""

_PATIENCE_TO_TELL = 2.0
"""Seconds for which an early error of the devices waits for a connection: the others are to hear of it, and the user of
this client soon."""

_HEALTH_CHARACTERS_MAX = 1024
"""Of a health check's text, which every heartbeat carries to the coordinator, and a change of it to all."""


Effects = list[ev.PeerEffect]


class PeerMachine:
    """See the module's theory of operation.

    Attributes:
        config: of this peer.
        timeline: how long its phases took.
        view: its view of the other clients.
    """

    def __init__(self, config: PeerConfig, now: float) -> None:
        self.config = config
        self.timeline = Timeline(config.client_id, now)
        self._leavers = Leavers()
        self._state = PeerState.NEW
        self._last_phase: Phase | None = None
        self.view = JobView(config, now)
        self._watch = CoordinatorWatch(config, now)
        self._devices: tuple[LocalDevice, ...] | None = None
        self._is_linked = False
        self._health = (True, "")
        self._began = now
        self._tags = Tags()
        self._num_registrations = 0
        self._lag = Lag()
        self._outbox = Outbox(self._lag, now)
        self._initialization_deadline = now + config.initialization_timeout
        self._table: CoreTable | None = None
        self._heartbeats = Heartbeats(phase_report_delay(config.num_clients))
        self._group: GroupWatch | None = None
        self._suspected: tuple[float, int, str] | None = None
        self._backend_error: tuple[float, BringupError] | None = None
        self._leave_deadline: float | None = None
        self._program: ev.ProgressReported | None = None

    # Transitions.

    def handle(self, event: ev.PeerEvent, now: float) -> Effects:
        """Take in one event."""
        if self._state is PeerState.CLOSED:
            return []
        self._watch.awake(now)
        phase = self.phase
        effects = self._handle(event, now)
        if self.phase is not phase:
            self._heartbeats.phase_changed(self.phase, now)
        return self._outbox.pass_through(effects, now, is_registered=self._state in REGISTERED)

    def _handle(self, event: ev.PeerEvent, now: float) -> Effects:
        match event:
            case ev.Received(message):
                return self._receive(message, now)
            case ev.Watched(message):
                return self._watched(message, now)
            case ev.Begin():
                return self._begin(now)
            case ev.DialFailed(reason):
                self.view.dial_reason = reason
            case ev.Connected(tag, link_address) if self._tags.takes(ev.Connect, tag):
                return self._register(link_address, now)
            case ev.SessionLost(reason):
                return self._on_session_lost(reason, now)
            case ev.Reconnected():
                self._watch.resumed(now, is_sign_of_life=self._state in BEFORE_UP)
                return self._heartbeat(now)
            case ev.CoordinatorGone(reason):
                return self._close(self.view.coordinator_lost(self.phase, self._watch.death(reason)))
            case ev.Unauthenticated(reason):
                return self._close(AuthenticationError(reason))
            case ev.SessionGivenUp(reason):
                return self._close(self.view.coordinator_lost(self.phase, reason))
            case ev.ProbeAnswered(tag, outcome) if self._tags.takes(ev.Probe, tag):
                self._watch.answered(now, is_alive=outcome is ProbeOutcome.ALIVE)
            case ev.BackendStarted(tag, devices) if self._tags.takes(ev.StartBackend, tag):
                self._devices = devices
                self.timeline.leave(Phase.DEVICES, now)
                return self._merge_when_possible(now)
            case ev.RingConnected(tag) if self._tags.takes(ev.ConnectRing, tag):
                self._on_links(now)
                return self._merge_when_possible(now)
            case ev.Merged(tag, table, roster) if self._tags.takes(ev.Merge, tag):
                return self._report_ready(table, roster, now)
            case ev.BackendFailed(tag, error) if self._tags.takes(ev.StartBackend, tag):
                return self._on_backend_failed(error, now)
            case ev.MergeFailed(tag, error) if self._tags.takes(ev.Merge, tag):
                return self._fail(error)
            case ev.LinkBroken(client_id, cause) if self._state in RING_NEEDED and self._suspected is None:
                if client_id in self._leavers:
                    return []
                self._suspected = (self._watch.verdict_due(now), client_id, cause)
                return [ev.Send(Suspect(client_id, cause))]
            case ev.LinkUntrusted(client_id, cause) if self._state is PeerState.BRINGING_UP:
                return self._fail(
                    AuthenticationError(f"client {client_id} and this one do not trust each other: {cause}")
                )
            case ev.LinkDelayed(client_id, cause, is_refused) if self._state is PeerState.BRINGING_UP:
                self.view.link_reason = f"no link to client {client_id} yet: {cause}"
                return [ev.Send(LinkDelayed(client_id, cause, is_refused))]
            case ev.HealthChanged(healthy, detail):
                return self._on_health(healthy, detail[:_HEALTH_CHARACTERS_MAX], now)
            case ev.ProgressReported():
                self._program = event
            case ev.AgreementMessage(message):
                return [ev.Send(message)] if self._state is PeerState.UP else []
            case ev.LeaveRequested(collectives):
                return self._leave(collectives, now)
            case ev.Abort(error):
                return self._fail(error)
        return []

    def _receive(self, message: CoordinatorMessage, now: float) -> Effects:
        is_question = isinstance(message, HeartbeatAck) and message.sequence == 0 and self._group is not None
        self._watch.heard(now, is_question=is_question)
        match message:
            case HeartbeatAck() if is_question:
                return self._heartbeat(now)  # the coordinator wants to hear those of which no group reports
            case HeartbeatAck():
                return self._on_ack(message, now)
            case Formed():
                return self._on_formed(message, now)
            case Commit(spans) if self._state is PeerState.COMMITTING:
                formed = self.view.formed
                assert formed is not None
                assert self._table is not None
                assert self.view.roster is not None
                self._state = PeerState.UP
                self._watch.up(now)
                self.view.commit()
                self.timeline.leave(Phase.COMMIT, now)
                up = ev.Up(formed.job_id, formed.epoch, self.view.roster, self._table, spans, formed.has_services)
                return [up, *self._leavers.take_untold()]
            case Verdict():
                return [*self._pass_on(message), *self._close(self.view.of_verdict(message))]
            case Refused():
                message = named(message, self.config.addresses)
                return self._close(of_refusal(message, self.config.client_id, self.config.coordinator_address))
            case StepQuery() | SyncPoint():
                return [ev.Preempt(message)]
            case Leaving():
                return self._on_leaving(message)
            case Dismissed() if self._state is PeerState.LEAVING:
                return self._on_dismissed(message)
        return []

    def _watched(self, message: WatchMessage, now: float) -> Effects:
        """Take in a message of the neighbour in the group, and pass it on before anything else."""
        match message:
            case Beat() if self._group is not None:
                beat = self._group.take(message, self._place(now), now)
                return [] if beat is None else [ev.SendWatch(beat)]
            case Leaving():
                return self._on_leaving(message)
            case Verdict() if self._state is PeerState.LEAVING:
                return self._pass_on(message)  # it is for those that stay: client 0 itself tells a leaver how it ends
            case Verdict():
                error = self.view.of_verdict(message)
                # The coordinator need not see to it that this client hears of the end from it, too.
                goodbye = Goodbye(self.phase, type(error).__name__, message.cause)
                return [*self._pass_on(message), ev.Send(goodbye), *self._close(error)]
        return []

    def crash(self, error: BaseException) -> Effects:
        """Fail; safe after an exception that left this machine or its driver half-way through a change."""
        return [] if self._state is PeerState.CLOSED else self._fail(error)

    def wake(self, now: float) -> Effects:
        """Do what falls due."""
        if self._state is PeerState.CLOSED:
            return []
        self._lag.woken(self.deadline(), now)
        self._watch.awake(now)
        if self._lag.is_reading(now):
            return []
        return self._outbox.pass_through(self._fall_due(now), now, is_registered=self._state in REGISTERED)

    def _fall_due(self, now: float) -> Effects:
        if end := self._judge(now):
            return end
        if self._group is not None and (due := self._group.wave_due()) is not None and now >= due:
            return [ev.SendWatch(self._group.begin(self._place(now), now))]
        if (due := self._redial_due()) is not None and now >= due:
            return self._redial(now)
        if (due := self._ask_due()) is not None and now >= due:
            return self._ask()
        due = self._heartbeat_due()
        return self._heartbeat(now) if due is not None and now >= due else []

    def _judge(self, now: float) -> Effects:
        if self._state in BEFORE_UP and now >= self._initialization_deadline:
            return self._fail(self.view.timed_out(self.phase))
        if self._watch.is_hosted:
            # Its coordinator lives as it does; where it is overloaded, it answers itself late, too.
            self._watch.answered(now, is_alive=True)
        if silence := self._watch.silence(now):
            # It may still hear this client, and can tell the others then.
            return self._fail(self.view.coordinator_lost(self.phase, silence))
        if self._backend_error is not None and now >= self._backend_error[0]:
            return self._fail(self._backend_error[1], Phase.DEVICES)
        if self._suspected is not None and now >= self._suspected[0]:
            return self._fail(self.view.link_broken(self.phase, *self._suspected[1:]))
        if self._leave_deadline is not None and now >= self._leave_deadline:
            return self._fail(self.view.coordinator_lost(self.phase, "it did not answer the wish to shut down"))
        return []

    def caught_up(self, now: float) -> None:
        """See `Detector.caught_up`."""
        self._watch.caught_up(now)

    def deadline(self) -> float | None:
        """Return when to wake this machine next."""
        if self._state is PeerState.CLOSED:
            return None
        candidates = [self._watch.deadline(), self._heartbeat_due(), self._redial_due(), self._ask_due()]
        candidates += [self._leave_deadline, self._outbox.due()]
        candidates.append(None if self._group is None else self._group.wave_due())
        if self._state in BEFORE_UP:
            candidates.append(self._initialization_deadline)
        candidates += [waiting[0] for waiting in (self._suspected, self._backend_error) if waiting is not None]
        dues = [due for due in candidates if due is not None]
        return self._lag.after(min(dues)) if dues else None

    # Steps.

    def _begin(self, now: float) -> Effects:
        assert self._state is PeerState.NEW
        self._state = PeerState.CONNECTING
        self.timeline.enter(Phase.CONNECT, self._began)
        self.timeline.enter(Phase.DEVICES, self._began)
        return [ev.Connect(self._tags.next(ev.Connect)), ev.StartBackend(self._tags.next(ev.StartBackend))]

    def _register(self, link_address: str, now: float) -> Effects:
        self._state = PeerState.REGISTERING
        self._num_registrations += 1
        if self._num_registrations == 1:
            self.view.dial_reason = "it has not answered the registration yet"
        self._watch.registers(now)
        return [
            ev.Send(self.config.registration(link_address, self._num_registrations)),
            *([] if self._backend_error is None else self._fail(self._backend_error[1], Phase.DEVICES)),
        ]

    def _on_ack(self, ack: HeartbeatAck, now: float) -> Effects:
        if self._state is PeerState.REGISTERING:
            self._state = PeerState.WAITING
            self.timeline.leave(Phase.CONNECT, now)
            self.timeline.enter(Phase.RENDEZVOUS, now)
            self._heartbeats.begin(now)
        self.view.acknowledge(ack, now)
        self._heartbeats.answered(ack.sequence)
        if self._group is not None:
            self._group.told_when(ack.wave_in, now)
        return []

    def _on_formed(self, formed: Formed, now: float) -> Effects:
        if self._state is not PeerState.WAITING:
            return []
        self._state = PeerState.BRINGING_UP
        self.view.form(formed)
        self.timeline.leave(Phase.RENDEZVOUS, now)
        self.timeline.enter(Phase.RING, now)
        tag = self._tags.next(ev.ConnectRing)
        return [ev.ConnectRing(tag, formed.job_id, formed.epoch, formed.place, formed.neighbours)]

    def _on_links(self, now: float) -> None:
        self._is_linked, self.view.link_reason = True, ""
        self.timeline.leave(Phase.RING, now)
        formed = self.view.formed
        assert formed is not None
        if formed.place.count > 1:
            self._group = GroupWatch(formed.place, self.config, self._heartbeats, self._watch, self.view, now)

    def _pass_on(self, message: Verdict | Leaving) -> Effects:
        return [] if self._group is None else [ev.SendWatch(message)]

    def _merge_when_possible(self, now: float) -> Effects:
        if self._state is not PeerState.BRINGING_UP or self._devices is None or not self._is_linked:
            return []
        self.timeline.enter(Phase.MERGE, now)
        formed = self.view.formed
        assert formed is not None
        return [ev.Merge(self._tags.next(ev.Merge), self._devices, formed.roster)]

    def _report_ready(self, table: CoreTable, roster: Roster, now: float) -> Effects:
        self._state = PeerState.COMMITTING
        self._table, self.view.roster = table, roster
        self.timeline.leave(Phase.MERGE, now)
        self.timeline.enter(Phase.COMMIT, now)
        return [ev.Send(Ready(table.digest, self.timeline.spans(), roster.digest))]

    def _leave(self, collectives: int, now: float) -> Effects:
        if self._state is not PeerState.UP:
            return []
        self._state = PeerState.LEAVING
        self._leave_deadline = now + self.config.shutdown_timeout + _GRACE
        return [ev.Send(Leave(self.config.shutdown_timeout, collectives))]

    def _on_leaving(self, message: Leaving) -> Effects:
        if not self._leavers.add(message):
            return []
        if self._suspected is not None and self._suspected[1] in self._leavers:
            self._suspected = None
        told = [] if self._state is PeerState.COMMITTING else self._leavers.take_untold()
        return [*self._pass_on(message), *told]

    def _on_dismissed(self, dismissed: Dismissed) -> Effects:
        missing = dismissed.missing
        error = self.view.not_joined(missing, dismissed.num_missing) if missing else None
        self._leavers.ended(set(range(self.config.num_clients)).difference(unpack_ids(missing)))
        self._end(error)
        return [ev.Left(tuple(unpack_ids(missing)), error)]

    def _on_session_lost(self, reason: str, now: float) -> Effects:
        if self._state is PeerState.REGISTERING:
            self._state = PeerState.CONNECTING
            self.view.dial_reason = reason
            return [ev.Connect(self._tags.next(ev.Connect))]
        if self._state not in REGISTERED:
            return []
        if self._watch.is_hosted:
            return self._close(self.view.coordinator_lost(self.phase, reason))
        self._watch.connection_broke(reason, now)
        return []

    def _heartbeat(self, now: float) -> Effects:
        number = self._heartbeats.send(self.phase, now)
        self._watch.sent(now)
        group = () if self._group is None else self._group.report(now)
        step, age, busy = self._place(now)
        return [ev.Send(Heartbeat(number, self.phase, *self._health, step, age, busy, self.view.seen, group))]

    def _place(self, now: float) -> tuple[int, float, float]:
        return place_of(self._program, now, is_leaving=self._state is PeerState.LEAVING)

    def _on_backend_failed(self, error: BringupError, now: float) -> Effects:
        if self._state is not PeerState.CONNECTING:
            return self._fail(error, Phase.DEVICES)
        # It is kept until the coordinator can be told of it, but not for long.
        self._backend_error = (now + _PATIENCE_TO_TELL, error)
        return []

    def _on_health(self, healthy: bool, detail: str, now: float) -> Effects:
        self._health = (healthy, detail)
        if self._state is PeerState.UP and self.config.fails_when_unhealthy and not healthy:
            return self._fail(self.view.devices_failed(self.phase, detail))
        return self._heartbeat(now) if self._state in REGISTERED else []

    def _fail(self, error: BaseException, phase: Phase | None = None) -> Effects:
        """Fail, and say goodbye with the cause; `phase` is the phase of the error, by default the current one."""
        goodbye = Goodbye(phase or self.phase, type(error).__name__, goodbye_cause(error))
        effects: Effects = [ev.Send(goodbye)] if self._state in (PeerState.REGISTERING, *REGISTERED) else []
        return effects + self._close(error)

    def _close(self, error: BaseException) -> Effects:
        self._end(error)
        return [ev.Failed(error)]

    def _end(self, error: BaseException | None) -> None:
        self._last_phase = self.phase if error is not None else Phase.CLOSED
        self.view.end(error)
        self._state = PeerState.CLOSED

    # Facts.

    @property
    def phase(self) -> Phase:
        """The phase this client is in, for reports."""
        if self._state is not PeerState.BRINGING_UP:
            return self._state.phase
        if self._devices is None:
            return Phase.DEVICES
        return Phase.MERGE if self._is_linked else Phase.RING

    @property
    def leavers(self) -> tuple[int, ...]:
        """The clients that are known to be leaving, as pairs of ids."""
        return self._leavers.packed()

    def progress(self, now: float) -> Progress:
        """Return the state of the bring-up, for a progress line."""
        known = self.view
        return Progress(self.phase, self.timeline.elapsed(now), known.missing(), known.waiting_for(self.phase))

    def state_of(self, client_id: int) -> ClientState:
        """Return the last known state of a client; one of which nothing was told is as well as the job is far."""
        is_own = client_id == self.config.client_id
        own = ClientState(self._last_phase or self.phase, *self._health, self._watch.reconnects) if is_own else None
        return self.view.state_of(client_id, own, is_leaving=client_id in self._leavers)

    # Helpers.

    def _heartbeat_due(self) -> float | None:
        patience_ends = self._initialization_deadline if self._state in BEFORE_UP else None
        if (sent_at := self._heartbeats.sent_at) is None:
            return None
        regular = sent_at + self._watch.interval if self._group is None else self._group.heartbeat_due(sent_at)
        return self._heartbeats.due(regular, self.phase, self.view.updated_at, patience_ends)

    def _redial(self, now: float) -> Effects:
        if self._state is PeerState.REGISTERING:
            return self._on_session_lost(self._watch.registers_anew(), now)
        return [ev.Redial(self._watch.redials())]

    def _ask(self) -> Effects:
        host = self.view.host
        assert host is not None
        return [ev.Probe(self._tags.next(ev.Probe), host.link_address, host.incarnation)]

    def _ask_due(self) -> float | None:
        """Return when to probe the coordinator's process, once its address is known."""
        can_ask = self.view.host is not None and not self._tags.awaits(ev.Probe)
        return self._watch.ask_due() if can_ask else None

    def _redial_due(self) -> float | None:
        """Return when to dial the coordinator again although its connection stands."""
        if self._state is PeerState.REGISTERING:
            return self._watch.registration_due()
        return self._watch.redial_due() if self._state in REGISTERED else None
