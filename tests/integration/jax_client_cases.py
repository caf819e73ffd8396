"""Cases of jax's distributed client, each run by all three clients of a job.

The cases are those that jax's own tests have, or that were seen when its client was run, in this order: C the key-value
store, D barriers, E live nodes, G preemption. A docstring says where ours differs, and why; `jax_case_list.py` lists
them all, with those that are tested elsewhere.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from case_tools import TICK, Seconds, notice_when_asked, until_come

import bringup
from bringup.compat.jax.distributed import (
    DistributedRuntimeClient,
    JaxRuntimeError,
    PreemptionSyncManager,
    global_state,
)

N = 3
LONG = 30_000
"""Milliseconds: nothing here takes as long."""

MIB = 1024 * 1024

_Call = tuple[Any, ...]
"""A function, and its arguments."""


def _client() -> DistributedRuntimeClient:
    client = global_state.client
    assert client is not None
    return client


def _own(case: str) -> str:
    """Return a directory for this client alone: each runs the case, the coordinator's own and those over a link."""
    return f"{case}/{global_state.process_id}"


def _error(code: str, call: Callable[..., object], *arguments: Any) -> str:
    """Return the text of the error that a call raises, without its code."""
    with pytest.raises(JaxRuntimeError, match=f"^{code}: ") as raised:
        call(*arguments)
    assert isinstance(raised.value, RuntimeError)
    assert isinstance(raised.value.__cause__, bringup.BringupError) or code == "INVALID_ARGUMENT"
    assert raised.value.code == code
    return str(raised.value).removeprefix(f"{code}: ")


def _meet(name: str, process_ids: Sequence[int] | None = None) -> None:
    _client().wait_at_barrier(f"meet {name}", LONG, process_ids)


# C: the key-value store.


def c01_a_key_is_set_once(system: bringup.System) -> None:
    client, key = _client(), _own("c01")
    client.key_value_set(key, "original_value")
    text = _error("ALREADY_EXISTS", client.key_value_set, key, "never_added")
    assert text.startswith(f"key {key} already exists.")
    assert client.blocking_key_value_get(key, LONG) == "original_value"


def c02_unless_it_may_be_overwritten(system: bringup.System) -> None:
    client, key = _client(), _own("c02")
    client.key_value_set(key, "one")
    client.key_value_set(key, "two", allow_overwrite=True)
    client.key_value_set_bytes(key, b"three", True)
    assert client.blocking_key_value_get(key, LONG) == "three"


def c03_keys_are_paths(system: bringup.System) -> None:
    client, own = _client(), _own("c03")
    client.key_value_set(f"/{own}/path", "value0")
    client.key_value_set(f"/{own}/path/to/key1", "value1")
    client.key_value_set(f"{own}/path/to//key2/", "value2")
    assert client.blocking_key_value_get(f"{own}/path//to///key1////", LONG) == "value1"
    assert client.key_value_dir_get(f"///{own}//path/") == [
        (f"{own}/path/to/key1", "value1"),
        (f"{own}/path/to/key2", "value2"),
    ]


def c04_a_get_waits_over_a_delete(system: bringup.System) -> None:
    client, own = _client(), _own("c04")
    key = f"{own}/key0"
    client.key_value_set(key, "value0")
    client.key_value_delete(key)
    found: list[str] = []
    getter = threading.Thread(target=lambda: found.append(client.blocking_key_value_get(key, LONG)))
    getter.start()
    client.key_value_set(key, "value0_new")
    getter.join(30)
    assert found == ["value0_new"]


def c05_delete_takes_what_lies_below(system: bringup.System) -> None:
    client, own = _client(), _own("c05")
    client.key_value_set(f"/{own}/path/to/key1", "value1")
    client.key_value_delete(f"/{own}/path")
    _error("NOT_FOUND", client.key_value_try_get, f"/{own}/path/to/key1")


def c06_try_get_does_not_wait(system: bringup.System) -> None:
    """The text is the one that programs look for; the key stands in it as it was given."""
    client, key = _client(), f"//{_own('c06')}/"
    assert _error("NOT_FOUND", client.key_value_try_get, key) == f"Config key {key} not found."
    client.key_value_set(key, "value")
    assert client.key_value_try_get(key) == "value"
    assert client.key_value_try_get_bytes(key) == b"value"
    client.key_value_delete(key)
    assert _error("NOT_FOUND", client.key_value_try_get_bytes, key) == f"Config key {key} not found."


def c07_increment_of_text(system: bringup.System) -> None:
    client, own = _client(), _own("c07")
    client.key_value_set(f"{own}/test_key", "1")
    assert client.key_value_increment(f"{own}/test_key", 3) == 4
    assert client.key_value_try_get(f"{own}/test_key") == "4"
    assert client.key_value_increment(f"{own}/new_key", 10) == 10
    assert client.key_value_try_get(f"{own}/new_key") == "10"
    client.key_value_set(f"{own}/bad", "bad_value")
    _error("FAILED_PRECONDITION", client.key_value_increment, f"{own}/bad", 1)
    assert client.key_value_try_get(f"{own}/bad") == "bad_value"
    client.key_value_set(f"{own}/blank", " 7 ")
    assert client.key_value_increment(f"{own}/blank", 1) == 8
    client.key_value_set(f"{own}/most", str(2**63 - 1))
    _error("FAILED_PRECONDITION", client.key_value_increment, f"{own}/most", 1)


def c08_increment_from_nothing(system: bringup.System) -> None:
    client, key = _client(), _own("c08")
    assert [client.key_value_increment(key, by) for by in (3, 4, -10)] == [3, 7, -3]
    assert client.key_value_try_get(key) == "-3"


def c09_a_directory_is_listed_whole(system: bringup.System) -> None:
    client, own = _client(), _own("c09")
    paths = [f"{own}/dir/path", f"{own}/dir/path2", f"{own}/dir/sub_dir/path"]
    for place, path in enumerate(paths):
        client.key_value_set(path, f"value{place}")
    expected = [(path, f"value{place}") for place, path in enumerate(paths)]
    assert client.key_value_dir_get(f"{own}/dir") == expected
    assert client.key_value_dir_get_bytes(f"{own}/dir/") == [(path, value.encode()) for path, value in expected]


def c10_and_nothing_else(system: bringup.System) -> None:
    """The whole store cannot be listed here, as in the original; `System.kv.list("")` does that."""
    client, own = _client(), _own("c10")
    assert client.key_value_dir_get(f"{own}/dir") == []
    for key in ("dir0/path", "wrong_dir/dir/path", "dir_key", "dir"):
        client.key_value_set(f"{own}/{key}", "value")
    assert client.key_value_dir_get(f"{own}/dir") == []
    assert client.key_value_dir_get("") == client.key_value_dir_get("/") == []


def c11_a_slash_at_the_end_means_the_same(system: bringup.System) -> None:
    client, own = _client(), _own("c11")
    for key in ("test_dir/sub_dir/1", "test_dir/sub_dir/2", "test_dir/3", "test"):
        client.key_value_set(f"{own}/{key}", key)
    assert {value for _, value in client.key_value_dir_get(f"{own}/test_dir/")} == {
        "test_dir/sub_dir/1",
        "test_dir/sub_dir/2",
        "test_dir/3",
    }


def c12_a_directory_is_deleted_whole(system: bringup.System) -> None:
    client, own = _client(), _own("c12")
    for key in ("1", "sub_dir/2"):
        client.key_value_set(f"{own}/test_dir/{key}", key)
    client.key_value_delete(f"{own}/test_dir/")
    assert client.key_value_dir_get(f"{own}/test_dir") == []


def c13_with_the_key_of_its_name(system: bringup.System) -> None:
    client, own = _client(), _own("c13")
    for key in ("d", "d/1", "d/2/3", "dx"):
        client.key_value_set(f"{own}/{key}", key)
    client.key_value_delete(f"{own}/d/")
    assert client.key_value_dir_get(own) == [(f"{own}/dx", "dx")]


def c14_a_get_of_what_was_deleted_times_out(system: bringup.System) -> None:
    client, own = _client(), _own("c14")
    client.key_value_set(f"{own}/key", "value")
    client.key_value_set(f"{own}/other", "value")
    client.key_value_delete(f"{own}/key")
    text = _error("DEADLINE_EXCEEDED", client.blocking_key_value_get, f"{own}/key", 200)
    assert text.startswith(f"GetKeyValue() timed out with key: {own}/key and duration: 200ms")
    assert client.blocking_key_value_get(f"{own}/other", 0) == "value"


def c15_a_get_waits_for_another_client(system: bringup.System) -> None:
    client = _client()
    if system.client_id == 1:
        time.sleep(0.5)
        client.key_value_set("c15", "late")
        return
    with Seconds() as wait:
        assert client.blocking_key_value_get("c15", LONG) == "late"
    assert 0.3 < wait.taken < 5.0


def c16_a_get_times_out_at_its_deadline(system: bringup.System) -> None:
    client, key = _client(), _own("c16")
    for milliseconds, least in ((200, 0.2), (0, 0.0), (-1, 0.0)):
        with Seconds() as wait:
            _error("DEADLINE_EXCEEDED", client.blocking_key_value_get_bytes, key, milliseconds)
        assert least - TICK <= wait.taken < least + 1.0


def c17_large_values_are_listed_everywhere(system: bringup.System) -> None:
    client = _client()
    if system.client_id == 0:
        for place in range(10):
            client.key_value_set(f"c17/{place}", chr(ord("a") + place) * MIB)
    _meet("c17")
    expected = [(f"c17/{place}", chr(ord("a") + place) * MIB) for place in range(10)]
    assert client.key_value_dir_get("c17/") == expected


def c18_bytes_that_are_no_text(system: bringup.System) -> None:
    client, own = _client(), _own("c18")
    client.key_value_set_bytes(f"{own}/key", b"\x00\xff\x80")
    assert client.blocking_key_value_get_bytes(f"{own}/key", LONG) == b"\x00\xff\x80"
    assert client.key_value_dir_get_bytes(own) == [(f"{own}/key", b"\x00\xff\x80")]
    with pytest.raises(UnicodeDecodeError):
        client.blocking_key_value_get(f"{own}/key", 0)
    with pytest.raises(UnicodeDecodeError):
        client.key_value_dir_get(own)


def c19_one_sets_and_all_get(system: bringup.System) -> None:
    client = _client()
    if system.client_id == 0:
        client.key_value_set("c19", "JAX is great!")
    assert client.blocking_key_value_get("c19", LONG) == "JAX is great!"


def c20_nothing_can_be_deleted_again(system: bringup.System) -> None:
    _client().key_value_delete(_own("c20"))


def c21_what_the_original_takes_and_what_not(system: bringup.System) -> None:
    """A key ends at a NUL in the original, so that two keys are one; here they are two.

    A value of the wrong type, or a time that is no whole number, is a `TypeError` in both.
    """
    client, own = _client(), _own("c21")
    for key, value in ((f"{own}/empty", ""), (f"{own}/日本", "Grüße")):
        client.key_value_set(key, value)
        assert client.blocking_key_value_get(key, LONG) == value
    client.key_value_set("", "the empty key", allow_overwrite=True)
    assert client.key_value_try_get("/") == "the empty key"
    client.key_value_set(f"{own}/x\0y", "with")
    client.key_value_set(f"{own}/x", "without")
    assert [client.key_value_try_get(f"{own}/x{end}") for end in ("\0y", "")] == ["with", "without"]
    wrong: list[_Call] = [
        (client.key_value_set, own, b"bytes"),
        (client.key_value_set, own, 1),
        (client.key_value_set_bytes, own, "text"),
        (client.key_value_set, b"key", "text"),
        (client.blocking_key_value_get, own, 1.5),
        (client.key_value_increment, own, 1.5),
        (client.wait_at_barrier, 7, 1),
    ]
    for call, *arguments in wrong:
        with pytest.raises(TypeError):
            call(*arguments)
    _error("INVALID_ARGUMENT", client.key_value_set, "k" * 1025, "too long")


def c22_from_plain_threads(system: bringup.System) -> None:
    client, key = _client(), "c22"
    threads = [
        threading.Thread(target=lambda: [client.key_value_increment(key, 1) for _ in range(20)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    _meet("c22")
    assert client.key_value_increment(key, 0) == N * 4 * 20


# D: barriers.


def d01_all_wait_for_the_last(system: bringup.System) -> None:
    if system.client_id == 0:
        until_come(system, "d01", (1, 2))
        assert _client().key_value_dir_get("d01") == []
    _client().wait_at_barrier("d01", LONG)
    _client().key_value_set(_own("d01"), "through")


def d02_some_pass_without_the_others(system: bringup.System) -> None:
    if system.client_id < 2:
        _client().wait_at_barrier("d02", LONG, process_ids=[0, 1])


def d03_sets_that_differ_fail_for_all(system: bringup.System) -> None:
    """Who comes to the failed round later is told the same, and the id can be used again."""
    named = {0: [0, 1], 1: [1, 2]}
    if system.client_id in named:
        text = _error("INVALID_ARGUMENT", _client().wait_at_barrier, "d03", LONG, named[system.client_id])
        assert "clients 0-1" in text
        assert "clients 1-2" in text
        _client().key_value_set(_own("d03"), text)
    if system.client_id == 2:
        texts = {_client().blocking_key_value_get(f"d03/{other}", LONG) for other in (0, 1)}
        assert texts == {_error("INVALID_ARGUMENT", _client().wait_at_barrier, "d03", LONG, [1, 2])}
    _client().wait_at_barrier("d03", LONG)


def d04_one_who_is_not_among_them_while_another_waits(system: bringup.System) -> None:
    """All of them are told, also who comes later."""
    client = _client()
    if system.client_id == 0:
        until_come(system, "d04", (1,))
    if system.client_id == 2:
        client.blocking_key_value_get("d04/0", LONG)
    text = _error("INVALID_ARGUMENT", client.wait_at_barrier, "d04", LONG, [1, 2])
    assert "client 1 named clients 1-2; client 0 named clients 1-2, without itself" in text
    client.key_value_set(_own("d04"), text)
    _meet("d04")
    if system.client_id != 0:
        client.wait_at_barrier("d04", LONG, [1, 2])


def d05_one_who_is_not_among_them_afterwards(system: bringup.System) -> None:
    if system.client_id < 2:
        _client().wait_at_barrier("d05", LONG, [0, 1])
    _meet("d05")
    if system.client_id == 2:
        text = _error("INVALID_ARGUMENT", _client().wait_at_barrier, "d05", LONG, [0, 1])
        assert "client 2 named clients 0-1, without itself" in text


def d06_one_who_is_not_in_the_job(system: bringup.System) -> None:
    me = system.client_id
    with Seconds() as wait:
        text = _error("INVALID_ARGUMENT", _client().wait_at_barrier, f"d06/{me}", LONG, [me, 7])
    assert "client 7" in text
    assert wait.taken < 5.0


def d07_a_time_out_says_who_is_missing(system: bringup.System) -> None:
    """All who are missing are named, where the original names two. It comes at the deadline, not up to 1 s later.

    D8: who comes to that round later is told the same at once, and the next round is as good as any.
    """
    client = _client()
    if system.client_id == 2:
        texts = {client.blocking_key_value_get(f"d07/{other}", LONG) for other in (0, 1)}
        with Seconds() as late:
            texts.add(_error("DEADLINE_EXCEEDED", client.wait_at_barrier, "d07", LONG))
        assert late.taken < 5.0
        (text,) = texts
        assert text.startswith("Barrier timed out. Id: d07. # of tasks that reached the barrier: 2/3. ")
        assert "client 1, which came first. Missing: client 2 (" in text
        assert "client 0" not in text
    else:
        if system.client_id == 0:
            until_come(system, "d07", (1,))
        with Seconds() as wait:
            text = _error("DEADLINE_EXCEEDED", client.wait_at_barrier, "d07", 500)
        assert wait.taken < 1.4
        client.key_value_set(_own("d07"), text)
    client.wait_at_barrier("d07", LONG)


def d09_the_first_sets_the_deadline(system: bringup.System) -> None:
    if system.client_id == 2:
        return
    if system.client_id == 0:
        until_come(system, "d09", (1,))
    with Seconds() as wait:
        _error("DEADLINE_EXCEEDED", _client().wait_at_barrier, "d09", (LONG, 300)[system.client_id])
    assert wait.taken < 2.0


def d10_an_id_can_be_used_again(system: bringup.System) -> None:
    for _ in range(2):
        _client().wait_at_barrier("d10", LONG)


def d11_a_slow_and_a_fast_client_never_meet_in_the_wrong_round(system: bringup.System) -> None:
    """In the original each client counts its calls, and the counters of a barrier must agree. Here the server counts.

    So no client can be out of step (D11, D12), also not after rounds that failed for some before they came.
    """
    client, me = _client(), system.client_id
    for number in range(20):
        client.key_value_increment("d11", 1)
        client.wait_at_barrier("d11", LONG)
        assert client.key_value_increment("d11", 0) >= N * (number + 1)
        if me == 2 and number % 5 == 0:
            time.sleep(0.005)


def d16_one_thread_at_a_time(system: bringup.System) -> None:
    client = _client()
    waiting = threading.Thread(target=client.wait_at_barrier, args=("d16", LONG))
    if system.client_id == 1:
        waiting.start()
        client.blocking_key_value_get("d16", LONG)
        assert "waits there already" in _error("FAILED_PRECONDITION", client.wait_at_barrier, "d16", LONG)
        client.key_value_set("d16/refused", "")
        waiting.join(30)
        assert not waiting.is_alive()
        return
    if system.client_id == 0:
        until_come(system, "d16", (1,))
        client.key_value_set("d16", "")
    client.blocking_key_value_get("d16/refused", LONG)
    client.wait_at_barrier("d16", LONG)


def d18_different_barriers_do_not_meet(system: bringup.System) -> None:
    _error("DEADLINE_EXCEEDED", _client().wait_at_barrier, f"barrier_{system.client_id}", 200)


def d19_the_even_ones(system: bringup.System) -> None:
    if system.client_id % 2 == 0:
        _client().wait_at_barrier("d19", LONG, process_ids=[0, 2])


def d20_no_ids_are_all_and_double_ones_are_refused(system: bringup.System) -> None:
    client, me = _client(), system.client_id
    client.wait_at_barrier("d20", LONG, process_ids=[])
    _error("INVALID_ARGUMENT", client.wait_at_barrier, "d20/double", LONG, [me, me])
    for wrong in ([me, -1], [me, 2**40], ["0"], [None], [True]):
        _error("INVALID_ARGUMENT", client.wait_at_barrier, "d20/wrong", LONG, wrong)
    client.wait_at_barrier(f"d20/{me}", 0, [me])


# E: live nodes.


def e19_live_nodes_are_the_same_everywhere(system: bringup.System) -> None:
    """Nobody is ever missing from what is returned: a job ends with any of its clients, as jax's does by default."""
    client = _client()
    for _ in range(2):
        live = client.get_live_nodes([2, 1, 0, 99])
        assert live == {member.client_id: member.incarnation for member in system.members}
        client.key_value_set(_own("e19"), repr(live), allow_overwrite=True)
        _meet("e19")
        assert {value for _, value in client.key_value_dir_get("e19")} == {repr(live)}
        _meet("e19")


def e19_sets_that_overlap_do_not_wait_for_each_other(system: bringup.System) -> None:
    client, me = _client(), system.client_id
    sets: dict[int, list[list[int]]] = {0: [[0, 1]], 1: [[1, 2], [0, 1]], 2: [[2, 1]]}
    for process_ids in sets[me]:
        assert set(client.get_live_nodes(process_ids)) == set(process_ids)


def e19_who_asks_must_be_among_them(system: bringup.System) -> None:
    client, me = _client(), system.client_id
    for process_ids in ([(me + 1) % N], []):
        text = _error("INVALID_ARGUMENT", client.get_live_nodes, process_ids)
        assert text.startswith(f"Requesting task {me} is not one of the tasks specified in a GetAliveTasks request.")


# G: preemption.


def _manager() -> PreemptionSyncManager:
    manager = global_state.preemption_sync_manager
    assert manager is not None
    return manager


def _all_are_asked(system: bringup.System, asked: threading.Event, announcer: int) -> None:
    _meet("before the notice")
    if system.client_id == announcer:
        system.announce_preemption(reason="maintenance")
    assert asked.wait(30)
    _meet("after the notice")


def g01_no_notice_no_point(system: bringup.System) -> None:
    manager = _manager()
    assert not any(manager.reached_sync_point(step) for step in range(100))


def g02_a_notice_makes_the_next_step_the_point(system: bringup.System) -> None:
    manager, asked = _manager(), notice_when_asked(system)
    assert not any(manager.reached_sync_point(step) for step in (100, 101))
    _all_are_asked(system, asked, announcer=1)
    assert [manager.reached_sync_point(step) for step in (102, 103)] == [True, False]


def g04_the_slow_catch_up_with_the_fast(system: bringup.System) -> None:
    """A step is held back while all agree, and no longer: the slow client's steps are not."""
    manager, asked = _manager(), notice_when_asked(system)
    last = 202 if system.client_id == 2 else 200
    assert not any(manager.reached_sync_point(step) for step in range(200, last + 1))
    _all_are_asked(system, asked, announcer=0)
    reached = [step for step in range(last + 1, 206) if manager.reached_sync_point(step)]
    assert reached == [203]


def g03_a_notice_for_later_waits(system: bringup.System) -> None:
    """All save 15 minutes before the client is taken. G6: the job shuts down with the notice still to come."""
    manager = _manager()
    if system.client_id == 2:
        system.announce_preemption(deadline=3600.0)
    for step in range(300, 310):
        assert not manager.reached_sync_point(step)
        _meet("g03")


def killed(system: bringup.System) -> None:
    """D13, D14, D17, E19, G5, with a client that dies; the original's clients end with it (D21: unless recoverable).

    Whatever waits is told at once, who died, and so is every later call. In the original a barrier fails with
    `INTERNAL`, a blocking get and the live nodes go on waiting, and a preemption point is just not reached.
    """
    client = _client()
    waiting: list[_Call] = [
        (client.blocking_key_value_get, "killed/key", LONG),
        (client.wait_at_barrier, "killed", LONG),
        (client.wait_at_barrier, "killed/some", LONG, [0, 1, 2]),
        (client.get_live_nodes, [0, 1, 2]),
    ]
    if system.client_id == int(os.environ["VICTIM"]):
        del waiting[1:]  # it alone does not come
    texts: list[str] = []
    threads = [threading.Thread(target=_note_error, args=(texts, call)) for call in waiting]
    for thread in threads:
        thread.start()
    print("waiting", flush=True)
    for thread in threads:
        thread.join(30)
    assert len(texts) == len(waiting)
    with Seconds() as wait:
        for call in (
            *waiting,
            (client.key_value_set, "killed/later", ""),
            (client.key_value_try_get, "killed/later"),
            (client.key_value_dir_get, "killed"),
            (client.key_value_increment, "killed/later", 1),
            (client.key_value_delete, "killed/later"),
            (_manager().reached_sync_point, 1),
        ):
            _note_error(texts, call)
    assert wait.taken < 5.0
    assert len(set(texts)) == 1, texts
    print("told:", texts[0], flush=True)


def _note_error(texts: list[str], call: _Call) -> None:
    texts.append(_error("UNAVAILABLE", *call))
