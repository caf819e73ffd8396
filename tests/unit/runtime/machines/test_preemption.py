"""The agreement of all clients on one preemption point."""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict, deque
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bringup.runtime.drivers.preemption import Preemption
from bringup.runtime.machines.preemption import NO_STEP, PointAnswered, PreemptionAgreement, PreemptionPoint
from bringup.transport.wire.messages import PreemptionNotice, StepQuery, StepReply, SyncPoint

SIGTERM = "it received SIGTERM"


class Job:
    """A coordinator and its clients; messages wait in queues, in order, until they are delivered."""

    def __init__(self, num_clients: int) -> None:
        self.agreement = PreemptionAgreement(num_clients, window=900.0, answer_timeout=180.0)
        self.points = [PreemptionPoint(client_id, window=900.0) for client_id in range(num_clients)]
        self.down: list[deque[StepQuery | SyncPoint]] = [deque() for _ in self.points]
        self.up: list[deque[StepReply | PreemptionNotice]] = [deque() for _ in self.points]
        self.calls: list[set[int]] = [set() for _ in self.points]
        self.answers: list[dict[int, bool]] = [{} for _ in self.points]
        self.sets: list[SyncPoint] = []
        self.now = 0.0

    def reach(self, client_id: int, step: int) -> bool | None:
        """Let a program come to a step; its step is its ticket. `None` where the call is held back."""
        self.calls[client_id].add(step)
        self.take(client_id, self.points[client_id].reached(step, step))
        return self.answers[client_id].get(step)

    def is_held(self, client_id: int) -> bool:
        """Whether a call of a program waits for the others."""
        return not self.calls[client_id] <= self.answers[client_id].keys()

    def announce(self, client_id: int, deadline_in: float = 0.0) -> None:
        self.up[client_id] += self.points[client_id].announce(deadline_in, SIGTERM)

    def take(self, client_id: int, effects: list[StepReply | PointAnswered]) -> None:
        for effect in effects:
            if isinstance(effect, StepReply):
                self.up[client_id].append(effect)
            else:
                assert effect.ticket not in self.answers[client_id]
                self.answers[client_id][effect.ticket] = effect.is_reached

    def to_all(self, messages: list[StepQuery | SyncPoint]) -> None:
        self.sets += [message for message in messages if isinstance(message, SyncPoint)]
        for queue in self.down:
            queue += messages

    def deliver_up(self, client_id: int) -> None:
        message = self.up[client_id].popleft()
        if isinstance(message, StepReply):
            self.to_all(self.agreement.replied(client_id, message, self.now))
        else:
            self.to_all(self.agreement.announce(client_id, message.deadline_in, message.reason, self.now))

    def deliver_down(self, client_id: int) -> None:
        message, point = self.down[client_id].popleft(), self.points[client_id]
        self.take(client_id, point.asked(message) if isinstance(message, StepQuery) else point.point_set(message))

    def deliver_all(self) -> None:
        while any(self.up) or any(self.down):
            for client_id in range(len(self.points)):
                while self.up[client_id]:
                    self.deliver_up(client_id)
                while self.down[client_id]:
                    self.deliver_down(client_id)

    def let_pass(self, seconds: float) -> None:
        self.now += seconds
        due = self.agreement.deadline()
        if due is not None and due <= self.now:
            self.to_all(self.agreement.wake(self.now))

    def run_to(self, step: int) -> list[list[int]]:
        """Let all programs go on to a step; returns the steps at which each was told that it is there."""
        for client_id, answers in enumerate(self.answers):
            for each in range(max(answers, default=-1) + 1, step + 1):
                assert self.reach(client_id, each) is not None
        return self.true_steps()

    def true_steps(self) -> list[list[int]]:
        return [sorted(step for step, is_reached in answers.items() if is_reached) for answers in self.answers]


def test_without_a_notice_no_step_is_the_one() -> None:  # G1
    job = Job(2)
    assert job.run_to(20) == [[], []]
    assert job.agreement.deadline() is None


def test_the_step_after_the_notice_is_the_one() -> None:  # G2
    job = Job(1)
    assert [job.reach(0, step) for step in (0, 1)] == [False, False]
    job.announce(0)
    job.deliver_all()
    assert [job.reach(0, step) for step in (2, 3)] == [True, False]


def test_a_notice_of_what_is_far_away_waits_until_the_window_begins() -> None:  # G3
    job = Job(2)
    job.announce(1, deadline_in=3600.0)
    job.deliver_all()
    assert job.agreement.deadline() == 2700.0
    assert job.run_to(5) == [[], []]
    job.let_pass(2699.0)
    job.deliver_all()
    assert job.run_to(6) == [[], []]
    job.let_pass(1.0)
    job.deliver_all()
    assert job.run_to(9) == [[7], [7]]
    assert job.sets[0].reason == "client 1 is to be preempted in 900.0 s: it received SIGTERM"


@pytest.mark.parametrize("noticed", [0, 1])
def test_a_slow_client_and_a_fast_one_are_told_at_the_same_step(noticed: int) -> None:  # G4
    job = Job(2)
    job.reach(0, 0)
    for step in (0, 1, 2):
        job.reach(1, step)
    job.announce(noticed)
    job.deliver_all()
    assert job.run_to(6) == [[3], [3]]


def test_calls_wait_while_the_agreement_is_under_way() -> None:
    job = Job(2)
    job.run_to(3)
    job.announce(1)
    job.deliver_up(1)
    job.deliver_down(0)
    assert job.reach(0, 4) is None
    assert job.is_held(0)
    assert [job.reach(1, step) for step in (4, 5)] == [False, False], "it was not asked yet"
    job.deliver_all()
    assert job.answers[0][4] is False
    assert job.run_to(8) == [[6], [6]]


def test_a_program_that_comes_late_tells_its_first_step_and_is_not_held() -> None:
    job = Job(2)
    job.reach(0, 4)
    job.announce(0)
    job.deliver_all()
    assert job.reach(0, 5) is None
    assert job.reach(1, 100) is False
    job.deliver_all()
    assert [job.reach(0, step) for step in (100, 101)] == [False, True]
    assert job.reach(1, 101) is True


def test_a_step_that_was_told_is_answered_at_once() -> None:
    job = Job(2)
    job.reach(0, 3)
    job.announce(0)
    job.deliver_up(0)
    job.deliver_down(0)
    job.take(0, job.points[0].reached(99, 3))
    assert job.answers[0][99] is False


def test_a_client_that_never_comes_does_not_hold_the_others_for_ever() -> None:
    job = Job(3)
    job.reach(0, 0)
    job.reach(2, 0)
    job.announce(0)
    job.deliver_all()
    assert job.reach(0, 1) is None
    assert job.agreement.deadline() == 180.0
    job.let_pass(179.9)
    assert job.sets == []
    job.let_pass(0.1)
    job.deliver_all()
    assert job.answers[0][1] is False
    assert job.sets[0].step == NO_STEP
    assert "client 1 did not come to a preemption point within 180 s" in job.sets[0].reason
    assert job.reach(1, 0) is False
    assert job.run_to(9) == [[], [], []]
    job.announce(2)
    job.deliver_all()
    assert job.run_to(12) == [[10], [10], [10]]


def test_nobody_waits_for_the_step_of_one_who_is_shutting_down() -> None:
    job = Job(3)
    for client_id in (0, 2):
        job.reach(client_id, 4)
    job.announce(0)
    job.deliver_all()
    assert [job.reach(client_id, 5) for client_id in (0, 2)] == [None, None]
    job.to_all(job.agreement.leaves(1, job.now))
    job.deliver_all()
    assert [answers.get(5) for answers in job.answers] == [True, None, True]


def test_an_agreement_of_those_who_all_shut_down_is_over() -> None:
    job = Job(2)
    job.announce(0)
    job.deliver_all()
    for client_id in range(2):
        job.to_all(job.agreement.leaves(client_id, job.now))
    assert [point.step for point in job.sets] == [NO_STEP]


def test_many_notices_make_one_agreement() -> None:
    job = Job(4)
    job.run_to(2)
    for client_id in range(4):
        job.announce(client_id, deadline_in=30.0 - client_id)
    job.deliver_all()
    assert [message.step for message in job.sets] == [3]
    for client_id in range(4):
        job.announce(client_id)
    assert not any(job.up), "a sync step is ahead"
    assert job.run_to(5) == [[3]] * 4
    assert job.agreement.deadline() is None


def test_a_notice_after_the_sync_step_begins_again() -> None:
    job = Job(2)
    for step in (0, 5):
        job.run_to(step)
        job.announce(1)
        job.deliver_all()
    assert job.run_to(9) == [[1, 6], [1, 6]]


def test_a_notice_before_anybody_has_gone_on_gives_the_same_step_again() -> None:
    job = Job(2)
    job.run_to(4)
    for client_id in (0, 1):
        job.to_all(job.agreement.announce(client_id, 0.0, SIGTERM, job.now))
        job.deliver_all()
    assert [message.step for message in job.sets] == [5, 5]
    assert job.run_to(9) == [[5], [5]]


def test_of_several_notices_the_earliest_counts_and_the_later_is_kept() -> None:
    job = Job(2)
    job.run_to(0)
    for client_id, deadline_in in ((0, 5000.0), (0, 2000.0), (0, 9000.0), (1, 3000.0)):
        assert job.agreement.announce(client_id, deadline_in, SIGTERM, job.now) == []
    assert job.agreement.deadline() == 1100.0
    for step, seconds in ((3, 1100.0), (8, 1000.0)):
        job.let_pass(seconds)
        job.deliver_all()
        job.run_to(step)
    assert job.run_to(9) == [[1, 4], [1, 4]]
    assert job.agreement.deadline() is None


def test_a_notice_of_what_is_far_away_is_sent_though_a_sync_step_is_ahead() -> None:
    job = Job(1)
    job.run_to(0)
    job.announce(0)
    job.deliver_all()
    job.announce(0, deadline_in=3600.0)
    assert len(job.up[0]) == 1


@pytest.mark.parametrize(("deadline_in", "begins"), [(-5.0, True), (math.nan, True), (math.inf, False)])
def test_odd_deadlines_are_now_or_never(deadline_in: float, begins: bool) -> None:
    agreement = PreemptionAgreement(1)
    assert agreement.announce(0, deadline_in, SIGTERM, 7.0) == ([StepQuery(1)] if begins else [])


def test_answers_of_an_agreement_that_is_over_are_not_looked_at() -> None:
    agreement = PreemptionAgreement(1)
    agreement.announce(0, 0.0, SIGTERM, 0.0)
    assert agreement.replied(0, StepReply(7, 3), 0.0) == []
    assert agreement.replied(0, StepReply(1, 3), 0.0) == [
        SyncPoint(1, 4, f"client 0 is to be preempted now: {SIGTERM}")
    ]
    assert agreement.replied(0, StepReply(1, 9), 0.0) == []
    assert PreemptionPoint(0).point_set(SyncPoint(1, 4, "")) == []


def test_a_call_that_was_cancelled_is_made_again() -> None:
    job = Job(2)
    job.run_to(0)
    job.announce(0)
    job.deliver_up(0)
    job.deliver_down(0)
    assert job.reach(0, 1) is None
    job.points[0].cancel(1)
    job.deliver_all()
    assert 1 not in job.answers[0]
    assert job.run_to(3) == [[1], [1]]


_CLIENTS = 3
_who = st.integers(0, _CLIENTS - 1)
_acts = st.one_of(
    st.tuples(st.just("reach"), _who),
    st.tuples(st.just("reach"), _who),
    st.tuples(st.just("up"), _who),
    st.tuples(st.just("down"), _who),
    st.tuples(st.just("announce"), _who),
    st.tuples(st.just("far"), _who),
    st.tuples(st.just("pass"), st.sampled_from((1, 100, 500))),
)


@settings(max_examples=400)
@given(st.lists(_acts, max_size=150), st.booleans())
def test_all_are_told_at_the_same_step_or_none_is(acts: list[tuple[str, int]], one_never_comes: bool) -> None:
    job = Job(_CLIENTS)
    steps: dict[int, int] = defaultdict(int)

    def reach(client_id: int) -> None:
        is_absent = one_never_comes and client_id == _CLIENTS - 1
        if not is_absent and not job.is_held(client_id):
            job.reach(client_id, steps[client_id])
            steps[client_id] += 1

    for kind, value in acts:
        if kind == "reach":
            reach(value)
        elif kind == "up" and job.up[value]:
            job.deliver_up(value)
        elif kind == "down" and job.down[value]:
            job.deliver_down(value)
        elif kind in ("announce", "far"):
            job.announce(value, deadline_in=0.0 if kind == "announce" else 1500.0)
        elif kind == "pass":
            job.let_pass(value)
        check(job)
    settle(job)
    top = max(steps.values(), default=0) + 2
    while any(steps[client_id] <= top for client_id in range(_CLIENTS - one_never_comes)):
        for client_id in range(_CLIENTS):
            reach(client_id)
        settle(job)
    comers = job.true_steps()[: _CLIENTS - one_never_comes]
    assert all(each == comers[0] for each in comers)
    agreed = {message.step for message in job.sets} - {NO_STEP}
    assert set(comers[0]) == agreed
    assert not (one_never_comes and agreed)


def check(job: Job) -> None:
    """No client answered a step one way while another answered it the other way."""
    for step in {step for answers in job.answers for step in answers}:
        assert len({answers[step] for answers in job.answers if step in answers}) == 1


def settle(job: Job) -> None:
    """Deliver all, and let the time pass that ends whatever waits."""
    job.deliver_all()
    while any(map(job.is_held, range(_CLIENTS))):
        due = job.agreement.deadline()
        assert due is not None, "a call is held, and nothing will end that"
        job.let_pass(due - job.now)
        job.deliver_all()
    check(job)


def test_a_call_that_is_held_waits_for_the_others_until_it_is_answered_or_given_up() -> None:
    """A program that is held has not stalled."""
    waits = 0

    @contextlib.contextmanager
    def waiting() -> Iterator[None]:
        nonlocal waits
        waits += 1
        yield
        waits -= 1

    sent: list[object] = []
    preemption = Preemption(1, sent.append, waiting)
    assert preemption.reached(1) is False
    preemption.take(StepQuery(1))
    assert sent == [StepReply(1, 1)]
    held = preemption.reached(2)
    assert not isinstance(held, bool)
    assert waits == 1
    preemption.take(SyncPoint(1, 2, SIGTERM))
    assert (held.result(0), waits) == (True, 0)
    preemption.take(StepQuery(2))
    held = preemption.reached(3)
    assert not isinstance(held, bool)
    assert waits == 1
    assert held.cancel()
    assert waits == 0


def test_the_first_of_many_notices_counts_and_an_overtaken_one_does_not() -> None:
    agreement = PreemptionAgreement(3, window=10.0)
    for client_id, seconds in ((0, 40.0), (1, 30.0), (0, 20.0), (2, 50.0)):
        assert agreement.announce(client_id, seconds, "maintenance", 0.0) == []
    assert agreement.deadline() == 10.0
    assert agreement.wake(10.0) == [StepQuery(1)]
    for client_id in (0, 1):
        assert agreement.replied(client_id, StepReply(1, client_id), 11.0) == []
    (point,) = agreement.replied(2, StepReply(1, 0), 11.0)
    assert isinstance(point, SyncPoint)
    assert (point.step, "client 0 is to be preempted in 9.0 s" in point.reason) == (2, True)
    assert agreement.deadline() == 20.0
