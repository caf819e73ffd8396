"""The key-value store is linearizable: shown on histories of clients that call at once, and crash."""

from __future__ import annotations

import itertools
import random

import pytest

from bringup.runtime.machines.kv.store import StoreMachine

from ....lib.broken_stores import DoublingStore, ForgetfulStore, StaleStore, TornStore
from ....lib.kv_clients import World
from ....lib.linearizability import (
    Call,
    CompareAndSet,
    Delete,
    Get,
    History,
    Increment,
    List,
    Operation,
    Refused,
    Result,
    Set,
    TryGet,
    Violation,
    apply,
    check,
)


def history_of(*events: tuple[int, Operation | Result]) -> History:
    """Return a history: a client's event begins a call, or ends the one that it has begun."""
    history = History()
    begun: dict[int, int] = {}
    for client, event in events:
        if isinstance(event, Operation):
            begun[client] = history.invoke(client, event)
        else:
            history.complete(begun[client], event)
    return history


def one_by_one(*calls: tuple[Operation, Result]) -> History:
    return history_of(*[event for call in calls for event in ((0, call[0]), (0, call[1]))])


# The checker.


@pytest.mark.parametrize(
    "history",
    [
        History(),
        one_by_one((TryGet("a"), None), (Set("a", b"1"), None), (TryGet("a"), b"1"), (Get("a"), b"1")),
        one_by_one((Set("a", b"1"), None), (Set("a", b"2"), Refused()), (Set("a", b"3", True), None), (Get("a"), b"3")),
        one_by_one((Increment("a", 2), 2), (Increment("a", -3), -1), (Increment("a", 0), -1), (TryGet("a"), b"-1")),
        one_by_one((Increment("a", 0), 0), (TryGet("a"), None), (Set("a", b"x"), None), (Increment("a"), Refused())),
        one_by_one((CompareAndSet("a", None, b"1"), True), (CompareAndSet("a", None, b"2"), False), (Get("a"), b"1")),
        one_by_one((Set("a/b", b"1"), None), (List("a"), {"a/b": b"1"}), (Delete("a"), None), (List("a"), {})),
        one_by_one((Set("ab", b"1"), None), (Delete("a"), None), (Delete(""), None), (List(""), {"ab": b"1"})),
        # At the same time, either order will do, ...
        history_of((1, Set("a", b"1")), (2, TryGet("a")), (2, None), (1, None)),
        history_of((1, Set("a", b"1")), (2, TryGet("a")), (2, b"1"), (1, None)),
        # ... one client may be ahead of another, ...
        history_of((1, Set("a", b"1")), (2, TryGet("a")), (3, TryGet("a")), (3, b"1"), (2, None), (1, None)),
        # ... and what never ended has taken effect late, or not at all.
        history_of((1, Set("a", b"1")), (2, TryGet("a")), (2, None), (2, TryGet("a")), (2, b"1")),
        history_of((1, Set("a", b"1")), (2, TryGet("a")), (2, None), (2, Set("a", b"2")), (2, None)),
        history_of((1, Get("a"))),
    ],
)
def test_what_one_store_can_do_is_no_violation(history: History) -> None:
    assert check(history) is None


STALE_READ = one_by_one((Set("a", b"1"), None), (Set("a", b"2", True), None), (TryGet("a"), b"1"))
LOST_UPDATE = one_by_one((Increment("a"), 1), (Increment("a"), 2), (TryGet("a"), b"1"))
COUNTED_TWICE = one_by_one((Increment("a"), 1), (Increment("a"), 3))


@pytest.mark.parametrize(
    ("history", "stuck"),
    [
        (STALE_READ, [TryGet("a")]),
        (LOST_UPDATE, [TryGet("a")]),
        (COUNTED_TWICE, [Increment("a")]),
        (one_by_one((Set("a", b"1"), None), (Set("a", b"2"), None)), [Set("a", b"2")]),
        (one_by_one((Set("a", b"1"), None), (Delete("a"), None), (TryGet("a"), b"1")), [TryGet("a")]),
        (one_by_one((Set("a/b", b"1"), None), (Delete("a"), None), (TryGet("a/b"), b"1")), [TryGet("a/b")]),
        (one_by_one((TryGet("a"), b"1"), (Set("a", b"1"), None)), [TryGet("a")]),
        # Two clients both won.
        (
            history_of((1, CompareAndSet("a", None, b"1")), (2, CompareAndSet("a", None, b"2")), (1, True), (2, True)),
            None,
        ),
        # Two increments that saw the same number.
        (history_of((1, Increment("a")), (2, Increment("a")), (1, 1), (2, 1)), None),
        # Read back in time: client 3 has seen the new value, client 2 then sees the old one.
        (
            history_of((1, Set("a", b"1")), (3, TryGet("a")), (3, b"1"), (2, TryGet("a")), (2, None), (1, None)),
            [TryGet("a")],
        ),
        # A call that never ended has taken effect once at most.
        (history_of((1, Increment("a")), (2, Increment("a")), (2, 3)), None),
        (history_of((1, Set("a", b"1")), (2, TryGet("a")), (2, b"1"), (2, TryGet("a")), (2, None)), [TryGet("a")]),
        # Each key by itself would do, the list of both does not.
        (
            history_of(
                (1, Set("d/a", b"1")), (1, None), (1, Set("d/b", b"1")), (2, List("d")), (1, None), (2, {"d/b": b"1"})
            ),
            None,
        ),
    ],
)
def test_planted_violations_are_found(history: History, stuck: list[Operation] | None) -> None:
    violation = check(history)
    assert isinstance(violation, Violation)
    assert "not linearizable" in str(violation)
    assert all(str(call) in violation.text for call in violation.stuck)
    if stuck is not None:
        assert [call.operation for call in violation.stuck] == stuck


def test_a_violation_is_found_among_much_that_is_right() -> None:
    events: list[tuple[int, Operation | Result]] = []
    for number in range(300):
        events += [(client, Increment(f"k{number % 7}")) for client in range(4)]
        events += [(client, number // 7 * 4 + client + 1) for client in (2, 0, 3, 1)]
    assert check(history_of(*events)) is None
    events[-1] = (1, 1)
    violation = check(history_of(*events))
    assert violation is not None
    assert violation.keys == ("k5",)
    assert len(violation.text) < 3000


def test_many_calls_without_an_end_do_not_make_the_search_explode() -> None:
    history = History()
    for client in range(100):
        history.invoke(client, Set("a", b"%d" % (client % 5), overwrite=True))
        history.invoke(client, Delete("a"))
    for number in range(45):
        history.complete(history.invoke(0, TryGet("a")), b"%d" % (number % 3))
    assert check(history) is None
    history.complete(history.invoke(0, TryGet("a")), b"7")
    assert check(history) is not None


def is_in_some_order(history: History) -> bool:
    """Try every order of every choice of the calls that never ended: right by its looks, and slow."""
    ended = [call for call in history.calls if call.ended < 2**63]
    unended = [call for call in history.calls if call.ended == 2**63]
    return any(
        is_legal(order)
        for size in range(len(unended) + 1)
        for chosen in itertools.combinations(unended, size)
        for order in itertools.permutations([*ended, *chosen])
    )


def is_legal(order: tuple[Call, ...]) -> bool:
    if any(later.ended < earlier.began for earlier, later in itertools.combinations(order, 2)):
        return False
    state: dict[str, bytes] = {}
    for call in order:
        applied = apply(state, call.operation)
        if applied is None or (call.ended < 2**63 and applied[0] != call.result):
            return False
        state = applied[1]
    return True


def a_small_history(chance: random.Random) -> History:
    history = History()
    begun: dict[int, int] = {}
    for number in range(chance.randint(3, 6)):
        key = chance.choice(["d", "d/a"])
        value = b"%d" % chance.randint(1, 2)
        choices: list[tuple[Operation, list[Result]]] = [
            (Get(key), [b"1", b"2"]),
            (TryGet(key), [None, b"1", b"2"]),
            (Set(key, value), [None, None, Refused()]),
            (Set(key, value, overwrite=True), [None]),
            (Increment(key), [1, 2, 3]),
            (CompareAndSet(key, chance.choice([None, b"1"]), value), [True, False]),
            (Delete(key), [None]),
            (List("d"), [{}, {"d/a": b"1"}, {"d/a": b"2"}]),
        ]
        operation = chance.choice(choices)[0]
        begun[number] = history.invoke(number, operation)
        while begun and chance.random() < 0.5:
            client = chance.choice(list(begun))
            call = begun.pop(client)
            same = [results for other, results in choices if type(other) is type(history.calls[call].operation)]
            if chance.random() < 0.7:
                history.complete(call, chance.choice(same[0]))
    return history


def test_the_checker_agrees_with_trying_every_order() -> None:
    chance = random.Random(7)
    verdicts = []
    for _ in range(1500):
        history = a_small_history(chance)
        verdicts.append(is_in_some_order(history))
        assert (check(history) is None) == verdicts[-1], [str(call) for call in history.calls]
    assert 300 < sum(verdicts) < 1200


# The store.

HISTORIES = 800
BLOCKS = 8


@pytest.mark.parametrize("block", range(BLOCKS))
def test_histories_of_concurrent_clients_are_linearizable(block: int) -> None:
    ended = unended = 0
    for seed in range(block, HISTORIES, BLOCKS):
        history = World(seed).run(clients=2 + seed % 6, calls=25)
        violation = check(history)
        assert violation is None, f"seed {seed}: {violation}"
        never = sum("never ended" in str(call) for call in history.calls)
        ended, unended = ended + len(history.calls) - never, unended + never
    assert ended > 8000
    assert unended > 100


def test_one_seed_is_one_history() -> None:
    assert World(3).run(5, 25) == World(3).run(5, 25) != World(4).run(5, 25)


@pytest.mark.parametrize("broken", [StaleStore, DoublingStore, ForgetfulStore, TornStore])
def test_a_broken_store_is_found_out(broken: type[StoreMachine]) -> None:
    found = [check(World(seed, lambda: broken(2**30)).run(4, 25)) for seed in range(20)]
    assert sum(violation is not None for violation in found) >= 5
