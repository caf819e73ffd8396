"""The coordinator: membership, commit, and the verdict on a failed job.

Theory of operation. Every client opens a session and registers. When all have, the job has formed: it gets its id, and
everybody the list of members. When all have reported the same digest of the merged table, the job is committed. From a
client's registration on, its heartbeats are judged::

    FORMING -> BRINGING_UP -> RUNNING -> CLOSED

One verdict ends it, and goes to everybody: a client said goodbye with a cause, its process died, a ring link broke, it
was silent for too long, or the clients disagree. A broken connection or link is evidence, not proof: the client's
process is asked, so that the verdict says whether it died. A client that comes back to its session before its silence
has lasted too long is forgiven, and counted. Orderly leaving works like a barrier: all meet, then all go.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Collection, Iterable

from ....errors import CoordinatorLostError, PeerFailedError, TopologyError
from ....transport.wire.messages import (
    ClientMessage,
    Commit,
    Dismissed,
    Formed,
    Goodbye,
    Heartbeat,
    HeartbeatAck,
    Leave,
    Leaving,
    LinkDelayed,
    Overdue,
    PreemptionNotice,
    Ready,
    Register,
    StepQuery,
    StepReply,
    Suspect,
    SyncPoint,
    Verdict,
)
from ..detector import Detector, Lag
from ..failure_errors import RENDEZVOUS_TIMEOUT, TOLD_AS_THEY_ARE
from ..groups import Groups
from ..id_ranges import COORDINATOR, name_ids, pack_some, unpack_ids
from ..pacing import pace, patience, until_next_wave
from ..phases import Phase
from ..preemption import PreemptionAgreement
from ..roster import Roster
from . import events as ev
from .admission import refusal_of, refusal_of_impostor
from .commit import CommitVote
from .config import CoordinatorConfig
from .departures import Departures
from .group_reports import GroupReports
from .last_word import LastWord
from .members import Members, MemberState, info_of
from .roll_call import RollCall
from .stragglers import Stragglers
from .suspicion import Suspicions, culprit_of

_OVERDUE_INTERVALS = 1.5
"""Heartbeat intervals after which a client is shown as late: one is due by then, and half of one for its way."""

_REPORT_INTERVALS = 0.5
"""More of them for a client that is heard through the leader of its group, whose report waits so long for the wave."""

_OVERDUE_MAX = 64
"""Of them in one answer: where a switch fails, half of the job is late, and half in each answer would be a square."""

_CULPRITS_MAX = 64
"""Of those whose neighbours are told of a verdict first."""

_RUNS_MAX = 512
"""Of ids in a message that ends the job for all: in the worst case every second client is missing."""

_EPOCH = 1
"""Of every message and link of the job. Another one would tell apart the links of a job that has formed again."""

Effects = list[ev.CoordinatorEffect]


class _State(enum.Enum):
    FORMING = enum.auto()
    BRINGING_UP = enum.auto()
    RUNNING = enum.auto()
    CLOSED = enum.auto()


class CoordinatorMachine:
    """See the module's theory of operation."""

    def __init__(self, config: CoordinatorConfig) -> None:
        self.config = config
        self._state = _State.FORMING
        self._members = Members(config.num_clients)
        self._roll_call = RollCall(self._members, config.num_clients)
        self._vote = CommitVote(config.num_clients)
        self._groups = Groups(config.num_clients)
        self._roster: Roster | None = None
        interval, timeout = config.heartbeat_interval, config.heartbeat_timeout
        self._interval = pace(config.num_clients, interval)
        self._detector = Detector(patience(config.num_clients, interval, timeout), self._interval)
        self._reports = GroupReports(self._groups, self._detector, 0.0)
        self._lag = Lag()
        self._suspicions = Suspicions()
        self._stragglers = Stragglers(config.stall_timeout)
        self._preemption = PreemptionAgreement(config.num_clients)
        self._departures = Departures(config.num_clients)
        self._last_word = LastWord()
        self.welcome = HeartbeatAck(0, (), (), ())  # also says where client 0 is, once that is known: see `welcome`

    # Transitions.

    def handle(self, event: ev.CoordinatorEvent, now: float) -> Effects:
        """Take in one event."""
        self._detector.awake(now)
        match event:
            case ev.MessageReceived(session, message, certified_id):
                if isinstance(message, Register) and certified_id not in (None, message.client_id):
                    return [ev.SendTo((session,), refusal_of_impostor(message, certified_id)), ev.CloseSession(session)]
                if self._state is _State.CLOSED:
                    return self._answer_too_late(session, message)
                if isinstance(message, Register):
                    return self._register(session, message, now)
                if (member := self._members.at(session)) is None:
                    return [ev.CloseSession(session)]
                return self._on_message(member, message, now)
            case ev.SessionEnded(session) if (member := self._members.at(session)) is not None:
                return self._on_session_ended(member, event, now)
            case ev.SessionResumed(session) if (member := self._members.at(session)) is not None:
                return self._on_session_resumed(member, now)
            case ev.ProbeAnswered(tag, outcome, detail) if self._state is not _State.CLOSED:
                self._suspicions.answered(tag, outcome, detail, now, has_slept=self._detector.slept(now) > 0)
        return []

    def _on_message(self, member: MemberState, message: ClientMessage, now: float) -> Effects:
        self._detector.heard(member.client_id, now)
        match message:
            case Heartbeat():
                return self._on_heartbeat(member, message, now)
            case Ready():
                return self._on_ready(member, message, now)
            case Suspect(client_id, cause) if client_id in self._members and not self._members[client_id].is_leaving:
                evidence = f"its ring link with client {member.client_id} broke: {cause}"
                self._suspicions.link_broke(client_id, evidence, now)
                return self._probe_suspects(now)
            case LinkDelayed(client_id, cause, is_refused) if client_id in self._members:
                member.trouble = f"no link to client {client_id} yet: {cause}"
                if is_refused:
                    evidence = f"client {member.client_id} cannot open its ring link: {cause}"
                    self._suspicions.link_refused(client_id, evidence, now)
                return self._probe_suspects(now)
            case PreemptionNotice(_, deadline_in, reason):
                return self._say_all(self._preemption.announce(member.client_id, deadline_in, reason, now))
            case StepReply():
                return self._say_all(self._preemption.replied(member.client_id, message, now))
            case Leave() if not member.is_leaving:
                return self._on_leave(member, message, now)
            case Goodbye(phase, error, cause):
                self._members.note(member, phase, member.healthy, member.health)
                return self._on_goodbye(member, error, cause, now)
        return []

    def end(self, verdict: Verdict) -> Effects:
        """End the job with a verdict; safe after an exception that left this machine half-way through a change."""
        if self._last_word.verdict is not None:
            return []
        self._state = _State.CLOSED
        self._last_word.end(verdict, self._members.absent())
        first = self._reports.told_first(
            (verdict.client_id, *itertools.islice(unpack_ids(verdict.also), _CULPRITS_MAX))
        )
        sessions = [self._members[client_id].session for client_id in first]
        return [ev.SendTo(tuple(dict.fromkeys([*sessions, *self._members.sessions])), verdict)]

    def wake(self, now: float) -> Effects:
        """Do what falls due."""
        self._lag.woken(self.deadline(), now)
        self._detector.awake(now)
        if self._state is _State.CLOSED:
            return []
        if not self._lag.is_reading(now) and (verdict := self._judge(now)):
            return verdict
        messages = [*self._preemption.wake(now), *self._departures.announce(now)]
        return [*self._probe_suspects(now), *self._say_all(messages), *self._ask_unreported(now)]

    def _judge(self, now: float) -> Effects:
        if self._suspicions.verdict_is_due(now):
            return self._fail_for_the_dead(now)
        if (doubtful := self._suspicions.doubtful(now)) is not None:
            return self._fail(self._members[doubtful[0]], doubtful[1])
        if silent := self._detector.silent(now):
            return self._fail_for_silence(silent)
        if self._departures.dismissal_is_due(now):
            return self._dismiss()
        return []

    def caught_up(self, now: float) -> None:
        """See `Detector.caught_up`."""
        self._detector.caught_up(now)

    def deadline(self) -> float | None:
        """Return when to wake this machine next."""
        if self._state is _State.CLOSED:
            return None
        parts = (self._detector, self._suspicions, self._preemption, self._departures, self._reports)
        dues = [due for part in parts if (due := part.deadline()) is not None]
        return self._lag.after(min(dues)) if dues else None

    @property
    def has_told_all(self) -> bool:
        """Whether the job is over, and every client that may still come has heard the verdict."""
        return self._state is _State.CLOSED and self._last_word.all_told

    def is_member(self, client_id: int, incarnation: int) -> bool:
        """Return whether a process is a member of this job."""
        member = self._members.get(client_id)
        return member is not None and member.register.incarnation == incarnation

    def dead(self) -> Collection[int]:
        """Return the clients that are dead, as far as is known."""
        return self._suspicions.dead

    def whereabouts(self, client_id: int) -> str:
        """Return address, phase and step of a client, for a text."""
        step = self._stragglers.describe(client_id).removeprefix("it is ")
        member = self._members[client_id]
        return f"{member.register.address}, in phase {member.phase}" + (f", {step}" if step else "")

    # Steps.

    def _register(self, session: int, register: Register, now: float) -> Effects:
        if self._members.at(session) is not None:
            return [ev.CloseSession(session)]
        incumbent = self._members.get(register.client_id)
        if incumbent is not None and incumbent.register.incarnation == register.incarnation:
            return self._register_again(incumbent, session, register.attempt, now)
        refusal = refusal_of(register, self.config, self._members, is_forming=self._state is _State.FORMING)
        if refusal is not None:
            return [ev.SendTo((session,), refusal), ev.CloseSession(session)]
        self._members.add(register, session)
        self._detector.heard(register.client_id, now)
        effects: Effects = [ev.SendTo((session,), self.welcome)]
        if self._members.are_complete:
            self._state = _State.BRINGING_UP
            effects += self._announce(now)
        return effects

    def _register_again(self, member: MemberState, session: int, attempt: int, now: float) -> Effects:
        """Register a member again: its first connection broke before it had heard anything, so all is sent again."""
        if attempt < member.attempt:
            return [ev.CloseSession(session)]  # what the lost connection still held has come late
        client_id, old = member.client_id, member.session
        member.attempt = attempt
        self._members.move(member, session)
        self._suspicions.session_resumed(client_id)
        self._detector.heard(client_id, now)
        effects: Effects = [ev.CloseSession(old), ev.SendTo((session,), self.welcome)]
        if self._state is _State.BRINGING_UP:
            effects.append(ev.SendTo((session,), self._formed_for(member)))
        return effects

    def _on_session_ended(self, member: MemberState, ended: ev.SessionEnded, now: float) -> Effects:
        client_id = member.client_id
        member.is_connected = False
        if self._state is _State.CLOSED:
            self._last_word.left(client_id, is_settled=ended.is_settled)
            return []
        if member.is_leaving:
            self._detector.forget(client_id)
            self._reports.left(client_id, now)
            return []
        self._suspicions.session_broke(client_id, f"its connection to the coordinator ended: {ended.reason}", now)
        return self._probe_suspects(now)

    def _on_session_resumed(self, member: MemberState, now: float) -> Effects:
        client_id = member.client_id
        member.is_connected = True
        self._last_word.resumed(client_id)
        if self._state is not _State.CLOSED:
            self._suspicions.session_resumed(client_id)
            self._detector.heard(client_id, now)
            self._members.reconnect(member)
        return []

    def _on_heartbeat(self, member: MemberState, beat: Heartbeat, now: float) -> Effects:
        self._members.note(member, beat.phase, beat.healthy, beat.health)
        self._stragglers.note(member.client_id, beat, now)
        clients = self._reports.clients_of(member.client_id)
        self._reports.take(member.client_id, beat.group, now)
        for report in beat.group if clients else ():
            self._stragglers.note_group(clients, report, now)
        if (stalled := self._stragglers.stalled(member.client_id, *clients)) is not None:
            return self._fail(self._members[stalled[0]], stalled[1])
        effects: Effects = [ev.SendTo((member.session,), self._ack(beat, now, leads=bool(clients)))]
        if self._reports.are_used and not clients:
            effects += [ev.SendTo((member.session,), told) for told in self._departures.untold(member.client_id)]
        return effects

    def _on_ready(self, member: MemberState, ready: Ready, now: float) -> Effects:
        self._vote.add(member.client_id, ready)
        self._members.note(member, Phase.COMMIT, member.healthy, member.health)
        if self._state is not _State.BRINGING_UP:
            return []
        if (cause := self._other_roster(member, ready)) is not None:
            return self._fail(member, cause, error=TopologyError.__name__)
        if not self._vote.is_complete:
            return []
        if (disagreement := self._vote.disagreement()) is not None:
            odd, cause = disagreement
            return self._fail(self._members[odd], cause, error=TopologyError.__name__)
        self._state = _State.RUNNING
        self._interval, timeout = self.config.heartbeat_interval, self.config.heartbeat_timeout
        if self._detector.timeout != timeout:
            self._detector.judge_by(timeout, self._interval, now)
        self._members.commit()
        return [self._to_all(self._vote.commit())]

    def _other_roster(self, member: MemberState, ready: Ready) -> str | None:
        """Return the cause where a client has got another list of clients than was sent."""
        if self._roster is None or ready.roster_digest == self._roster.digest:
            return None
        who = f"client {member.client_id} ({member.register.hostname}, {member.register.address})"
        theirs = ready.roster_digest.hex() or "none"
        return (
            f"{who} holds another list of clients than the coordinator sent over the ring: {theirs} there, and "
            f"{self._roster.digest.hex()} on client 0. It was changed on its way there. Restart the job."
        )

    def _on_leave(self, member: MemberState, leave: Leave, now: float) -> Effects:
        client_id = member.client_id
        self._members.leave(member)
        self._suspicions.forget(client_id)
        self._stragglers.leaves(client_id)
        self._departures.add(client_id, leave, now)
        if self._members.all_leave:
            return self._dismiss()
        messages = [*self._preemption.leaves(client_id, now), *self._departures.announce(now)]
        return [ev.Departed(client_id), *self._say_all(messages)]

    def _dismiss(self) -> Effects:
        """Dismiss the leaving clients; for the others the job ends, as it cannot go on without them."""
        self._state = _State.CLOSED
        leavers = [member for member in self._members if member.is_leaving]
        stayers = [member for member in self._members if not member.is_leaving]
        without = [member.client_id for member in stayers]
        self._last_word.end(None, (member.client_id for member in self._members if not member.is_connected))
        dismissed = Dismissed(pack_some(without, _RUNS_MAX), len(without))
        effects: Effects = [ev.SendTo(tuple(member.session for member in leavers), dismissed)]
        if stayers:
            cause = f"it shut down, and {name_ids(without)} did not join in time"
            effects.append(ev.SendTo(tuple(member.session for member in stayers), self._verdict(leavers[0], cause)))
        return effects

    def _on_goodbye(self, member: MemberState, error: str, cause: str, now: float) -> Effects:
        if error == CoordinatorLostError.__name__:
            self._suspicions.gave_up(member.client_id, f"it lost the coordinator: {cause}", now)
            return []
        if error == RENDEZVOUS_TIMEOUT and self._state is _State.RUNNING:
            return self._fail(member, f"{error}: its initialization_timeout had passed when the job came up")
        if error == RENDEZVOUS_TIMEOUT:
            text = f"the patience of client {member.client_id} ended first"
            return self._fail(member, f"{text}{self._members.link_trouble()}", error=error)
        if error in TOLD_AS_THEY_ARE:
            return self._fail(member, cause, error=error)
        return self._fail(member, f"{error}: {cause}")

    def _answer_too_late(self, session: int, message: ClientMessage) -> Effects:
        """Send the verdict to a client that comes for the first time; a member that comes again wants the next job."""
        if (member := self._members.at(session)) is not None:
            if isinstance(message, Goodbye):
                self._last_word.gone((member.client_id,))
            return []
        verdict = self._last_word.take(message.client_id) if isinstance(message, Register) else None
        answer: Effects = [] if verdict is None else [ev.SendTo((session,), verdict)]
        return [*answer, ev.CloseSession(session)]

    def _ask_unreported(self, now: float) -> Effects:
        """Ask the clients of which no leader has told for heartbeats of their own, by an answer to none."""
        asked = [self._members[client_id] for client_id in self._reports.to_ask(now)]
        sessions = tuple([member.session for member in asked if not member.is_leaving or member.is_connected])
        return [ev.SendTo(sessions, HeartbeatAck(0, (), (), ()))] if sessions else []

    def _probe_suspects(self, now: float) -> Effects:
        registers = ((tag, self._members[client_id].register) for tag, client_id in self._suspicions.probes(now))
        return [ev.Probe(tag, register.link_address, register.incarnation) for tag, register in registers]

    def _fail_for_the_dead(self, now: float) -> Effects:
        found = culprit_of(self._suspicions, self._detector, self.config.num_clients, now)
        error = CoordinatorLostError if found.is_host else PeerFailedError
        return self._fail(self._members[found.client_id], found.cause, error=error.__name__, also=found.also)

    def _fail_for_silence(self, silent: list[tuple[int, float]]) -> Effects:
        (client_id, age), *others = silent
        details = [
            text for text in (self._suspicions.evidence(client_id), self._stragglers.describe(client_id)) if text
        ]
        cause = f"no heartbeat for {age:.1f} s" + (f" ({'; '.join(details)})" if details else "")
        return self._fail(self._members[client_id], cause, also=dict(others))

    def _fail(
        self, member: MemberState, cause: str, *, error: str = PeerFailedError.__name__, also: Iterable[int] = ()
    ) -> Effects:
        others = {*self._suspicions.dead, *also} - {member.client_id}
        self._last_word.gone({*others, member.client_id})
        return self.end(self._verdict(member, cause, error, others))

    # Helpers.

    def _verdict(
        self, member: MemberState, cause: str, error: str = PeerFailedError.__name__, also: Collection[int] = ()
    ) -> Verdict:
        who, missing = member.register, self._members.missing()
        if not missing and error == RENDEZVOUS_TIMEOUT:
            _, missing = self._members.behind()
        some_missing, some_also = (pack_some(ids, _RUNS_MAX) for ids in (missing, also))
        return Verdict(
            error,
            who.client_id,
            who.address,
            who.hostname,
            member.phase,
            cause,
            some_missing,
            some_also,
            len(missing),
            len(also),
        )

    def _say_all(self, messages: Iterable[StepQuery | SyncPoint | Leaving]) -> Effects:
        """Tell all clients; of departures only the leaders of groups, where there are several, which pass them on."""
        leaders = tuple([self._members[leader].session for leader in self._groups.leaders if self._reports.are_used])
        return [
            ev.SendTo(leaders, message) if leaders and isinstance(message, Leaving) else self._to_all(message)
            for message in messages
        ]

    def _to_all(self, message: Commit | Verdict | StepQuery | SyncPoint | Leaving) -> ev.SendTo:
        return ev.SendTo(self._members.sessions, message)

    def _announce(self, now: float) -> Effects:
        """Tell all that the job has formed, each its place in it."""
        self._roster = self._members.roster()
        hostnames = [self._members[client_id].register.hostname for client_id in range(self.config.num_clients)]
        self._groups = Groups(self.config.num_clients, self.config.group_size, hostnames)
        self._reports = GroupReports(self._groups, self._detector, now)
        return [ev.SendTo((member.session,), self._formed_for(member)) for member in self._members]

    def _formed_for(self, member: MemberState) -> Formed:
        assert self._roster is not None
        config, client_id = self.config, member.client_id
        beside = (self._members[neighbour].register for neighbour in self._groups.neighbours_of(client_id))
        roster = self._roster.data if client_id == COORDINATOR else b""
        place = self._groups.place_of(client_id)
        return Formed(config.job_id, _EPOCH, place, tuple(map(info_of, beside)), roster, config.has_services)

    def _ack(self, beat: Heartbeat, now: float, *, leads: bool) -> HeartbeatAck:
        missing, num_missing = self._roll_call.missing(now) if self._state is _State.FORMING else ((), 0)
        behind = self._roll_call.behind(now) if self._state is _State.BRINGING_UP else ()
        intervals = _OVERDUE_INTERVALS + (_REPORT_INTERVALS if self._reports.are_used else 0.0)
        late = self._detector.overdue(now, intervals * self._interval, _OVERDUE_MAX)
        overdue = tuple(Overdue(client_id, age) for client_id, age in late)
        updates, news = self._members.changes_after(beat.seen)
        steps = self._stragglers.furthest_behind(now)
        wave_in = until_next_wave(now, self.config.heartbeat_interval) if leads else 0.0
        return HeartbeatAck(beat.sequence, missing, overdue, updates, steps, (), num_missing, behind, news, wave_in)
