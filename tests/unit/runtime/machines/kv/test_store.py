"""The key-value store, call by call; the cases C1 to C20 are those of jax's own tests."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bringup.runtime.machines.failure_errors import REFUSAL_ERRORS
from bringup.runtime.machines.kv.keys import normalize
from bringup.runtime.machines.kv.store import StoreMachine
from bringup.transport.wire.services import (
    KEY_BYTES_MAX,
    VALUE_BYTES_MAX,
    CancelCall,
    Changes,
    CompareAndSet,
    DeleteKeys,
    Done,
    GetKey,
    IncrementKey,
    Items,
    ListKeys,
    MoreChanges,
    Number,
    Refusal,
    ServiceReply,
    SetKey,
    Value,
    WatchKeys,
)

A, B = 1, 2
"""Sessions."""


@pytest.fixture
def store() -> StoreMachine:
    return StoreMachine(2**30)


def put(store: StoreMachine, **keys: bytes) -> None:
    for key, value in keys.items():
        assert store.handle(A, SetKey(1, key, value, False))[0] == (A, Done(1))


def fill(store: StoreMachine, *keys: str) -> None:
    put(store, **dict.fromkeys(keys, b"v"))


def peek(store: StoreMachine, key: str) -> bytes | None:
    ((_, reply),) = store.handle(A, GetKey(9, key, False))
    assert isinstance(reply, Value)
    return reply.value


def anybody(session: int) -> bool:
    return True


def told(store: StoreMachine, request: ListKeys) -> list[ServiceReply]:
    """Return all that answers a list."""
    replies = store.handle(A, request)
    while store.has_work(anybody):
        replies += store.work(anybody)
    return [reply for _, reply in replies]


def listed(store: StoreMachine, prefix: str) -> list[str]:
    replies = told(store, ListKeys(9, prefix))
    assert all(isinstance(reply, Items) for reply in replies)
    return [item.key for reply in replies if isinstance(reply, Items) for item in reply.items]


def refusal(replies: list[tuple[int, ServiceReply]], error: str = "ConfigurationError") -> str:
    ((_, reply),) = replies
    assert isinstance(reply, Refusal)
    assert reply.error == error
    assert error in REFUSAL_ERRORS
    return reply.text


# Keys.


@pytest.mark.parametrize(
    ("key", "normal"),
    [
        ("///a//b/c//", "a/b/c"),
        ("a", "a"),
        ("/a", "a"),
        ("a/", "a"),
        ("a//b", "a/b"),
        ("", ""),
        ("/", ""),
        ("///", ""),
        ("ä/\0 b", "ä/\0 b"),
        (" / ", " / "),
    ],
)
def test_keys_are_normalised(store: StoreMachine, key: str, normal: str) -> None:
    assert normalize(key) == normalize(normal) == normal
    store.handle(A, SetKey(1, key, b"v", False))
    assert peek(store, normal) == peek(store, key) == peek(store, f"//{key}//") == b"v"


def test_c3_one_key_however_it_is_written(store: StoreMachine) -> None:
    fill(store, "/path", "/path/to/key1", "path/to//key2/")
    assert peek(store, "path//to///key1////") == b"v"
    assert listed(store, "/path//") == ["path/to/key1", "path/to/key2"]


# Set and get.


def test_c1_a_key_is_set_once(store: StoreMachine) -> None:
    put(store, key0=b"original_value")
    text = refusal(store.handle(B, SetKey(5, "/key0/", b"never_added", False)), "KeyExistsError")
    assert "key 'key0' is set already" in text
    assert "14 bytes" in text
    assert "overwrite=True" in text
    assert "original" not in text
    assert peek(store, "key0") == b"original_value"


def test_c2_a_key_is_overwritten_when_asked_for(store: StoreMachine) -> None:
    put(store, a=b"old")
    assert store.handle(B, SetKey(5, "a", b"new", True)) == [(B, Done(5))]
    assert peek(store, "a") == b"new"


def test_c6_a_key_that_is_not_there_reads_as_none(store: StoreMachine) -> None:
    assert peek(store, "a") is None
    fill(store, "a")
    assert peek(store, "a") == b"v"
    store.handle(A, DeleteKeys(1, "a"))
    assert peek(store, "a") is None


def test_empty_keys_and_values_are_keys_and_values(store: StoreMachine) -> None:
    store.handle(A, SetKey(1, "", b"", False))
    assert peek(store, "/") == b""
    refusal(store.handle(A, SetKey(1, "/", b"x", False)), "KeyExistsError")


def test_c18_values_are_any_bytes(store: StoreMachine) -> None:
    put(store, a=b"\x00\xff\x80")
    assert peek(store, "a") == b"\x00\xff\x80"


# Waiting.


def test_c4_a_waiting_get_is_answered_by_what_sets_its_key(store: StoreMachine) -> None:
    fill(store, "key0")
    store.handle(A, DeleteKeys(1, "key0"))
    assert store.handle(B, GetKey(7, "/key0", True)) == []
    assert store.handle(A, SetKey(2, "key0/", b"new", False)) == [(A, Done(2)), (B, Value(7, b"new"))]
    assert store.handle(A, SetKey(3, "key0", b"newer", True)) == [(A, Done(3))]


def test_waiting_gets_are_answered_in_the_order_in_which_they_came(store: StoreMachine) -> None:
    for session, ticket in ((B, 3), (A, 9), (B, 1), (3, 1)):
        assert store.handle(session, GetKey(ticket, "a", True)) == []
    assert store.handle(A, GetKey(8, "a/b", True)) == []
    replies = store.handle(A, IncrementKey(2, "a", 5))
    assert replies[0] == (A, Number(2, 5))
    assert replies[1:] == [(session, Value(ticket, b"5")) for session, ticket in ((B, 3), (A, 9), (B, 1), (3, 1))]


def test_compare_and_set_answers_who_waits(store: StoreMachine) -> None:
    store.handle(B, GetKey(3, "a", True))
    assert store.handle(A, CompareAndSet(1, "a", b"x", b"y")) == [(A, Number(1, 0))]
    assert store.handle(A, CompareAndSet(2, "a", None, b"y")) == [(A, Number(2, 1)), (B, Value(3, b"y"))]


def test_a_get_that_is_cancelled_or_whose_session_is_gone_is_not_answered(store: StoreMachine) -> None:
    for ticket in (1, 2, 3):
        store.handle(B, GetKey(ticket, "a", True))
    store.handle(3, GetKey(1, "a", True))
    assert store.handle(B, CancelCall(2)) == []
    assert store.handle(B, CancelCall(77)) == []
    store.close_session(3)
    store.close_session(4)
    assert store.handle(A, SetKey(1, "a", b"v", False))[1:] == [(B, Value(1, b"v")), (B, Value(3, b"v"))]
    assert store.handle(B, CancelCall(1)) == []


def test_a_refused_set_answers_nobody(store: StoreMachine) -> None:
    store = StoreMachine(300)
    store.handle(B, GetKey(1, "a", True))
    refusal(store.handle(A, SetKey(1, "a", bytes(300), False)))
    assert store.handle(A, SetKey(2, "a", b"", False)) == [(A, Done(2)), (B, Value(1, b""))]


def test_a_ticket_that_is_used_again_ends_the_call_that_had_it(store: StoreMachine) -> None:
    store.handle(B, GetKey(1, "a", True))
    store.handle(B, GetKey(1, "b", True))
    store.handle(B, WatchKeys(1, "c"))
    fill(store, "a", "b")
    assert store.handle(A, SetKey(1, "c/x", b"v", False))[1:] != []
    store.handle(B, GetKey(1, "d", True))
    assert store.handle(A, SetKey(1, "c/y", b"v", False)) == [(A, Done(1))]


def test_waiting_gets_take_bounded_memory(store: StoreMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bringup.runtime.machines.kv.store._WAITING_BYTES_MAX", 2000)
    for ticket in range(3):
        assert store.handle(A, GetKey(ticket, "a", True)) == []
    text = refusal(store.handle(B, GetKey(1, "a/b", True)))
    assert "'a/b'" in text
    assert "3 gets of this job wait" in text
    store.handle(A, CancelCall(0))
    assert store.handle(B, GetKey(1, "a/b", True)) == []
    assert store.used_bytes == 0


# Directories.


def test_c5_c13_delete_takes_what_is_below(store: StoreMachine) -> None:
    fill(store, "d", "d/1", "d/2/3", "dx", "d-")
    assert store.handle(A, DeleteKeys(4, "d/")) == [(A, Done(4))]
    assert listed(store, "") == ["d-", "dx"]


def test_c9_c10_c11_list_shows_what_is_below(store: StoreMachine) -> None:
    fill(store, "dir/path", "dir/path2", "dir/sub_dir/path", "dir", "dir_key", "a")
    expected = ["dir/path", "dir/path2", "dir/sub_dir/path"]
    assert listed(store, "dir") == listed(store, "/dir/") == expected
    assert listed(store, "dir/sub_dir") == ["dir/sub_dir/path"]
    for prefix in ("dir0", "wrong_dir/dir/path", "dir_key", "dir/path", "di"):
        assert listed(store, prefix) == []
    assert listed(store, "") == listed(store, "/") == sorted(["a", "dir", "dir_key", *expected])


def test_an_empty_list_is_one_empty_message(store: StoreMachine) -> None:
    assert store.handle(B, ListKeys(3, "a")) == [(B, Items(3, ()))]


def test_c17_long_lists_come_in_messages_of_bounded_size(store: StoreMachine) -> None:
    for number in range(10):
        store.handle(A, SetKey(1, f"big/{number}", bytes(2**20), False))
    for number in range(5000):
        store.handle(A, SetKey(1, f"many/{number:04}", b"", False))
    big = [reply for reply in told(store, ListKeys(1, "big")) if isinstance(reply, Items)]
    assert [(len(reply.items), reply.is_last) for reply in big] == [(1, n == 9) for n in range(10)]
    many = [reply for reply in told(store, ListKeys(1, "many")) if isinstance(reply, Items)]
    assert [(len(reply.items), reply.is_last) for reply in many] == [(4096, False), (904, True)]
    assert listed(store, "many") == [f"many/{number:04}" for number in range(5000)]


def test_c12_c14_c20_delete_of_some_and_of_none(store: StoreMachine) -> None:
    fill(store, "test_dir/1", "test")
    assert store.handle(A, DeleteKeys(1, "nothing/here")) == [(A, Done(1))]
    store.handle(A, DeleteKeys(1, "test_dir/"))
    assert listed(store, "test_dir") == []
    assert peek(store, "test") == b"v"


def test_delete_of_the_empty_key_leaves_all_others(store: StoreMachine) -> None:
    fill(store, "", "a", "a/b")
    assert listed(store, "") == ["a", "a/b"]
    store.handle(A, DeleteKeys(1, "//"))
    assert peek(store, "") is None
    assert listed(store, "") == ["a", "a/b"]


# Numbers.


def test_c7_c8_increment(store: StoreMachine) -> None:
    put(store, test_key=b"1", spaced=b" 7 ", plus=b"+7")
    assert store.handle(A, IncrementKey(5, "test_key", 3)) == [(A, Number(5, 4))]
    assert store.handle(A, IncrementKey(5, "new", 10)) == [(A, Number(5, 10))]
    assert store.handle(A, IncrementKey(5, "new", -13)) == [(A, Number(5, -3))]
    assert (peek(store, "test_key"), peek(store, "new")) == (b"4", b"-3")
    for key in ("spaced", "plus"):
        assert store.handle(A, IncrementKey(5, key, 1)) == [(A, Number(5, 8))]


def test_increment_by_nothing_reads_and_changes_nothing(store: StoreMachine) -> None:
    put(store, spaced=b" 7 ")
    store.handle(B, GetKey(1, "a", True))
    store.handle(B, WatchKeys(2, ""))
    assert store.handle(A, IncrementKey(1, "a", 0)) == [(A, Number(1, 0))]
    assert store.handle(A, IncrementKey(1, "spaced", 0)) == [(A, Number(1, 7))]
    assert peek(store, "a") is None
    assert peek(store, "spaced") == b" 7 "


@pytest.mark.parametrize(
    "value",
    [b"v3", b"", b" ", b"1_0", b"1.0", b"0x1", b"--1", b"1 2", b"9" * 19, "٣".encode(), b"1" * 5000, bytes(2**20)],
)
@pytest.mark.parametrize("by", [1, 0])
def test_what_is_no_number_is_not_incremented(store: StoreMachine, value: bytes, by: int) -> None:
    put(store, a=value)
    text = refusal(store.handle(A, IncrementKey(1, "/a/", by)))
    assert "key 'a'" in text
    assert repr(value[:40]) in text
    assert f"({len(value)} bytes)" in text
    assert len(text) < 400
    assert peek(store, "a") == value


@pytest.mark.parametrize(
    ("held", "by"), [(2**63 - 1, 1), (-(2**63), -1), (1, 2**63 - 1), (0, 2**63), (0, -(2**64)), (-1, 2**63)]
)
def test_numbers_stay_within_64_bits(store: StoreMachine, held: int, by: int) -> None:
    put(store, a=b"%d" % held)
    text = refusal(store.handle(A, IncrementKey(1, "a", by)))
    assert all(part in text for part in ("key 'a'", str(held), f"by {by}", "keeps its value"))
    assert peek(store, "a") == b"%d" % held


def test_the_ends_of_64_bits_are_numbers(store: StoreMachine) -> None:
    put(store, most=b"%d" % (2**63 - 2), least=b"%d" % (1 - 2**63))
    assert store.handle(A, IncrementKey(1, "most", 1)) == [(A, Number(1, 2**63 - 1))]
    assert store.handle(A, IncrementKey(1, "least", -1)) == [(A, Number(1, -(2**63)))]
    assert store.handle(A, IncrementKey(1, "most", 0)) == [(A, Number(1, 2**63 - 1))]


def test_compare_and_set(store: StoreMachine) -> None:
    def swap(expected: bytes | None, value: bytes) -> int:
        ((_, reply),) = store.handle(A, CompareAndSet(1, "/a", expected, value))
        assert isinstance(reply, Number)
        return reply.number

    assert swap(b"", b"x") == 0
    assert swap(None, b"one") == 1
    assert swap(None, b"two") == 0
    assert swap(b"two", b"three") == 0
    assert swap(b"one", b"two") == 1
    assert swap(b"two", b"two") == 1
    assert peek(store, "a") == b"two"


# Bounds.


def test_keys_and_values_have_bounds(store: StoreMachine) -> None:
    longest = "ä" * (KEY_BYTES_MAX // 2)
    value = bytes(VALUE_BYTES_MAX)
    assert store.handle(A, SetKey(1, f"/{longest}/", value, False)) == [(A, Done(1))]
    for request in (
        SetKey(1, f"{longest}x", b"v", False),
        GetKey(1, f"{longest}x", True),
        IncrementKey(1, f"{longest}x", 1),
        CompareAndSet(1, f"{longest}x", None, b"v"),
        WatchKeys(1, f"{longest}x"),
    ):
        text = refusal(store.handle(A, request))
        assert f"{KEY_BYTES_MAX + 1} bytes, at most {KEY_BYTES_MAX}" in text
        assert "'ääää" in text
    for too_large in (SetKey(1, "a", value + b"x", True), CompareAndSet(1, "a", None, value + b"x")):
        text = refusal(store.handle(A, too_large))
        assert f"key 'a' has {VALUE_BYTES_MAX + 1} bytes, at most {VALUE_BYTES_MAX}" in text
    assert len(store) == 1


def test_a_key_that_is_no_text_for_others_is_refused(store: StoreMachine) -> None:
    text = refusal(store.handle(A, SetKey(1, "a\ud800", b"v", False)))
    assert r"'a\ud800' is no UTF-8 text" in text
    assert peek(store, "a\ud800") is None


def test_the_quota_is_held_and_nothing_is_evicted() -> None:
    store = StoreMachine(10_000)
    numbers = 0
    while isinstance((reply := store.handle(A, SetKey(1, f"k{numbers}", bytes(500), False))[0][1]), Done):
        numbers += 1
    assert 10 < numbers < 20
    assert isinstance(reply, Refusal)
    assert reply.error == "ConfigurationError"
    for part in (f"'k{numbers}'", f"{store.used_bytes} bytes in {numbers} keys", "kv_max_bytes=10000", "delete keys"):
        assert part in reply.text
    assert store.used_bytes <= 10_000
    assert len(store) == len(listed(store, "")) == numbers
    refusal(store.handle(A, SetKey(1, "k0", bytes(9000), True)))
    refusal(store.handle(A, CompareAndSet(1, "new", None, bytes(500))))
    refusal(store.handle(A, CompareAndSet(1, "k0", bytes(500), bytes(9000))))
    assert peek(store, "k0") == bytes(500)
    assert store.handle(A, SetKey(1, "k0", b"", True)) == [(A, Done(1))]
    assert store.handle(A, SetKey(1, "k1", bytes(700), True)) == [(A, Done(1))]


def test_increment_is_held_to_the_quota() -> None:
    store = StoreMachine(100)
    assert "'a/b/c'" in refusal(store.handle(A, IncrementKey(1, "a/b/c", 1)))
    assert len(store) == store.used_bytes == 0


@settings(max_examples=60)
@given(st.randoms(use_true_random=False))
def test_the_store_does_as_its_model(chance: random.Random) -> None:
    """Random calls against the plainest store there is, and what it holds against what its watch has told."""
    store = StoreMachine(2**30)
    model: dict[str, bytes] = {}
    told: dict[str, bytes] = {}
    keys = ["", "a", "a/b", "a/b/c", "a/bc", "ab", "b", "b/x/y/z", "1"]
    revision = 0
    store.handle(B, WatchKeys(1, ""))
    for _ in range(200):
        key, number = chance.choice(keys), chance.randrange(3)
        value = b"%d" % number
        match chance.randrange(5):
            case 0:
                allowed = chance.random() < 0.5
                replies = store.handle(A, SetKey(1, key, value, allowed))
                assert (replies[0][1] == Done(1)) == (allowed or key not in model)
                if allowed or key not in model:
                    model[key] = value
            case 1:
                replies = store.handle(A, DeleteKeys(1, key))
                below = [other for other in model if other == key or (key and other.startswith(f"{key}/"))]
                for other in below:
                    del model[other]
            case 2:
                replies = store.handle(A, IncrementKey(1, key, number))
                if number:
                    model[key] = b"%d" % (int(model.get(key, b"0")) + number)
                assert replies[0][1] == Number(1, int(model.get(key, b"0")))
            case 3:
                expected = chance.choice([None, b"0", b"1", b"2"])
                replies = store.handle(A, CompareAndSet(1, key, expected, value))
                assert replies[0][1] == Number(1, model.get(key) == expected)
                if model.get(key) == expected:
                    model[key] = value
            case _:
                replies = []
                assert peek(store, key) == model.get(key)
                below = sorted(other for other in model if other and (not key or other.startswith(f"{key}/")))
                assert listed(store, key) == below
        count = sum(len(reply.changes) for _, reply in replies if isinstance(reply, Changes))
        revision += count  # those of one delete bear the last
        for session, reply in replies[1:]:
            assert session == B
            assert isinstance(reply, Changes)
            for change in reply.changes:
                assert change.revision == revision
                if change.value is None:
                    del told[change.key]
                else:
                    told[change.key] = change.value
        assert len(store) == len(model)
        assert told == model
        store.handle(B, MoreChanges(1, 1000))
    for key in list(model):
        store.handle(A, DeleteKeys(1, key))
    assert store.used_bytes == len(store) == 0
