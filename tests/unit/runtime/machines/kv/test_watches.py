"""Watches: a consistent snapshot, then every change in order and once, and bounded memory whatever the reader does."""

from __future__ import annotations

import itertools
import random
import tracemalloc

import pytest

from bringup.runtime.machines.kv.store import StoreMachine
from bringup.runtime.machines.kv.watches import WatchLimits
from bringup.transport.wire.services import (
    CancelCall,
    Changes,
    CompareAndSet,
    DeleteKeys,
    IncrementKey,
    KeyChange,
    MoreChanges,
    Refusal,
    ServiceReply,
    SetKey,
    WatchKeys,
)

A, B = 1, 2
"""The session that writes, and the one that watches."""

SMALL = WatchLimits(
    credit=4, credit_bytes=100_000, backlog=10, backlog_bytes=100_000, message=3, message_bytes=50_000, watches=3
)


def put(store: StoreMachine, *keys: str, value: bytes = b"v") -> list[Changes | Refusal]:
    """Set keys; returns what the watches were told."""
    return [told for key in keys for told in others(store.handle(A, SetKey(1, key, value, True)))]


def others(replies: list[tuple[int, ServiceReply]]) -> list[Changes | Refusal]:
    return [reply for session, reply in replies if session != A and isinstance(reply, Changes | Refusal)]


def watch(store: StoreMachine, prefix: str, ticket: int = 1) -> list[Changes | Refusal]:
    return others(store.handle(B, WatchKeys(ticket, prefix)))


def keys_of(messages: list[Changes | Refusal]) -> list[str]:
    assert all(isinstance(message, Changes) for message in messages)
    return [change.key for message in messages if isinstance(message, Changes) for change in message.changes]


def test_a_watch_begins_with_what_there_is_and_says_when_that_is_all() -> None:
    store = StoreMachine(2**30)
    put(store, "a", "a/x", "ab", "a/b/c", value=b"1")
    revision = 4
    assert watch(store, "/a/") == [
        Changes(1, tuple(KeyChange(key, b"1", revision) for key in ("a", "a/b/c", "a/x")), ends_snapshot=True)
    ]
    assert put(store, "a/x", value=b"2") == [Changes(1, (KeyChange("a/x", b"2", revision + 1),))]
    assert put(store, "ab", "b/a") == []
    assert others(store.handle(A, IncrementKey(1, "a/n", 5))) == [Changes(1, (KeyChange("a/n", b"5", revision + 4),))]
    assert others(store.handle(A, CompareAndSet(1, "a/n", b"5", b"6"))) == [
        Changes(1, (KeyChange("a/n", b"6", revision + 5),))
    ]
    assert others(store.handle(A, DeleteKeys(1, "a/b"))) == [Changes(1, (KeyChange("a/b/c", None, revision + 6),))]


def test_an_empty_snapshot_is_one_empty_message() -> None:
    assert watch(StoreMachine(2**30), "a") == [Changes(1, (), ends_snapshot=True)]


@pytest.mark.parametrize("prefix", ["", "/", "//"])
def test_the_whole_store_can_be_watched(prefix: str) -> None:
    store = StoreMachine(2**30)
    put(store, "", "a/b")
    assert keys_of(watch(store, prefix)) == ["", "a/b"]
    assert keys_of(put(store, "c", "")) == ["c", ""]


def test_what_is_refused_or_reads_is_no_change() -> None:
    store = StoreMachine(2**30)
    put(store, "a")
    watch(store, "")
    for request in (
        SetKey(1, "a", b"x", False),
        SetKey(1, "a" * 2000, b"x", True),
        CompareAndSet(1, "a", b"other", b"x"),
        IncrementKey(1, "a", 1),
        IncrementKey(1, "n", 0),
        DeleteKeys(1, "b"),
    ):
        assert others(store.handle(A, request)) == []


def test_one_delete_is_told_in_few_messages_in_the_order_of_the_keys() -> None:
    store = StoreMachine(2**30)
    keys = sorted(f"a/{number}" for number in range(1000))
    put(store, *keys)
    watch(store, "b")
    store.handle(3, WatchKeys(7, "a"))
    store.handle(3, MoreChanges(7, 1000))
    told = others(store.handle(A, DeleteKeys(1, "a")))
    assert keys_of(told) == keys
    assert len(told) == 4


def test_every_watch_of_a_prefix_above_is_told() -> None:
    store = StoreMachine(2**30)
    for session, (ticket, prefix) in itertools.product((B, 3), enumerate(("", "a", "b", "a/b", "a/b/c"))):
        store.handle(session, WatchKeys(ticket, prefix))
    replies = [(session, told.ticket) for session, told in store.handle(A, SetKey(1, "a/b", b"v", False))[1:]]
    assert sorted(replies) == [(B, 0), (B, 1), (B, 3), (3, 0), (3, 1), (3, 3)]


def test_no_more_is_sent_than_the_reader_has_credit_for() -> None:
    store = StoreMachine(2**30, SMALL)
    put(store, *"abcdef")
    first = watch(store, "")
    assert [(len(message.changes), message.ends_snapshot) for message in first if isinstance(message, Changes)] == [
        (3, False),
        (1, False),
    ]
    assert put(store, "g", "a") == []
    second = others(store.handle(B, MoreChanges(1, 3)))
    assert keys_of(second) == ["e", "f", "g"]
    assert [message.ends_snapshot for message in second if isinstance(message, Changes)] == [True, False]
    assert others(store.handle(B, MoreChanges(1, 0))) == []
    assert keys_of(others(store.handle(B, MoreChanges(1, 1)))) == ["a"]
    assert others(store.handle(B, MoreChanges(1, 2**32 - 1))) == []
    assert len(keys_of(put(store, *"abcdefgh"))) == 4


def test_credit_is_bounded_in_bytes_too() -> None:
    store = StoreMachine(2**30, SMALL)
    watch(store, "")
    assert keys_of(put(store, "a", "b", value=bytes(80_000))) == ["a", "b"]
    assert put(store, "c") == []
    assert keys_of(others(store.handle(B, MoreChanges(1, 1)))) == ["c"]


def test_messages_are_bounded_in_bytes() -> None:
    store = StoreMachine(2**30)
    put(store, *"abcd", value=bytes(2**20))
    told = watch(store, "")
    assert [len(message.changes) for message in told if isinstance(message, Changes)] == [1, 1, 1, 1]


def test_the_snapshot_is_of_one_moment_however_late_it_is_read() -> None:
    store = StoreMachine(2**30, SMALL)
    keys = list("abcdefgh")
    put(store, *keys, value=b"old")
    told = watch(store, "")
    put(store, *"hgf", value=b"new")
    others(store.handle(A, DeleteKeys(1, "e")))
    for _ in range(10):
        told += others(store.handle(B, MoreChanges(1, 4)))
    changes = [change for message in told if isinstance(message, Changes) for change in message.changes]
    assert [(change.key, change.value, change.revision) for change in changes] == [
        *((key, b"old", 8) for key in keys),
        ("h", b"new", 9),
        ("g", b"new", 10),
        ("f", b"new", 11),
        ("e", None, 12),
    ]
    ends = [number for number, message in enumerate(told) if isinstance(message, Changes) and message.ends_snapshot]
    assert len(ends) == 1
    assert len(keys_of(told[: ends[0] + 1])) == len(keys)


def test_a_reader_that_is_too_slow_is_told_by_how_much_and_no_more() -> None:
    store = StoreMachine(2**30, SMALL)
    watch(store, "a")
    store.handle(3, WatchKeys(1, "a"))
    assert not any(isinstance(told, Refusal) for told in put(store, *[f"a/{key}" for key in range(14)]))
    store.handle(3, MoreChanges(1, 4))
    replies = store.handle(A, SetKey(1, "a/14", b"v", False))
    ((session, told),) = [(session, told) for session, told in replies if isinstance(told, Refusal)]
    assert (session, told.ticket, told.error) == (B, 1, "ConfigurationError")
    for part in ("prefix 'a'", "10 changes of", "at most 10 of 100000 bytes", "watch anew"):
        assert part in told.text
    assert others(store.handle(B, MoreChanges(1, 4))) == []
    assert keys_of(others(store.handle(3, MoreChanges(1, 4)))) == ["a/8", "a/9", "a/10", "a/11"]
    assert len(keys_of(watch(store, "a"))) == 4


@pytest.mark.parametrize("begin", ["with a snapshot", "empty"])
def test_a_slow_reader_costs_bounded_memory(begin: str) -> None:
    limits = WatchLimits(backlog_bytes=2**20, credit=10, credit_bytes=2**18)
    store = StoreMachine(2**30, limits)
    keys = [f"a/{number:02}" for number in range(64)]
    if begin != "empty":
        put(store, *keys, value=bytes(2**14))
    tracemalloc.start()
    watch(store, "a")
    ended = 0
    for number in range(1000):
        told = put(store, keys[number % 64], value=random.Random(number).randbytes(2**14))
        ended += any(isinstance(message, Refusal) for message in told)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert ended == 1
    assert held < 64 * 2**14 + 2**19


def test_values_that_were_replaced_while_the_snapshot_waits_count() -> None:
    store = StoreMachine(2**30, SMALL)
    put(store, *"abcdefgh", value=bytes(60_000))
    watch(store, "")
    assert put(store, "h", "g") == []
    (told,) = put(store, "f")
    assert isinstance(told, Refusal)
    assert "2 changes of 120" in told.text


def test_one_call_may_make_more_changes_than_the_backlog_holds() -> None:
    store = StoreMachine(2**30, SMALL)
    keys = [f"a/{number:02}" for number in range(50)]
    put(store, *keys)
    watch(store, "a/x")
    told = others(store.handle(3, WatchKeys(1, "a")))
    for _ in range(20):
        told += others(store.handle(3, MoreChanges(1, 4)))
    assert keys_of(told) == keys
    told = others(store.handle(A, DeleteKeys(1, "a")))
    for _ in range(20):
        told += others(store.handle(3, MoreChanges(1, 4)))
    assert keys_of(told) == keys


def test_a_watch_that_is_cancelled_or_whose_session_is_gone_is_told_nothing() -> None:
    store = StoreMachine(2**30)
    watch(store, "", 1)
    watch(store, "", 2)
    store.handle(3, WatchKeys(1, ""))
    assert store.handle(B, CancelCall(1)) == []
    store.close_session(3)
    assert [message.ticket for message in put(store, "a")] == [2]
    store.close_session(B)
    assert put(store, "b") == []
    assert others(store.handle(B, MoreChanges(2, 1))) == []


def test_a_session_has_a_bounded_number_of_watches() -> None:
    store = StoreMachine(2**30, SMALL)
    for ticket in range(3):
        watch(store, "a", ticket)
    (told,) = watch(store, "b", 3)
    assert isinstance(told, Refusal)
    assert "prefix 'b'" in told.text
    assert "3 watches are open" in told.text
    store.handle(B, CancelCall(0))
    assert watch(store, "b", 3) == [Changes(3, (), ends_snapshot=True)]


def test_readers_of_any_pace_see_the_same_changes_in_the_same_order() -> None:
    chance = random.Random(4)
    limits = WatchLimits(credit=5, message=3, backlog=10_000)
    store = StoreMachine(2**30, limits)
    seen: dict[int, list[KeyChange]] = {session: [] for session in range(10, 20)}
    untaken = dict.fromkeys(seen, 0)
    snapshots: dict[int, int] = {}
    keys = ["a/b", "a/c", "a", "b"]

    def deliver(replies: list[tuple[int, ServiceReply]]) -> None:
        for session, reply in replies:
            if isinstance(reply, Changes):
                seen[session] += reply.changes
                untaken[session] += len(reply.changes)
                assert untaken[session] <= limits.credit
                if reply.ends_snapshot:
                    assert session not in snapshots
                    snapshots[session] = len(seen[session])

    def take(session: int, count: int) -> None:
        untaken[session] -= count
        deliver(store.handle(session, MoreChanges(1, count)))

    revisions: list[KeyChange] = []
    store.handle(99, WatchKeys(1, "a"))
    for step in range(600):
        if step % 60 == 0:
            deliver(store.handle(10 + step // 60, WatchKeys(1, "a")))
        request = SetKey(1, chance.choice(keys), b"%d" % step, True) if chance.random() < 0.8 else DeleteKeys(1, "a/b")
        replies = store.handle(A, request)
        revisions += [
            change
            for session, reply in replies
            if session == 99 and isinstance(reply, Changes)
            for change in reply.changes
        ]
        store.handle(99, MoreChanges(1, 5))
        deliver([reply for reply in replies if reply[0] in seen])
        session = chance.choice(list(seen))
        take(session, chance.randint(0, untaken[session]))
    for session in list(seen) * 200:
        take(session, untaken[session])
    for session, changes in seen.items():
        later = changes[snapshots[session] :]
        began = changes[0].revision if snapshots[session] else 0
        assert later == [change for change in revisions if change.revision > began]
        held: dict[str, bytes | None] = {}
        for change in revisions:
            if change.revision <= began:
                held[change.key] = change.value
        snapshot = {change.key: change.value for change in changes[: snapshots[session]]}
        assert snapshot == {key: value for key, value in held.items() if value is not None}
