"""Rounds of barriers: arrivals, releases, and the errors of calls that end otherwise."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bringup.runtime.machines.barrier.failures import Failure, KeptFailures
from bringup.runtime.machines.barrier.participants import Participants, read_participants
from bringup.runtime.machines.barrier.rounds import BarrierRounds, Replies, RoundStatus
from bringup.runtime.machines.failure_errors import REFUSAL_ERRORS
from bringup.runtime.machines.id_ranges import pack_ids
from bringup.transport.wire.services import Done, EnterBarrier, Refusal

TIMEOUT, MISMATCH, WRONG = "BarrierTimeoutError", "CollectiveMismatchError", "ConfigurationError"


class Job:
    """Clients that call barriers; a client's session has its id, and tickets count."""

    def __init__(self, num_clients: int) -> None:
        self.barriers = BarrierRounds(num_clients, lambda client_id: f"at step {40 + client_id}")
        self.tickets = 0

    def enter(
        self,
        client_id: int,
        name: str = "a",
        ids: Sequence[int] = (),
        timeout: float = -1.0,
        now: float = 0.0,
        session: int | None = None,
    ) -> dict[int, str]:
        self.tickets += 1
        request = EnterBarrier(self.tickets, name, pack_ids(ids), timeout)
        return ended(self.barriers.enter(client_id if session is None else session, client_id, request, now))


def is_idle(barriers: BarrierRounds) -> bool:
    """Whether nothing is remembered: no open round, no call, no failed round that somebody has not come to."""
    return not (barriers._rounds or barriers._calls or barriers._deadlines._heap or len(barriers._kept))


def ended(replies: Replies) -> dict[int, str]:
    """Return how the calls of each session end: `Done`, or the text of a refusal after its error."""
    assert len({session for session, _ in replies}) == len(replies), "two answers in one session"
    return {session: outcome_of(reply) for session, reply in replies}


def outcome_of(reply: object) -> str:
    if isinstance(reply, Refusal):
        assert reply.error in REFUSAL_ERRORS
        return f"{reply.error}: {reply.text}"
    assert isinstance(reply, Done)
    return "Done"


def errors(outcomes: dict[int, str]) -> dict[int, str]:
    return {client_id: text.partition(":")[0] for client_id, text in outcomes.items()}


def released(*client_ids: int) -> dict[int, str]:
    return dict.fromkeys(client_ids, "Done")


# Rounds.


def test_the_last_to_come_releases_all() -> None:
    job = Job(3)
    assert job.enter(2) == {}
    assert job.enter(0) == {}
    assert job.enter(1) == released(0, 1, 2)
    assert is_idle(job.barriers)


def test_a_reply_carries_the_ticket_of_its_call() -> None:
    barriers = BarrierRounds(2, lambda _: "")
    assert barriers.enter(5, 0, EnterBarrier(17, "a", (), -1.0), 0.0) == []
    assert barriers.enter(6, 1, EnterBarrier(3, "a", (0, 1), -1.0), 0.0) == [(5, Done(17)), (6, Done(3))]


def test_names_do_not_mix() -> None:
    job = Job(2)
    assert job.enter(0, "a", timeout=1.0) == {}
    assert job.enter(1, "b", timeout=2.0) == {}
    assert errors(ended(job.barriers.expire(1.0))) == {0: TIMEOUT}
    assert errors(ended(job.barriers.expire(2.0))) == {1: TIMEOUT}


def test_a_name_is_used_again_and_a_barrier_of_one_opens_at_once() -> None:
    job = Job(1)
    assert [job.enter(0, timeout=timeout) for timeout in (0.0, -1.0, 5.0)] == [released(0)] * 3
    assert is_idle(job.barriers)


def test_a_subset_does_not_wait_for_the_others() -> None:
    job = Job(8)
    even = (0, 2, 4, 6)
    assert [job.enter(client_id, ids=even) for client_id in even] == [{}, {}, {}, released(*even)]


def test_a_slow_client_and_a_fast_one_do_not_meet_in_the_wrong_round() -> None:
    job = Job(2)
    for second in range(40):
        assert job.enter(0, timeout=1.0, now=float(second)) == {}
        assert errors(ended(job.barriers.expire(second + 1.0))) == {0: TIMEOUT}
    assert job.enter(0, now=40.0) == {}
    for _ in range(40):
        assert errors(job.enter(1, now=41.0)) == {1: TIMEOUT}
    assert job.enter(1, now=41.0) == released(0, 1)
    assert is_idle(job.barriers)


# Deadlines.


def test_a_time_out_names_all_who_are_missing_and_where_they_are() -> None:
    job = Job(3)
    job.enter(1, timeout=1.0)
    job.enter(0, timeout=1.0, now=0.5)
    assert job.barriers.deadline() == 1.0
    assert job.barriers.expire(0.99) == []
    replies = job.barriers.expire(1.0)
    assert [reply.missing for _, reply in replies if isinstance(reply, Refusal)] == [(2, 2), (2, 2)]
    (text,) = set(ended(replies).values())
    assert "'a': 2 of 3 clients came within 1 s, the timeout of client 1, which came first" in text
    assert "Missing: client 2 (at step 42). " in text
    assert "client 0" not in text


def test_eight_of_many_missing_are_described_and_the_others_named() -> None:
    job = Job(100)
    job.enter(50, timeout=1.0)
    (text,) = ended(job.barriers.expire(1.0)).values()
    assert text.count("at step") == 8
    assert "client 7 (at step 47), and 91 more: 8-49, 51-99." in text


def test_who_is_described_by_nothing_is_named_alone() -> None:
    barriers = BarrierRounds(2, lambda _: "")
    barriers.enter(0, 0, EnterBarrier(1, "a", (), 1.0), 0.0)
    (text,) = ended(barriers.expire(1.0)).values()
    assert "Missing: client 1. " in text


def test_a_late_comer_is_told_the_same_at_once_and_the_next_round_is_sound() -> None:
    job = Job(3)
    job.enter(1, timeout=1.0)
    job.enter(0, timeout=1.0)
    told = ended(job.barriers.expire(1.0))
    assert job.enter(2, timeout=9.0, now=5.0) == {2: told[0]}
    assert [job.enter(client_id, now=6.0) for client_id in range(3)] == [{}, {}, released(0, 1, 2)]
    assert is_idle(job.barriers)


@pytest.mark.parametrize("second", [10.0, 0.1, -1.0])
def test_the_first_to_come_sets_the_deadline_of_all(second: float) -> None:
    job = Job(3)
    job.enter(0, timeout=1.0)
    job.enter(1, timeout=second, now=0.5)
    assert job.barriers.deadline() == 1.0
    assert errors(ended(job.barriers.expire(1.0))) == {0: TIMEOUT, 1: TIMEOUT}


@pytest.mark.parametrize("timeout", [-1.0, math.inf, math.nan])
def test_no_timeout_means_for_ever(timeout: float) -> None:
    job = Job(2)
    job.enter(0, timeout=timeout)
    assert job.barriers.deadline() is None
    assert job.barriers.expire(1e12) == []
    assert job.enter(1, now=1e12) == released(0, 1)


def test_nobody_is_released_past_the_deadline_even_where_nobody_looked_at_the_clock() -> None:
    job = Job(2)
    job.enter(0, timeout=1.0)
    assert errors(job.enter(1, now=1.5)) == {0: TIMEOUT, 1: TIMEOUT}


def test_deadlines_are_met_in_their_order_and_forgotten_with_their_rounds() -> None:
    job = Job(2)
    for number in range(100):
        job.enter(0, f"{number}", timeout=100.0 - number, session=number)
    for number in range(50, 100):
        job.enter(1, f"{number}", session=1000)
    assert job.barriers.deadline() == 51.0
    failed = [session for second in range(101) for session, _ in job.barriers.expire(float(second))]
    assert failed == list(range(49, -1, -1))


# A timeout of 0.


def test_who_opens_a_round_without_waiting_ends_it_for_all() -> None:
    job = Job(2)
    assert errors(job.enter(0, timeout=0.0)) == {0: TIMEOUT}
    assert errors(job.enter(1, timeout=9.0)) == {1: TIMEOUT}
    assert is_idle(job.barriers)


def test_the_last_to_come_need_not_wait() -> None:
    job = Job(2)
    job.enter(0)
    assert job.enter(1, timeout=0.0) == released(0, 1)


def test_who_comes_later_without_waiting_is_refused_alone_and_has_not_come() -> None:
    job = Job(3)
    job.enter(0, timeout=5.0)
    (text,) = job.enter(1, timeout=0.0).values()
    assert "2 of 3 clients came by the call of client 1, which does not wait (timeout=0). Missing: client 2" in text
    assert job.enter(2) == {}
    assert job.enter(1, timeout=0.0) == released(0, 1, 2)


def test_who_opened_a_round_and_left_it_is_then_one_who_comes_later() -> None:
    job = Job(3)
    job.enter(0, timeout=5.0)
    job.enter(1)
    assert job.barriers.cancel(0, 1, 1.0)
    assert errors(job.enter(0, timeout=0.0, now=2.0)) == {0: TIMEOUT}
    assert job.barriers.status() == [RoundStatus("a", (1, 1), (0, 0, 2, 2), 5.0)]


# Who takes part.


def test_different_sets_fail_everybody_at_once_with_both_sides_named() -> None:
    job = Job(4)
    job.enter(0, ids=(0, 1, 3))
    job.enter(3, ids=(0, 1, 3))
    outcomes = job.enter(2, ids=(1, 2))
    assert errors(outcomes) == {0: MISMATCH, 2: MISMATCH, 3: MISMATCH}
    assert "clients 0, 3 named clients 0-1, 3; client 2 named clients 1-2." in outcomes[0]
    assert len(set(outcomes.values())) == 1
    assert job.enter(1, ids=(1, 2)) == {1: outcomes[0]}
    assert is_idle(job.barriers)


def test_all_of_either_set_are_told_who_come_later() -> None:
    job = Job(5)
    job.enter(0, ids=(0, 1))
    told = job.enter(2, ids=(2, 3))
    assert errors(told) == {0: MISMATCH, 2: MISMATCH}
    assert job.enter(1, ids=(0, 1)) == {1: told[0]}
    assert job.enter(3, ids=(2, 3)) == {3: told[0]}
    assert job.enter(4) == {}, "neither named it"


@pytest.mark.parametrize(
    ("caller", "ids", "text"),
    [
        (2, (0, 1), "client 0 named clients 0-1; client 2 named clients 0-1, without itself."),
        (1, (), "client 0 named clients 0-1; client 1 named all 3 clients."),
        (1, (0, 1, 7), "client 1 named clients 0-1 and client 7, which is not in this job of 3 clients."),
        (1, (0, 2), "client 1 named clients 0, 2, without itself."),
    ],
)
def test_a_call_that_does_not_fit_fails_the_round(caller: int, ids: tuple[int, ...], text: str) -> None:
    job = Job(3)
    job.enter(0, ids=(0, 1))
    outcomes = job.enter(caller, ids=ids)
    assert errors(outcomes) == {0: MISMATCH, caller: MISMATCH}
    assert text in outcomes[0]


@pytest.mark.parametrize("ids", [(1, 2), (0, 1, 2, 7), (7,)])
def test_a_first_call_that_fits_nobody_fails_the_round_for_those_it_names(ids: tuple[int, ...]) -> None:
    job = Job(3)
    outcomes = job.enter(0, ids=ids)
    assert errors(outcomes) == {0: MISMATCH}
    for client_id in {1, 2} & set(ids):
        assert job.enter(client_id, ids=(1, 2)) == {client_id: outcomes[0]}
    assert is_idle(job.barriers)


def test_after_the_round_has_passed_only_the_stranger_fails() -> None:
    job = Job(3)
    job.enter(0, ids=(0, 1))
    assert job.enter(1, ids=(0, 1)) == released(0, 1)
    assert errors(job.enter(2, ids=(0, 1))) == {2: MISMATCH}


def test_a_name_can_be_used_by_one_set_after_another() -> None:
    job = Job(4)
    for ids in ((0, 1), (1, 2), (2, 3), (0, 3)) * 3:
        assert [job.enter(client_id, ids=ids) for client_id in ids] == [{}, released(*ids)]
    assert is_idle(job.barriers)


@pytest.mark.parametrize("ids", [(0, 0), (0, 1, 1)])
def test_an_id_given_twice_is_refused_alone(ids: tuple[int, ...]) -> None:
    job = Job(2)
    job.enter(1)
    outcomes = job.enter(0, ids=ids)
    assert errors(outcomes) == {0: WRONG}
    assert f"client_ids name client {ids[-1]} twice" in outcomes[0]
    assert job.enter(0) == released(0, 1)


def test_one_call_at_a_time_for_a_name_whichever_the_session() -> None:
    job = Job(2)
    job.enter(0, session=10)
    outcomes = job.enter(0, session=11)
    assert errors(outcomes) == {11: WRONG}
    assert "barrier 'a': this call of client 0 is refused, as it waits there already" in outcomes[11]
    assert job.enter(0, "b", session=11) == {}
    assert job.enter(1) == released(10, 1)


def test_a_ticket_that_waits_is_not_taken_again() -> None:
    barriers = BarrierRounds(2, lambda _: "")
    barriers.enter(0, 0, EnterBarrier(1, "a", (), -1.0), 0.0)
    assert errors(ended(barriers.enter(0, 0, EnterBarrier(1, "b", (), -1.0), 0.0))) == {0: WRONG}
    assert [each.name for each in barriers.status()] == ["a"]


def test_a_name_of_any_length_makes_a_short_text() -> None:
    (text,) = Job(2).enter(0, "n" * 100_000, timeout=0.0).values()
    assert len(text) < 500


# Cancelling.


def test_who_cancels_has_not_come_and_comes_to_the_same_round_again() -> None:
    job = Job(2)
    job.enter(0, timeout=5.0)
    job.enter(1, "b")
    assert job.barriers.cancel(0, 1, 1.0)
    assert job.barriers.deadline() is None
    assert job.enter(1, now=2.0) == {}
    assert job.enter(0, now=3.0) == released(0, 1)


def test_the_deadline_outlives_who_set_it() -> None:
    job = Job(3)
    job.enter(0, timeout=5.0)
    job.enter(1, timeout=9.0, now=1.0)
    assert job.barriers.cancel(0, 1, 2.0)
    replies = job.barriers.expire(5.0)
    assert errors(ended(replies)) == {1: TIMEOUT}
    assert errors(job.enter(0, now=6.0)) == {0: TIMEOUT}


def test_a_cancel_that_meets_the_release_comes_too_late() -> None:
    job = Job(2)
    job.enter(0)
    assert job.enter(1) == released(0, 1)
    assert not job.barriers.cancel(0, 1, 0.0)
    assert job.enter(0) == {}, "it belongs to the next round, and releases nobody of the last"
    assert job.enter(1) == released(0, 1)


def test_a_cancel_at_the_deadline_comes_too_late() -> None:
    job = Job(2)
    job.enter(0, timeout=1.0)
    assert not job.barriers.cancel(0, 1, 1.0)
    job.barriers.close_session(0, 1.0)
    assert errors(ended(job.barriers.expire(1.0))) == {0: TIMEOUT}


def test_a_cancel_of_nothing_is_no_harm() -> None:
    job = Job(2)
    assert not job.barriers.cancel(7, 3, 0.0)
    job.barriers.close_session(7, 0.0)


def test_a_session_takes_its_calls_with_it_and_no_other() -> None:
    job = Job(2)
    job.enter(0, "a", session=10)
    job.enter(0, "b", session=10)
    job.enter(0, "c", session=11)
    job.barriers.close_session(10, 0.0)
    assert [each.name for each in job.barriers.status()] == ["c"]
    assert job.enter(0, "a", session=11) == {}


# Memory.


def test_memory_is_bounded_while_a_client_stays_away_and_names_change() -> None:
    job = Job(64)
    most = 0
    for number in range(20_000):
        ids = () if number % 2 else (1, 5, 7)
        name = f"step-{number}" if number % 3 else "step"
        job.enter(1, name, ids=ids, timeout=0.5, now=float(number))
        job.barriers.expire(number + 0.5)
        most = max(most, job.barriers._kept.weight)
    assert 1 << 20 < most <= 16 << 20
    assert job.barriers.deadline() is None
    assert job.barriers.status() == []


def test_memory_does_not_grow_with_rounds_that_end_well() -> None:
    job = Job(2)
    for number in range(10_000):
        job.enter(0, f"{number}", timeout=3600.0)
        assert job.enter(1, f"{number}") == released(0, 1)
        assert is_idle(job.barriers)


def test_the_names_that_failed_longest_ago_are_forgotten_first() -> None:
    kept = KeptFailures(bytes_max=4 * 700)
    for number in range(20):
        kept.keep(f"{number}", Failure(TIMEOUT, f"round {number}"), [1])
        kept.keep("0", Failure(TIMEOUT, "again"), [])
    told = [kept.take(f"{number}", 1) for number in range(20)]
    assert [failure.text for failure in told if failure is not None] == [f"round {number}" for number in range(16, 20)]
    assert (len(kept), kept.weight) == (0, 0)


def test_a_client_that_was_away_for_long_is_told_each_round_once() -> None:
    kept = KeptFailures()
    for number in range(100):
        kept.keep("a", Failure(TIMEOUT, f"{number}"), [1, 2] if number % 2 else [1])
    told = {client_id: [kept.take("a", client_id) for _ in range(100)] for client_id in (1, 2)}
    texts = {client_id: [failure.text for failure in each if failure] for client_id, each in told.items()}
    assert {client_id: len(each) for client_id, each in texts.items()} == {1: 100, 2: 50}
    assert texts[1][-16:] == [f"{number}" for number in range(84, 100)]
    assert set(texts[1][:-16]) == {"84"}
    assert (len(kept), kept.weight) == (0, 0)


# Claims.


@given(st.integers(1, 40), st.sets(st.integers(0, 39)), st.randoms(use_true_random=False))
def test_a_claim_is_the_set_it_packs(num_clients: int, ids: set[int], random: object) -> None:
    runs = [(client_id, client_id) for client_id in ids]
    random.shuffle(runs)  # type: ignore[attr-defined]
    canonical, loose = pack_ids(ids), tuple(number for run in runs for number in run)
    for packed in (canonical, loose):
        claim = read_participants(packed, num_clients)
        assert isinstance(claim, Participants)
        known = {client_id for client_id in ids if client_id < num_clients} if ids else set(range(num_clients))
        assert (set(claim), len(claim)) == (known, len(known))
        assert {client_id for client_id in range(-1, 41) if client_id in claim} == known
        assert (claim.stranger is None) == (known == ids or not ids)
        assert claim.pairs == pack_ids(known)


@pytest.mark.parametrize(
    ("packed", "text"),
    [((1,), "no pairs"), ((2, 1), "ends before it begins"), ((0, 3, 2, 5), "name client 2 twice")],
)
def test_what_is_no_set_is_refused(packed: tuple[int, ...], text: str) -> None:
    claim = read_participants(packed, 8)
    assert isinstance(claim, str)
    assert text in claim


@pytest.mark.parametrize(("packed", "stranger"), [((0, 2**62), 4), ((-3, 2), -3), ((2**40, 2**62), 2**40)])
def test_absurd_ids_cost_nothing(packed: tuple[int, ...], stranger: int) -> None:
    claim = read_participants(packed, 4)
    assert isinstance(claim, Participants)
    assert claim.stranger == stranger
    assert len(str(claim)) < 100


# Any order of events, beside a model that writes everything out.

_IDS = (0, 1, 2)
_SETS: tuple[tuple[int, ...], ...] = ((0, 1, 2), (0, 1), (1, 2), (0, 1, 9), (2,))


@dataclass
class Model:
    """One name: an open round, and those failed to which somebody has not come."""

    waiting: dict[int, int] = field(default_factory=dict)
    members: frozenset[int] = frozenset()
    deadline: float = math.inf
    late: list[tuple[int, str]] = field(default_factory=list)

    def end(self, outcome: str) -> dict[int, str]:
        outcomes = dict.fromkeys(self.waiting.values(), outcome)
        self.waiting, self.deadline = {}, math.inf
        return outcomes

    def expire(self, now: float) -> dict[int, str]:
        if not self.waiting or now < self.deadline:
            return {}
        self.late += [(client_id, TIMEOUT) for client_id in self.members - set(self.waiting)]
        return self.end(TIMEOUT)

    def enter(self, client_id: int, ticket: int, ids: frozenset[int], timeout: float, now: float) -> dict[int, str]:
        for place, (late, outcome) in enumerate(self.late):
            if late == client_id:
                del self.late[place]
                return {ticket: outcome}
        if client_id in self.waiting:
            return {ticket: WRONG}
        opens = not self.waiting
        if not ids <= set(_IDS) or client_id not in ids or (not opens and ids != self.members):
            everybody = (ids | (frozenset() if opens else self.members)) & set(_IDS)
            self.late += [(other, MISMATCH) for other in everybody - set(self.waiting) - {client_id}]
            return {**self.end(MISMATCH), ticket: MISMATCH}
        if opens:
            self.members, self.deadline = ids, now + timeout if timeout >= 0 else math.inf
        self.waiting[client_id] = ticket
        if set(self.waiting) == self.members:
            return self.end("Done")
        if timeout == 0 and not opens:
            del self.waiting[client_id]
            return {ticket: TIMEOUT}
        return self.expire(now)

    def cancel(self, client_id: int) -> None:
        self.waiting.pop(client_id, None)


_enter = st.tuples(
    st.just("enter"),
    st.sampled_from(_IDS),
    st.sampled_from(("a", "b")),
    st.sampled_from((*[_SETS[0]] * 6, *_SETS)),
    st.sampled_from((-1.0, 0.0, 1.0, 3.0)),
)
_cancel = st.tuples(st.just("cancel"), st.sampled_from(_IDS), st.sampled_from(("a", "b")))
_close = st.tuples(st.just("close"), st.sampled_from(_IDS))
_pass = st.tuples(st.just("pass"), st.sampled_from((0.5, 1.0, 2.0)), st.booleans())


class Beside:
    """The machine and the model, fed with the same."""

    def __init__(self) -> None:
        self.barriers = BarrierRounds(len(_IDS), lambda _: "")
        self.models = {"a": Model(), "b": Model()}
        self.now = 0.0
        self.ticket = 0
        self.call_of: dict[tuple[int, str], int] = {}
        self.open: set[int] = set()

    def enter(self, client_id: int, name: str, ids: tuple[int, ...], timeout: float) -> None:
        self.ticket += 1
        expected = self.expired()
        expected |= self.models[name].enter(client_id, self.ticket, frozenset(ids), timeout, self.now)
        self.open.add(self.ticket)
        if expected.get(self.ticket) != WRONG:
            self.call_of[client_id, name] = self.ticket
        request = EnterBarrier(self.ticket, name, pack_ids(ids), timeout)
        self.check(self.barriers.enter(client_id, client_id, request, self.now), expected)

    def cancel(self, client_id: int, name: str) -> None:
        ticket = self.call_of.get((client_id, name), -1)
        is_open = ticket in self.models[name].waiting.values() and self.now < self.models[name].deadline
        assert self.barriers.cancel(client_id, ticket, self.now) == is_open
        if is_open:
            self.models[name].cancel(client_id)
            self.open.discard(ticket)

    def close(self, client_id: int) -> None:
        self.barriers.close_session(client_id, self.now)
        for model in self.models.values():
            if self.now < model.deadline:
                self.open.discard(model.waiting.get(client_id, -1))
                model.cancel(client_id)

    def let_pass(self, seconds: float, looks: bool) -> None:
        self.now += seconds
        if looks:
            self.check(self.barriers.expire(self.now), self.expired())
            assert all(model.deadline > self.now for model in self.models.values() if model.waiting)

    def expired(self) -> dict[int, str]:
        return {ticket: end for model in self.models.values() for ticket, end in model.expire(self.now).items()}

    def check(self, replies: Replies, expected: dict[int, str]) -> None:
        got = {reply.ticket: reply for _, reply in replies}
        assert {ticket: outcome_of(reply).partition(":")[0] for ticket, reply in got.items()} == expected
        assert len(got) == len(replies)
        assert set(got) <= self.open, "a call ends twice, or was cancelled"
        self.open -= set(got)
        waiting = {ticket for model in self.models.values() for ticket in model.waiting.values()}
        assert self.open == waiting
        dues = [model.deadline for model in self.models.values() if model.waiting and model.deadline < math.inf]
        assert self.barriers.deadline() == min(dues, default=None)


@settings(max_examples=300)
@given(st.lists(st.one_of(_enter, _enter, _enter, _cancel, _close, _pass), max_size=60))
def test_every_call_ends_as_in_a_model_that_writes_everything_out(
    events: list[tuple[str, int, str, tuple[int, ...], float]],
) -> None:
    beside = Beside()
    acts = {"enter": beside.enter, "cancel": beside.cancel, "close": beside.close, "pass": beside.let_pass}
    for kind, *arguments in events:
        acts[kind](*arguments)  # type: ignore[operator]
    beside.let_pass(100.0, looks=True)
    for client_id in _IDS:
        beside.close(client_id)
    assert not beside.open
    for name, model in beside.models.items():
        for client_id, _ in list(model.late):
            beside.enter(client_id, name, (), -1.0)
    assert is_idle(beside.barriers), "something is remembered though nobody is inside"


@settings(max_examples=200)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(_IDS), st.sampled_from(("enter", "enter", "enter", "cancel"))),
            st.tuples(st.sampled_from((0.5, 1.0)), st.just("pass")),
        ),
        max_size=120,
    )
)
def test_the_nth_call_of_each_client_ends_as_round_n_does(events: list[tuple[float, str]]) -> None:
    barriers, now = BarrierRounds(len(_IDS), lambda _: ""), 0.0
    counts: Counter[int] = Counter()
    inside: set[int] = set()
    outcomes: dict[int, set[str]] = {}
    came: dict[int, set[int]] = {}

    def take(replies: Replies) -> None:
        for client_id, reply in replies:
            inside.discard(client_id)
            outcomes.setdefault(counts[client_id], set()).add(outcome_of(reply))
            if isinstance(reply, Done):
                came.setdefault(counts[client_id], set()).add(client_id)
            counts[client_id] += 1

    for who, kind in events:
        client_id = int(who)
        if kind == "pass":
            now += who
            take(barriers.expire(now))
        elif kind == "enter" and client_id not in inside:
            inside.add(client_id)
            take(barriers.enter(client_id, client_id, EnterBarrier(client_id, "a", (), 2.0), now))
        elif kind == "cancel" and client_id in inside:
            assert barriers.cancel(client_id, client_id, now)
            inside.discard(client_id)
    for round_outcomes in outcomes.values():
        kinds = {outcome.partition(":")[0] for outcome in round_outcomes}
        assert len(kinds) == 1, f"one round ended in two ways: {round_outcomes}"
    assert all(clients == set(_IDS) for clients in came.values())
