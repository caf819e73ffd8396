"""Calls on a great many keys: none of them holds the loop, and each is of one moment, whatever happens meanwhile."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bringup.runtime.machines.kv import table as kv_table
from bringup.runtime.machines.kv.keys import normalize
from bringup.runtime.machines.kv.store import KeyValueRequest, StoreMachine
from bringup.runtime.machines.kv.table import Table
from bringup.runtime.machines.kv.watches import WatchLimits
from bringup.transport.wire.services import (
    CancelCall,
    Changes,
    DeleteKeys,
    Items,
    KeyChange,
    ListKeys,
    MoreChanges,
    Refusal,
    ServiceReply,
    SetKey,
    WatchKeys,
)

A, B = 1, 2
MANY = 30_000
CALLS_MAX = 45_000
"""Of one step: a message has 4,096 items."""


def anybody(session: int) -> bool:
    return True


def nobody(session: int) -> bool:
    return False


def full_store(keys: int = MANY) -> StoreMachine:
    store = StoreMachine(2**40)
    for number in range(keys):
        store.handle(A, SetKey(1, f"d/{number:06}", b"old", False))
    return store


def calls_of(step: Callable[[], object]) -> int:
    """Return how many functions a step calls, which says how long it takes on any machine."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        step()
    finally:
        sys.setprofile(None)
    return calls


def items_of(replies: list[tuple[int, ServiceReply]]) -> list[tuple[str, bytes]]:
    return [(item.key, item.value) for _, reply in replies if isinstance(reply, Items) for item in reply.items]


@pytest.mark.parametrize("request_", [ListKeys(9, "d"), DeleteKeys(9, "d"), WatchKeys(9, "d"), ListKeys(9, "")])
def test_no_step_takes_the_time_of_all_keys(request_: ListKeys | DeleteKeys | WatchKeys) -> None:
    store = full_store()
    assert calls_of(lambda: store.handle(A, request_)) < CALLS_MAX
    while store.has_work(anybody):
        assert calls_of(lambda: store.work(anybody)) < CALLS_MAX


def take_all(store: StoreMachine, replies: list[tuple[int, ServiceReply]]) -> list[KeyChange]:
    """Return all changes that the watch of session B tells, whose reader takes them; each step is short."""
    seen: list[KeyChange] = []
    while changes := [change for _, reply in replies if isinstance(reply, Changes) for change in reply.changes]:
        seen += changes
        request, replies = MoreChanges(5, len(changes)), []
        assert calls_of(partial(tell, store, B, request, replies)) < CALLS_MAX
    return seen


def tell(store: StoreMachine, session: int, request: KeyValueRequest, replies: list[tuple[int, ServiceReply]]) -> None:
    replies += store.handle(session, request)


@pytest.mark.parametrize(("prefix", "keys"), [("", MANY + 1), ("d", MANY + 1), ("d/015000", 2)])
def test_no_step_of_a_delete_that_is_watched_takes_the_time_of_all_keys(prefix: str, keys: int) -> None:
    store = full_store()
    store.handle(A, SetKey(1, "d/015000/x", b"new", False))
    began = take_all(store, store.handle(B, WatchKeys(5, prefix)))
    replies: list[tuple[int, ServiceReply]] = []
    assert calls_of(partial(tell, store, A, DeleteKeys(9, "d"), replies)) < CALLS_MAX
    assert len(store) == store.used_bytes == 0
    deleted = take_all(store, replies)
    assert [change.key for change in deleted] == [change.key for change in began]
    assert len(deleted) == keys
    assert {(change.value, change.revision) for change in deleted} == {(None, 2 * (MANY + 1))}
    while store.has_work(anybody):
        assert calls_of(lambda: store.work(anybody)) < CALLS_MAX


def test_what_a_watch_has_not_told_of_a_delete_is_let_go_of_with_it() -> None:
    store = full_store()
    store.handle(B, WatchKeys(5, ""))
    store.handle(A, DeleteKeys(9, "d"))
    while store.has_work(anybody):
        store.work(anybody)
    assert calls_of(lambda: store.handle(B, CancelCall(5))) < CALLS_MAX
    assert store.has_work(anybody)
    while store.has_work(anybody):
        store.work(anybody)


@pytest.mark.parametrize("seed", range(30))
def test_watches_tell_what_a_model_says(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At directories inside of what is deleted, and around it; with readers that take little at a time."""
    monkeypatch.setattr(kv_table, "_BLOCK_MAX", 3)
    chance = random.Random(seed)
    store = StoreMachine(2**40, WatchLimits(credit=2, message=2))
    keys = ["", "a", "a/b", "a/b/c", "a/b!", "a/bc", "a/b/c/d", "a0", "b", "b/a"]
    model: dict[str, bytes] = {}
    told: dict[int, list[KeyChange]] = {}
    expected: dict[int, list[tuple[str, bytes | None]]] = {}
    prefix_of: dict[int, str] = {}

    def note(replies: list[tuple[int, ServiceReply]]) -> None:
        for _, reply in replies:
            assert not isinstance(reply, Refusal)
            if isinstance(reply, Changes):
                told[reply.ticket] += reply.changes

    def below(key: str, prefix: str) -> bool:
        return not prefix or key.startswith(f"{prefix}/")

    for number in range(150):
        key = chance.choice(keys)
        match chance.choice(["set", "set", "set", "delete", "watch", "more", "more"]):
            case "set":
                model[key] = b"%d" % number
                changed: list[tuple[str, bytes | None]] = [(key, model[key])]
                note(store.handle(A, SetKey(0, key, model[key], True)))
            case "delete":
                gone = [k for k in sorted(model) if k == key or (key and below(k, key))]
                changed = [(k, None) for k in gone]
                for each in gone:
                    del model[each]
                note(store.handle(A, DeleteKeys(0, key)))
            case "watch":
                changed = []
                prefix_of[number], told[number] = key, []
                expected[number] = [(k, v) for k, v in sorted(model.items()) if k == key or below(k, key)]
                note(store.handle(B, WatchKeys(number, key)))
            case _:
                changed = []
                for ticket in list(told):
                    note(store.handle(B, MoreChanges(ticket, 1)))
        for ticket, prefix in prefix_of.items():
            expected[ticket] += [(k, v) for k, v in changed if k == prefix or below(k, prefix)]
        while store.has_work(anybody):
            note(store.work(anybody))
    for _ in range(500):
        for ticket in told:
            note(store.handle(B, MoreChanges(ticket, 2)))
    for ticket, changes in told.items():
        assert [(change.key, change.value) for change in changes] == expected[ticket]
        revisions = [change.revision for change in changes]
        assert revisions == sorted(revisions)


def test_a_list_is_of_the_moment_at_which_it_began() -> None:
    store = full_store()
    replies = store.handle(A, ListKeys(9, "d"))
    store.handle(B, SetKey(1, "d/029999", b"new", True))
    store.handle(B, SetKey(1, "d/000000", b"new", True))
    store.handle(B, SetKey(1, "d/015000/more", b"new", True))
    store.handle(B, DeleteKeys(1, "d/020000"))
    replies += store.work(anybody)
    store.handle(B, DeleteKeys(1, "d"))
    while store.has_work(anybody):
        replies += store.work(anybody)
    assert items_of(replies) == [(f"d/{number:06}", b"old") for number in range(MANY)]
    assert [reply.is_last for _, reply in replies if isinstance(reply, Items)] == [False] * 7 + [True]
    assert store.used_bytes == len(store) == 0


def test_lists_wait_for_room_and_take_turns() -> None:
    store = full_store(10_000)
    first = store.handle(A, ListKeys(1, "d"))
    assert store.handle(A, ListKeys(2, "d")) == []
    second = store.handle(B, ListKeys(1, "d"))
    assert len(first) == len(second) == 1
    assert not store.has_work(nobody)
    assert store.work(nobody) == []
    order = []
    while store.has_work(anybody):
        [(session, reply)] = store.work(anybody)
        order.append((session, reply.ticket))
    assert order == [(A, 1), (B, 1), (A, 1), (B, 1), (A, 2), (A, 2), (A, 2)]


def test_a_list_that_waits_for_its_turn_is_of_the_moment_of_its_call() -> None:
    store = full_store(5000)
    replies = store.handle(A, ListKeys(1, "d"))
    store.handle(A, ListKeys(2, "d"))
    store.handle(A, SetKey(3, "d/000000", b"new", True))
    while store.has_work(anybody):
        replies += store.work(anybody)
    for ticket in (1, 2):
        told = items_of([(session, reply) for session, reply in replies if reply.ticket == ticket])
        assert told == [(f"d/{number:06}", b"old") for number in range(5000)]


def test_a_list_that_nobody_waits_for_ends() -> None:
    store = full_store(10_000)
    store.handle(A, ListKeys(1, "d"))
    store.handle(A, CancelCall(1))
    assert not store.has_work(anybody)
    store.handle(A, ListKeys(2, "d"))
    store.close_session(A)
    assert not store.has_work(anybody)


def test_a_watch_begins_with_one_moment_too() -> None:
    store = full_store(2000)
    [(_, begun)] = [reply for reply in store.handle(A, WatchKeys(1, "d")) if isinstance(reply[1], Changes)][:1]
    assert isinstance(begun, Changes)
    assert begun.changes[0].key == "d/000000"


KEYS = st.text("ab/", max_size=9).map(normalize)


@settings(max_examples=200)
@given(st.randoms(use_true_random=False), st.lists(KEYS, min_size=1, max_size=60), st.integers(2, 6))
def test_the_table_is_a_sorted_mapping(chance: random.Random, keys: list[str], block_max: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kv_table, "_BLOCK_MAX", block_max)
        table, model = Table(), dict[str, bytes]()
        kept = []
        for number in range(100):
            key = chance.choice(keys)
            below = sorted(k for k in model if k and (not key or k.startswith(f"{key}/")))
            match chance.choice(["put", "put", "put", "remove", "below", "cut"]):
                case "put":
                    model[key] = b"%d" % number
                    table.put(key, model[key])
                case "remove" if key in model:
                    assert table.remove(key) == len(model.pop(key))
                case "below":
                    kept.append((table.below(key), [(k, model[k]) for k in below]))
                case "cut":
                    stretch = table.cut(key)
                    sizes = sum(len(k) for k in below), sum(len(model[k]) for k in below)
                    assert (stretch.key_bytes, stretch.value_bytes) == sizes
                    kept.append((stretch, [(k, model.pop(k)) for k in below]))
            assert len(table) == len(model)
            assert all(table.get(each) == model.get(each) for each in keys)
        for stretch, expected in kept:
            assert [stretch.popleft() for _ in range(len(stretch))] == expected
