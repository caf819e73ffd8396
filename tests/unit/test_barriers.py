"""Who has come to which round of which barrier."""

from __future__ import annotations

from bringup.runtime.machines.barriers import Barriers, Released, TimedOut, Waiter


def tickets(outcome: Released | TimedOut | None) -> list[tuple[int, int]] | None:
    return None if outcome is None else [(waiter.client_id, waiter.ticket) for waiter in outcome.waiters]


def test_the_last_to_come_releases_all() -> None:
    barriers = Barriers(3)
    assert barriers.enter("a", Waiter(2, 7), 0.0, 0.0) is None
    assert barriers.enter("a", Waiter(0, 1), 0.0, 0.0) is None
    outcome = barriers.enter("a", Waiter(1, 5), 0.0, 0.0)
    assert isinstance(outcome, Released)
    assert tickets(outcome) == [(2, 7), (0, 1), (1, 5)]


def test_names_do_not_mix() -> None:
    barriers = Barriers(2)
    assert barriers.enter("a", Waiter(0, 1), 0.0, 0.0) is None
    assert barriers.enter("b", Waiter(1, 1), 0.0, 0.0) is None
    assert tickets(barriers.enter("b", Waiter(0, 2), 0.0, 0.0)) == [(1, 1), (0, 2)]


def test_rounds_of_one_name_do_not_mix() -> None:
    barriers = Barriers(2)
    for ticket in (1, 2, 3):
        assert barriers.enter("a", Waiter(0, ticket), 0.0, 0.0) is None
    for ticket in (1, 2, 3):
        assert tickets(barriers.enter("a", Waiter(1, 10 + ticket), 0.0, 0.0)) == [(0, ticket), (1, 10 + ticket)]


def test_a_barrier_of_one_opens_at_once() -> None:
    assert tickets(Barriers(1).enter("a", Waiter(0, 1), 5.0, 0.0)) == [(0, 1)]


def test_the_shortest_patience_ends_a_round_and_names_who_is_missing() -> None:
    barriers = Barriers(4)
    barriers.enter("a", Waiter(0, 1), 9.0, 0.0)
    barriers.enter("a", Waiter(2, 2), 3.0, 1.0)
    assert barriers.deadline() == 4.0
    assert barriers.expire(3.9) == []
    (failure,) = barriers.expire(4.0)
    assert (tickets(failure), failure.missing) == ([(0, 1), (2, 2)], (1, 3))
    assert barriers.deadline() is None
    assert barriers.expire(100.0) == []


def test_who_comes_too_late_fails_too_and_the_next_round_is_sound() -> None:
    barriers = Barriers(2)
    barriers.enter("a", Waiter(0, 1), 1.0, 0.0)
    barriers.expire(1.0)
    late = barriers.enter("a", Waiter(1, 1), 1.0, 2.0)
    assert isinstance(late, TimedOut)
    assert (tickets(late), late.missing) == ([(1, 1)], (1,))
    assert barriers.deadline() is None
    barriers.enter("a", Waiter(0, 2), 1.0, 3.0)
    assert isinstance(barriers.enter("a", Waiter(1, 2), 1.0, 3.0), Released)


def test_no_timeout_means_for_ever() -> None:
    barriers = Barriers(2)
    barriers.enter("a", Waiter(0, 1), 0.0, 0.0)
    assert barriers.deadline() is None
    assert barriers.expire(1e9) == []
