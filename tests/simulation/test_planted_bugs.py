"""Bugs planted in the machines that ship, one at a time: the simulator finds each within a few seeds.

The same seeds are sound without the bug, so that it is the bug that is found.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from msgspec.structs import replace

from bringup.runtime.machines.barrier.rounds import BarrierRounds
from bringup.runtime.machines.coordinator import admission
from bringup.runtime.machines.coordinator import machine as coordinator
from bringup.runtime.machines.coordinator import suspicion as suspicions
from bringup.runtime.machines.coordinator.commit import CommitVote
from bringup.runtime.machines.coordinator.group_reports import GroupReports
from bringup.runtime.machines.coordinator.machine import CoordinatorMachine
from bringup.runtime.machines.coordinator.members import Members
from bringup.runtime.machines.coordinator.stragglers import Stragglers
from bringup.runtime.machines.coordinator.suspicion import Culprit, Suspicions
from bringup.runtime.machines.detector import Detector, Lag
from bringup.runtime.machines.kv import store
from bringup.runtime.machines.kv.store import StoreMachine
from bringup.runtime.machines.kv.watches import Watches
from bringup.runtime.machines.peer import machine as peer
from bringup.runtime.machines.peer.coordinator_watch import CoordinatorWatch
from bringup.runtime.machines.peer.group_watch import GroupWatch
from bringup.runtime.machines.peer.machine import PeerMachine
from bringup.runtime.machines.peer.program import OwnProgram, place_of
from bringup.runtime.machines.preemption import NO_STEP, PreemptionAgreement, PreemptionPoint
from bringup.runtime.machines.roster import Roster
from bringup.runtime.machines.service_machine import ServiceMachine
from bringup.runtime.machines.session.resend_buffer import ResendBuffer
from bringup.transport import attempts
from bringup.transport.attempts import Goal, NameRecord, TroubleKind
from bringup.transport.ports import ProbeOutcome
from bringup.transport.wire.messages import Ready, SyncPoint, Verdict
from bringup.transport.wire.services import GetKey, Value

from .run import run_seed

PEERS = 10
Planting = Callable[[pytest.MonkeyPatch], None]


def drop_the_goodbye(patch: pytest.MonkeyPatch) -> None:
    """A client that fails goes without a word."""
    patch.setattr(PeerMachine, "_fail", lambda self, error, phase=None: self._close(error))


def push_the_verdict_to_all_but_one(patch: pytest.MonkeyPatch) -> None:
    shipped = CoordinatorMachine.end

    def end(self: Any, verdict: Verdict) -> Any:
        return [replace(effect, sessions=effect.sessions[:-1]) for effect in shipped(self, verdict)]

    patch.setattr(CoordinatorMachine, "end", end)


def forget_the_own_lag(patch: pytest.MonkeyPatch) -> None:
    """Whoever was stopped blames the others for the silence of that time."""

    def awake(self: Any, now: float) -> None:
        if self._last_awake is None:
            self._listening_since = now
        self._last_awake = now

    patch.setattr(Detector, "awake", awake)


def count_one_report_twice(patch: pytest.MonkeyPatch) -> None:
    """The last report but one that a client is ready counts for the last one, too."""

    def add(self: Any, client_id: int, ready: Ready) -> None:
        self._ready[client_id] = ready
        late = set(range(self._num_clients)) - set(self._ready)
        if len(late) == 1:
            self._ready[late.pop()] = ready

    patch.setattr(CommitVote, "add", add)


def take_an_answer_for_death(patch: pytest.MonkeyPatch) -> None:
    """A process that answers the probe is declared dead."""
    patch.setattr(suspicions, "_PROOF", (*suspicions._PROOF, ProbeOutcome.ALIVE))


def take_silence_for_death(patch: pytest.MonkeyPatch) -> None:
    """A process that does not answer the probe is declared dead, though its connection may come back."""
    patch.setattr(suspicions, "_PROOF", (*suspicions._PROOF, ProbeOutcome.SILENT))


def let_the_first_leave(patch: pytest.MonkeyPatch) -> None:
    """Shutting down does not wait for all."""

    def on_leave(self: Any, member: Any, timeout: float, now: float) -> Any:
        member.is_leaving = True
        return self._dismiss()

    patch.setattr(CoordinatorMachine, "_on_leave", on_leave)


def lose_what_was_on_its_way(patch: pytest.MonkeyPatch) -> None:
    """Messages that a broken connection swallowed are not sent again over the next."""
    patch.setattr(ResendBuffer, "rewind", ResendBuffer.acknowledge)


def take_in_a_twin(patch: pytest.MonkeyPatch) -> None:
    """A second process with the id of another takes its place."""
    patch.setattr(admission, "_conflict", lambda *arguments: None)


def believe_any_table(patch: pytest.MonkeyPatch) -> None:
    """Clients with other tables come up all the same."""
    patch.setattr(CommitVote, "disagreement", lambda self: None)


def believe_any_roster(patch: pytest.MonkeyPatch) -> None:
    """A client that got a roster with one row wrong comes up with it."""
    patch.setattr(CoordinatorMachine, "_other_roster", lambda self, member, ready: None)


def write_one_row_of_the_roster_wrong(patch: pytest.MonkeyPatch) -> None:
    """All clients hold the same roster, in which one client is not as it registered."""
    shipped = Members.roster

    def roster(self: Members) -> Roster:
        *others, last = shipped(self)
        return Roster.of([*others, replace(last, link_address=others[0].link_address)])

    patch.setattr(Members, "roster", roster)


def lose_patience(patch: pytest.MonkeyPatch) -> None:
    """Silence is judged when half of the timeout has passed."""
    shipped = Detector.silent

    def silent(self: Any, now: float) -> Any:
        timeout, self.timeout = self.timeout, 0.5 * self.timeout
        try:
            return shipped(self, now)
        finally:
            self.timeout = timeout

    patch.setattr(Detector, "silent", silent)


def take_waits_for_work(patch: pytest.MonkeyPatch) -> None:
    """When a wait for others is over, it counts for the program's own time after all."""
    patch.setattr(OwnProgram, "wait_ends", lambda self, now: setattr(self, "_num_waits", self._num_waits - 1))


def forget_to_wait_while_leaving(patch: pytest.MonkeyPatch) -> None:
    """A client that waits to shut down is taken for one that works on."""

    patch.setattr(peer, "place_of", lambda program, now, is_leaving: place_of(program, now, is_leaving=False))
    patch.setattr(Stragglers, "leaves", lambda self, client_id: None)


def wait_for_the_steps_of_leavers(patch: pytest.MonkeyPatch) -> None:
    """A preemption point needs the step of a client that is shutting down, which has none to tell."""
    patch.setattr(PreemptionAgreement, "leaves", lambda self, client_id, now: [])


def blame_whoever_is_missed_first_after_a_sleep(patch: pytest.MonkeyPatch) -> None:
    """A coordinator that was stopped takes those that have gone for it for the cause."""

    def culprit_of(known: Any, *_: Any) -> Culprit:
        first, *others = known.dead
        return Culprit(first, known.dead[first], tuple(others))

    patch.setattr(coordinator, "culprit_of", culprit_of)


def blame_the_host_where_all_others_die(patch: pytest.MonkeyPatch) -> None:
    """The death of all others is not believed, though they were heard until then."""
    patch.setattr(Detector, "may_have_given_up", lambda self, client_id, now: True)


def judge_before_reading(patch: pytest.MonkeyPatch) -> None:
    """Whoever was stopped goes by its deadlines first, and reads then what would have met them."""
    patch.setattr(Lag, "is_reading", lambda self, now: False)


def dial_a_link_once(patch: pytest.MonkeyPatch) -> None:
    """Whatever is in the way of a ring link ends the job, and its neighbour is blamed."""
    patch.setitem(attempts._FINAL, Goal.LINK, tuple(TroubleKind))


def dial_a_refused_link_once(patch: pytest.MonkeyPatch) -> None:
    """A refusal is not asked about, but believed."""
    patch.setitem(attempts._FINAL, Goal.LINK, (TroubleKind.DENIED, TroubleKind.REFUSED))


def take_a_delayed_link_for_a_broken_one(patch: pytest.MonkeyPatch) -> None:
    """A link that its neighbour's address refuses at first is held against it."""
    patch.setattr(Suspicions, "link_refused", Suspicions.link_broke)


def give_a_coordinator_up_at_the_first_trouble(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(attempts._FINAL, Goal.SESSION, tuple(TroubleKind))


def give_a_suspect_up_at_the_first_trouble(patch: pytest.MonkeyPatch) -> None:
    """Whatever is in the way of a probe is taken for a refusal."""
    patch.setitem(attempts._FINAL, Goal.PROBE, tuple(TroubleKind))


def forget_what_a_name_led_to(patch: pytest.MonkeyPatch) -> None:
    """Without a resolver no connection is restored."""
    shipped = NameRecord.begin

    def begin(self: Any, now: float) -> bool:
        self.hosts, self.error, self._is_asking = (), "", False
        self._asked_at = None if self._asked_at is None else float("-inf")
        return shipped(self, now)

    patch.setattr(NameRecord, "begin", begin)


def take_what_is_unread_for_silence(patch: pytest.MonkeyPatch) -> None:
    """An overloaded coordinator declares those dead to whose heartbeats it has not got yet."""
    patch.setattr(Detector, "caught_up", lambda self, now: None)


def lose_an_overloaded_coordinator(patch: pytest.MonkeyPatch) -> None:
    """While the job comes up, a coordinator that is slow is lost, though its process answers."""
    patch.setattr(PeerMachine, "_ask_due", lambda self: None)


def wait_for_the_answer_to_a_registration(patch: pytest.MonkeyPatch) -> None:
    """A coordinator that took a connection and vanished is waited for to the end."""
    patch.setattr(CoordinatorWatch, "registration_due", lambda self: float("inf"))


def release_a_barrier_early(patch: pytest.MonkeyPatch) -> None:
    """The last client but one that comes to a barrier releases it."""
    shipped = BarrierRounds._join

    def join(self: Any, this_round: Any, session: int, client_id: int, ticket: int) -> Any:
        this_round.size -= this_round.size > 1 and len(this_round.waiting) == this_round.size - 2
        return shipped(self, this_round, session, client_id, ticket)

    patch.setattr(BarrierRounds, "_join", join)


def read_what_was(patch: pytest.MonkeyPatch) -> None:
    """A key is read from a copy that is behind."""
    shipped = StoreMachine._get
    old: dict[int, bytes | None] = {}

    def get(self: Any, session: int, request: GetKey) -> Any:
        replies = shipped(self, session, request)
        if request.wait or request.key != "n":
            return replies
        [(_, value)] = replies
        stale, old[id(self)] = old.get(id(self), value.value), value.value
        return [(session, Value(request.ticket, stale))]

    patch.setitem(store._HANDLERS, GetKey, get)


def forget_to_tell_what_a_delete_takes_along(patch: pytest.MonkeyPatch) -> None:
    """A watch of a directory is not told when one above it is deleted."""
    patch.setattr(Watches, "prefixes_below", lambda self, key: [])


def take_leavers_for_alive(patch: pytest.MonkeyPatch) -> None:
    """A client that is shutting down is still listed among those that are there."""
    patch.setattr(ServiceMachine, "_live", lambda self: (0, self.num_clients - 1))


def place_the_point_elsewhere(patch: pytest.MonkeyPatch) -> None:
    """One client saves a step later than the others."""
    shipped = PreemptionPoint.point_set

    def point_set(self: Any, message: SyncPoint) -> Any:
        if self._client_id == 1 and message.step != NO_STEP:
            message = SyncPoint(message.number, message.step + 1, message.reason)
        return shipped(self, message)

    patch.setattr(PreemptionPoint, "point_set", point_set)


def keep_unhealthy_devices_to_itself(patch: pytest.MonkeyPatch) -> None:
    """A client whose devices became unhealthy reports it, and nobody fails, though that was asked for."""

    def on_health(self: Any, healthy: bool, detail: str, now: float) -> Any:
        self._health = (healthy, detail)
        return self._heartbeat(now)

    patch.setattr(PeerMachine, "_on_health", on_health)


def take_a_late_registration_for_a_new_one(patch: pytest.MonkeyPatch) -> None:
    """A late message of a lost connection ends the session that was begun over the next."""
    shipped = CoordinatorMachine._register_again

    def register_again(self: Any, member: Any, session: int, attempt: int, now: float) -> Any:
        return shipped(self, member, session, max(attempt, member.attempt), now)

    patch.setattr(CoordinatorMachine, "_register_again", register_again)


def forget_to_hand_over(patch: pytest.MonkeyPatch) -> None:
    """A client the waves of which have stopped stays silent, as if its group could still report for it.

    Nor is it asked: it would answer in time.
    """
    shipped = GroupWatch.heartbeat_due

    def heartbeat_due(self: Any, sent_at: float) -> float:
        self._is_silent, self._came_at = True, 1e6
        return shipped(self, sent_at)

    patch.setattr(GroupWatch, "heartbeat_due", heartbeat_due)
    patch.setattr(GroupReports, "to_ask", lambda self, now: [])


def hide_a_silence_in_a_report(patch: pytest.MonkeyPatch) -> None:
    """A leader reports the last wave that came around again and again, as if it had just come."""
    shipped = GroupWatch.report

    def report(self: Any, now: float) -> Any:
        self.planted = shipped(self, now) or getattr(self, "planted", ())
        return tuple(replace(report, age=0.0) for report in self.planted)

    patch.setattr(GroupWatch, "report", report)


def vouch_for_a_wave_that_has_not_come_around(patch: pytest.MonkeyPatch) -> None:
    """A leader takes a wave for complete as soon as it has begun."""
    shipped = GroupWatch.begin

    def begin(self: Any, place: Any, now: float) -> Any:
        beat = shipped(self, place, now)
        self._come_around(beat, now)
        return beat

    patch.setattr(GroupWatch, "begin", begin)


def vouch_for_whom_the_coordinator_does_not_answer(patch: pytest.MonkeyPatch) -> None:
    """A client that alone cannot reach the coordinator passes waves on, and believes what its leader hears."""
    shipped = CoordinatorWatch.told

    def told(self: Any, coordinator_age: float, answered_age: float, now: float) -> None:
        shipped(self, coordinator_age, -1.0, now)

    patch.setattr(CoordinatorWatch, "told", told)


def take_a_question_for_an_answer(patch: pytest.MonkeyPatch) -> None:
    """A client that the coordinator does not hear, and asks for a heartbeat, believes that it is heard."""
    shipped = CoordinatorWatch.heard
    patch.setattr(CoordinatorWatch, "heard", lambda self, now, *, is_question=False: shipped(self, now))


def ask_nobody_whose_leader_is_silent(patch: pytest.MonkeyPatch) -> None:
    """A group the leader of which cannot reach the coordinator is taken for silent as a whole."""
    patch.setattr(GroupReports, "to_ask", lambda self, now: [])


def lose_a_starved_coordinator(patch: pytest.MonkeyPatch) -> None:
    """That its process answers counts for nothing once the job is up."""
    shipped = CoordinatorWatch.answered

    def answered(self: Any, now: float, *, is_alive: bool) -> None:
        shipped(self, now, is_alive=is_alive and not self._is_up)

    patch.setattr(CoordinatorWatch, "answered", answered)


PLANTED: dict[Planting, int] = {
    forget_to_hand_over: 122,
    hide_a_silence_in_a_report: 53,
    vouch_for_a_wave_that_has_not_come_around: 28,
    vouch_for_whom_the_coordinator_does_not_answer: 228,
    take_a_question_for_an_answer: 1324,
    ask_nobody_whose_leader_is_silent: 4,
    lose_a_starved_coordinator: 202,
    take_a_late_registration_for_a_new_one: 9539,
    release_a_barrier_early: 0,
    read_what_was: 27,
    forget_to_tell_what_a_delete_takes_along: 75,
    take_leavers_for_alive: 27,
    place_the_point_elsewhere: 139,
    keep_unhealthy_devices_to_itself: 11,
    wait_for_the_answer_to_a_registration: 68,
    dial_a_link_once: 102,
    dial_a_refused_link_once: 160,
    take_a_delayed_link_for_a_broken_one: 160,
    give_a_coordinator_up_at_the_first_trouble: 16,
    give_a_suspect_up_at_the_first_trouble: 241,
    forget_what_a_name_led_to: 44,
    drop_the_goodbye: 2,
    take_waits_for_work: 46,
    take_what_is_unread_for_silence: 219,
    lose_an_overloaded_coordinator: 219,
    blame_whoever_is_missed_first_after_a_sleep: 104,
    blame_the_host_where_all_others_die: 196,
    judge_before_reading: 378,
    wait_for_the_steps_of_leavers: 409,
    forget_to_wait_while_leaving: 362,
    push_the_verdict_to_all_but_one: 2,
    forget_the_own_lag: 104,
    count_one_report_twice: 0,
    take_an_answer_for_death: 1,
    take_silence_for_death: 389,
    let_the_first_leave: 0,
    lose_what_was_on_its_way: 63,
    take_in_a_twin: 14,
    believe_any_table: 35,
    believe_any_roster: 0,
    write_one_row_of_the_roster_wrong: 0,
    lose_patience: 29,
}
"""Each with a seed that finds it, or did: whatever changes what is drawn changes which. That one is tried first."""

SEEDS = range(2000)
"""Then these are, within which each is found: most take a few dozen, the rarest two a few hundred."""


@cache
def is_sound(seed: int) -> bool:
    """Return whether a seed finds nothing in what ships; called only while nothing is planted."""
    run_seed(seed, PEERS)
    return True


def finds(seed: int) -> bool:
    try:
        run_seed(seed, PEERS)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize(("plant", "known"), PLANTED.items(), ids=[plant.__name__ for plant in PLANTED])
def test_a_planted_bug_is_found(plant: Planting, known: int) -> None:
    tried: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        for seed in (known, *SEEDS):
            tried.append(seed)
            if finds(seed):
                break
        else:
            pytest.fail(f"{plant.__name__} is not found within {len(SEEDS)} seeds")
    assert all(map(is_sound, tried))
