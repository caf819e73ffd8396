"""The coordinator: who is in the job, whether it is up, and why it failed.

Theory of operation. Every client opens a session and registers. When all have, the job has formed: it gets its id, and
everybody the list of members. When all have reported the same digest of the merged table, the job is committed. From a
client's registration on, its heartbeats are judged::

    FORMING -> BRINGING_UP -> RUNNING -> CLOSED

One verdict ends it, and goes to everybody: a client said goodbye with a cause, its session or a ring link broke, it was
silent for too long, or the clients disagree. A broken session or link is evidence, not proof: the client's process is
asked first, so that the verdict says whether it died. Orderly leaving works like a barrier: all meet, then all go.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from ...errors import CoordinatorLostError
from ...transport.messages import (
    BarrierFailed,
    BarrierReleased,
    ClientMessage,
    Commit,
    Dismissed,
    EnterBarrier,
    Formed,
    Goodbye,
    Heartbeat,
    HeartbeatAck,
    Leave,
    MemberInfo,
    MemberUpdate,
    Overdue,
    Ready,
    Register,
    Suspect,
    Verdict,
)
from ...transport.ports import ProbeOutcome
from . import events as ev
from .admission import CoordinatorConfig, refusal_of
from .barriers import Barriers, Released, TimedOut, Waiter
from .detector import Detector
from .ids import format_ids, pack_ids
from .kinds import join_runs
from .phases import Phase, furthest_behind, slowest
from .verdicts import JOB_WIDE_ERRORS, RENDEZVOUS_TIMEOUT

__all__ = ["CoordinatorConfig", "CoordinatorMachine"]

_OVERDUE_INTERVALS = 1.5
# Clients that die together are named together: so long after the first proof the verdict waits for others.
_VERDICT_DELAY = 0.02
# A link that broke between two live processes is mostly the consequence of something else, which shows within this.
_DOUBT = 1.0
_EPOCH = 1
_HOST = 0


class _State(enum.Enum):
    FORMING = enum.auto()
    BRINGING_UP = enum.auto()
    RUNNING = enum.auto()
    CLOSED = enum.auto()


@dataclass(slots=True)
class _Member:
    register: Register
    session: int
    phase: str = Phase.RENDEZVOUS
    healthy: bool = True
    health: str = ""
    ready: Ready | None = None
    is_leaving: bool = False
    evidence: str = ""
    news_seen: int = 0


Effects = list[ev.CoordinatorEffect]


class CoordinatorMachine:
    """See the module's theory of operation."""

    def __init__(self, config: CoordinatorConfig) -> None:
        self.config = config
        self._state = _State.FORMING
        self._members: dict[int, _Member] = {}
        self._registers: dict[int, Register] = {}
        self._packed_missing: tuple[int, ...] | None = None
        self._client_of: dict[int, int] = {}
        self._detector = Detector(config.heartbeat_timeout, config.heartbeat_interval)
        self._barriers = Barriers(config.num_clients)
        self._probes: dict[ev.Tag, int] = {}
        self._dead: dict[int, str] = {}
        self._verdict_due: float | None = None
        self._doubts: dict[int, tuple[float, str]] = {}
        self._sequence = 0
        self._news: OrderedDict[int, int] = OrderedDict()
        self._leave_deadline: float | None = None
        self._last_word: Verdict | None = None
        self._untold: set[int] = set()

    # Transitions.

    def handle(self, event: ev.CoordinatorEvent, now: float) -> Effects:
        """Take in one event."""
        self._detector.awake(now)
        match event:
            case ev.SessionMessage(session, message):
                if self._state is _State.CLOSED:
                    return self._answer_too_late(session, message)
                if isinstance(message, Register):
                    return self._register(session, message, now)
                client_id = self._client_of.get(session)
                if client_id is None:
                    return [ev.CloseSession(session)]
                return self._on_message(self._members[client_id], message, now)
            case ev.SessionEnded(session, reason):
                client_id = self._client_of.pop(session, None)
                if client_id is None or self._state is _State.CLOSED:
                    return []
                if self._members[client_id].is_leaving:
                    self._detector.forget(client_id)
                    return []
                return self._suspect(client_id, f"its connection to the coordinator ended: {reason}")
            case ev.ProbeAnswered(tag, outcome, detail):
                suspect = self._probes.pop(tag, None)
                if suspect is None or self._state is _State.CLOSED:
                    return []
                return self._judge_probe(suspect, outcome, detail, now)

    def _on_message(self, member: _Member, message: ClientMessage, now: float) -> Effects:
        self._detector.heard(member.register.client_id, now)
        match message:
            case Heartbeat(sequence, phase, healthy, health):
                self._note(member, phase, healthy, health)
                return [ev.Answer((member.session,), self._ack(member, sequence, now))]
            case Ready():
                return self._on_ready(member, message)
            case Suspect(client_id, cause) if client_id in self._members:
                reporter = member.register.client_id
                return self._suspect(client_id, f"its ring link with client {reporter} broke: {cause}")
            case EnterBarrier(name, ticket, timeout):
                waiter = Waiter(member.register.client_id, ticket)
                return self._on_barrier(self._barriers.enter(name, waiter, timeout, now))
            case Leave(timeout):
                return self._on_leave(member, timeout, now)
            case Goodbye(phase, error, cause):
                member.phase = phase
                return self._on_goodbye(member, error, cause)
        return []

    def wake(self, now: float) -> Effects:
        """Do what falls due."""
        self._detector.awake(now)
        if self._state is _State.CLOSED:
            return []
        if self._verdict_due is not None and now >= self._verdict_due:
            return self._fail_for_the_dead()
        for client_id, (due, cause) in self._doubts.items():
            if now >= due:
                return self._fail(self._members[client_id], cause)
        if silent := self._detector.silent(now):
            client_id, age = silent[0]
            also = [other for other, _ in silent[1:]]
            return self._fail(self._members[client_id], f"no heartbeat for {age:.1f} s", also=also)
        if self._leave_deadline is not None and now >= self._leave_deadline:
            return self._dismiss()
        return [effect for failure in self._barriers.expire(now) for effect in self._on_barrier(failure)]

    def deadline(self) -> float | None:
        """Return when to wake this machine next."""
        if self._state is _State.CLOSED:
            return None
        doubt = min((due for due, _ in self._doubts.values()), default=None)
        judging = (self._detector.deadline(), self._verdict_due, doubt)
        candidates = (*judging, self._leave_deadline, self._barriers.deadline())
        return min((due for due in candidates if due is not None), default=None)

    @property
    def has_told_all(self) -> bool:
        """Whether the job is over, and no client is to come that has not heard of it."""
        return self._state is _State.CLOSED and not self._untold

    # Steps.

    def _register(self, session: int, register: Register, now: float) -> Effects:
        if session in self._client_of:
            return [ev.CloseSession(session)]
        refusal = refusal_of(register, self.config, self._registers, is_forming=self._state is _State.FORMING)
        if refusal is not None:
            return [ev.Answer((session,), refusal), ev.CloseSession(session)]
        self._members[register.client_id] = _Member(register, session)
        self._registers[register.client_id] = register
        self._packed_missing = None
        self._client_of[session] = register.client_id
        self._detector.heard(register.client_id, now)
        # Who is missing is said in answer to heartbeats: here it would cost the square of the number of clients.
        effects: Effects = [ev.Answer((session,), HeartbeatAck(0, (), (), ()))]
        if len(self._members) == self.config.num_clients:
            self._state = _State.BRINGING_UP
            effects.append(self._to_all(Formed(self.config.job_id, _EPOCH, self._roster())))
        return effects

    def _on_ready(self, member: _Member, ready: Ready) -> Effects:
        member.ready = ready
        self._note(member, Phase.COMMIT, member.healthy, member.health)
        reports = [(client_id, self._members[client_id].ready) for client_id in sorted(self._members)]
        all_ready = [(client_id, report) for client_id, report in reports if report is not None]
        if self._state is not _State.BRINGING_UP or len(all_ready) < self.config.num_clients:
            return []
        by_digest: dict[bytes, list[int]] = {}
        for client_id, report in all_ready:
            by_digest.setdefault(report.digest, []).append(client_id)
        if len(by_digest) > 1:
            return self._disagreement(by_digest)
        self._state = _State.RUNNING
        for other in self._members.values():
            other.phase = Phase.READY
        spans = slowest([span for _, report in all_ready for span in report.spans])
        return [self._to_all(Commit(join_runs(report.kinds for _, report in all_ready), spans))]

    def _disagreement(self, by_digest: dict[bytes, list[int]]) -> Effects:
        odd = min(by_digest.values(), key=len)
        camps = "; ".join(f"clients {format_ids(ids)} hold {digest.hex()}" for digest, ids in by_digest.items())
        cause = f"the clients hold different tables of devices after the merge: {camps}. Restart the job."
        return self._fail(self._members[odd[0]], cause, error="TopologyError")

    def _on_barrier(self, outcome: Released | TimedOut | None) -> Effects:
        if outcome is None:
            return []
        packed = pack_ids(outcome.missing) if isinstance(outcome, TimedOut) else ()
        return [
            ev.Answer(
                (self._members[waiter.client_id].session,),
                BarrierFailed(waiter.ticket, packed) if packed else BarrierReleased(waiter.ticket),
            )
            for waiter in outcome.waiters
        ]

    def _on_leave(self, member: _Member, timeout: float, now: float) -> Effects:
        member.is_leaving = True
        self._note(member, Phase.LEAVING, member.healthy, member.health)
        due = now + timeout
        self._leave_deadline = due if self._leave_deadline is None else min(self._leave_deadline, due)
        return self._dismiss() if all(other.is_leaving for other in self._members.values()) else []

    def _dismiss(self) -> Effects:
        """Let those go who want to; without them the job cannot go on for the others."""
        self._state = _State.CLOSED
        leavers = [m for m in self._members.values() if m.is_leaving]
        stayers = [m for m in self._members.values() if not m.is_leaving]
        missing = pack_ids(m.register.client_id for m in stayers)
        effects: Effects = [ev.Answer(tuple(m.session for m in leavers), Dismissed(missing))]
        if stayers:
            first = leavers[0]
            cause = (
                f"it shut down, and clients {format_ids(m.register.client_id for m in stayers)} did not join in time"
            )
            effects.append(ev.Answer(tuple(m.session for m in stayers), self._verdict(first, "", cause, ())))
        return effects

    def _on_goodbye(self, member: _Member, error: str, cause: str) -> Effects:
        if error == RENDEZVOUS_TIMEOUT:
            client_id = member.register.client_id
            return self._fail(member, f"the patience of client {client_id} ended first", error=error)
        if error in JOB_WIDE_ERRORS:
            return self._fail(member, cause, error=error)
        return self._fail(member, f"{error}: {cause}")

    def _answer_too_late(self, session: int, message: ClientMessage) -> Effects:
        """Tell who comes for the first time why the job failed; who was here before has come for the next one."""
        if self._last_word is None or not isinstance(message, Register) or message.client_id not in self._untold:
            return [ev.CloseSession(session)]
        self._untold.remove(message.client_id)
        return [ev.Answer((session,), self._last_word), ev.CloseSession(session)]

    def _suspect(self, client_id: int, evidence: str) -> Effects:
        member = self._members[client_id]
        if member.evidence:
            return []
        member.evidence = evidence
        self._sequence += 1
        tag = (_EPOCH, self._sequence)
        self._probes[tag] = client_id
        return [ev.Probe(tag, member.register.link_address, member.register.incarnation)]

    def _fail_for_the_dead(self) -> Effects:
        first, *others = self._dead
        if len(self._dead) > 1 and len(self._dead) == self.config.num_clients - 1:
            # That everybody has died is less likely than that they have given this one up.
            cause = "all other clients have gone, as they do when this one is stopped or cut off for too long"
            return self._fail(self._members[_HOST], cause, error=CoordinatorLostError.__name__)
        return self._fail(self._members[first], self._dead[first], also=others)

    def _judge_probe(self, client_id: int, outcome: ProbeOutcome, detail: str, now: float) -> Effects:
        evidence = self._members[client_id].evidence
        if outcome in (ProbeOutcome.REFUSED, ProbeOutcome.REPLACED):
            self._dead[client_id] = f"process died ({detail}; {evidence})"
            self._verdict_due = self._verdict_due or now + _VERDICT_DELAY
        else:
            self._doubts[client_id] = (now + _DOUBT, f"{evidence} ({detail})")
        return []

    def _fail(
        self, member: _Member, cause: str, *, error: str = "PeerFailedError", also: Iterable[int] = ()
    ) -> Effects:
        others = {*self._dead, *also} - {member.register.client_id}
        self._last_word = self._verdict(member, error, cause, pack_ids(others))
        self._state = _State.CLOSED
        self._untold = set(range(self.config.num_clients)) - self._members.keys()
        return [self._to_all(self._last_word)]

    # Helpers.

    def _verdict(self, member: _Member, error: str, cause: str, also: tuple[int, ...]) -> Verdict:
        register = member.register
        missing = self._missing() if self._state is _State.FORMING or error == RENDEZVOUS_TIMEOUT else ()
        return Verdict(
            error or "PeerFailedError",
            register.client_id,
            register.address,
            register.hostname,
            member.phase,
            cause,
            missing,
            also,
        )

    def _missing(self) -> tuple[int, ...]:
        """Return the clients that have not registered, or, once all have, those that are furthest behind."""
        everybody = range(self.config.num_clients)
        if len(self._members) < self.config.num_clients:
            if self._packed_missing is None:
                self._packed_missing = pack_ids(c for c in everybody if c not in self._members)
            return self._packed_missing
        return pack_ids(furthest_behind({client_id: self._members[client_id].phase for client_id in everybody}))

    def _to_all(self, message: Formed | Commit | Verdict) -> ev.Answer:
        return ev.Answer(tuple(self._client_of), message)

    def _roster(self) -> tuple[MemberInfo, ...]:
        registers = (self._members[client_id].register for client_id in range(self.config.num_clients))
        return tuple(
            MemberInfo(r.client_id, r.address, r.hostname, r.pid, r.incarnation, r.link_address) for r in registers
        )

    def _note(self, member: _Member, phase: str, healthy: bool, health: str) -> None:
        if (member.phase, member.healthy, member.health) != (phase, healthy, health):
            member.phase, member.healthy, member.health = phase, healthy, health
            self._sequence += 1
            self._news[member.register.client_id] = self._sequence
            self._news.move_to_end(member.register.client_id)

    def _ack(self, member: _Member, sequence: int, now: float) -> HeartbeatAck:
        missing = self._missing() if self._state is _State.FORMING else ()
        late = self._detector.overdue(now, _OVERDUE_INTERVALS * self.config.heartbeat_interval)
        overdue = tuple(Overdue(client_id, age) for client_id, age in late)
        return HeartbeatAck(sequence, missing, overdue, self._news_for(member))

    def _news_for(self, member: _Member) -> tuple[MemberUpdate, ...]:
        """Return the members whose phase or health has changed since this one was last told."""
        news: list[MemberUpdate] = []
        for client_id in reversed(self._news):
            if self._news[client_id] <= member.news_seen:
                break
            other = self._members[client_id]
            news.append(MemberUpdate(client_id, other.phase, other.healthy, other.health))
        member.news_seen = self._sequence
        return tuple(news)
