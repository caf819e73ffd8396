"""The coordination services as all clients of a job of three use them: store, barriers, live clients, threads, loops.

Client 0 hosts them, and calls them without a link; the others call over one. Where it makes no difference who does what
all do it, each in a directory of its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import time
from collections.abc import Awaitable
from contextlib import aclosing
from types import FrameType
from typing import Any

import numpy as np
import pytest
from case_tools import TICK, Seconds, notice_when_asked, until, until_come

import bringup
from bringup import KeyChange

N = 3
MIB = 1024 * 1024
LONG = 30.0
"""Seconds: nothing here takes as long."""


async def _meet(system: bringup.System, name: str) -> None:
    await system.barrier(f"meet {name}", timeout=LONG)


async def _changes(system: bringup.System, prefix: str, count: int) -> list[tuple[str, bytes | None]]:
    """Return the first changes that a watch tells; their revisions never go back."""
    seen: list[KeyChange] = []
    async with aclosing(system.kv.watch(prefix)) as watch, asyncio.timeout(LONG):
        async for change in watch:
            assert not seen or change.revision >= seen[-1].revision
            seen.append(change)
            if len(seen) == count:
                break
    return [(change.key, change.value) for change in seen]


# The key-value store.


async def kv_all_see_what_one_has_set(system: bringup.System) -> None:
    if system.client_id == 1:
        await system.kv.set("shared/a", "Grüße")
        await system.kv.set("shared/b", b"\x00\xff")
    assert await system.kv.get("shared/b", timeout=LONG) == b"\x00\xff"
    assert await system.kv.try_get("shared/a") == "Grüße".encode()
    assert await system.kv.list("shared") == {"shared/a": "Grüße".encode(), "shared/b": b"\x00\xff"}


async def kv_a_get_waits_until_its_deadline(system: bringup.System) -> None:
    key = f"never/{system.client_id}"
    assert await system.kv.try_get(key) is None
    for timeout in (0.2, 0):
        with Seconds() as wait, pytest.raises(bringup.KeyTimeoutError, match=rf"{key}.*timeout={timeout:g} s"):
            await system.kv.get(key, timeout=timeout)
        assert timeout - TICK <= wait.taken < timeout + 1.0
    for wrong in (-1, "1", float("nan"), True):
        with pytest.raises(bringup.ConfigurationError, match=f"timeout={wrong!r} of key"):
            await system.kv.get(key, timeout=wrong)  # type: ignore[arg-type]
    await system.kv.set(key, b"set")
    for timeout in (0, 0.0, 5, np.float32(5), float("inf"), 1e300, 10**400):
        assert await system.kv.get(key, timeout=timeout) == b"set"


async def kv_a_get_that_waits_is_woken(system: bringup.System) -> None:
    """Also where another get of that client was cancelled, and one has timed out."""
    if system.client_id == 0:
        await asyncio.to_thread(until_come, system, "meet waiting", [1, 2])
        await system.kv.set("woken", b"up")
        return await _meet(system, "waiting")
    cancelled = asyncio.create_task(system.kv.get("woken"))
    getting = [asyncio.create_task(system.kv.get("woken", timeout=LONG)) for _ in range(10)]
    with pytest.raises(bringup.KeyNotFoundError):
        await system.kv.get("woken", timeout=0.05)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    await _meet(system, "waiting")
    assert await asyncio.gather(*getting) == [b"up"] * 10
    return None


async def kv_keys_are_paths_and_prefixes_directories(system: bringup.System) -> None:
    kv, own = system.kv, f"paths/{system.client_id}"
    for key in ("a", "a/b", "a/c/d", "ab"):
        await kv.set(f"///{own}//{key}/", key)
    assert await kv.get(f"{own}/a//c/d") == b"a/c/d"
    assert await kv.list(f"/{own}//a/") == {f"{own}/a/b": b"a/b", f"{own}/a/c/d": b"a/c/d"}
    assert await kv.list(f"{own}/a/b") == {}
    assert set(await kv.list("")) >= {f"{own}/a", f"{own}/ab"}
    await kv.delete(f"{own}/a/")
    assert await kv.list(own) == {f"{own}/ab": b"ab"}
    await kv.delete("")
    assert await kv.list(own) == {f"{own}/ab": b"ab"}


async def kv_what_is_set_is_not_set_again(system: bringup.System) -> None:
    kv, key = system.kv, f"once/{system.client_id}"
    await kv.set(key, "one")
    with pytest.raises(bringup.KeyExistsError, match=rf"{key}.*overwrite=True"):
        await kv.set(key, "two")
    assert await kv.get(key) == b"one"
    await kv.set(key, "two", overwrite=True)
    assert await kv.get(key) == b"two"


async def kv_what_is_wrong_is_refused(system: bringup.System) -> None:
    kv: Any = system.kv
    own = f"wrong/{system.client_id}"
    room = 1024 - len(own) - 1
    await kv.set(f"{own}/{'k' * room}", b"")
    calls: list[tuple[Awaitable[object], str]] = [
        (kv.set(f"{own}/{'k' * (room + 1)}", b""), "1025 bytes"),
        (kv.get("k" * 1025), "1025 bytes"),
        (kv.set(b"key", b""), "not a text"),
        (kv.set(f"{own}/\ud800", b""), "UTF-8"),
        (kv.set(own, "\ud800"), "UTF-8"),
        (kv.set(own, 7), "int"),
        (kv.set(own, bytes(64 * MIB + 1)), f"{64 * MIB + 1} bytes"),
        (kv.set(own, bytes(140 * MIB)), "1468006[0-9][0-9] bytes, at most"),
        (kv.compare_and_set(own, None, None), "NoneType"),
        (kv.increment(own, 1.5), "by=1.5"),
        (kv.increment(own, True), "by=True"),
        (kv.increment(own, 2**64), "64 bits"),
    ]
    for call, text in calls:
        with pytest.raises(bringup.ConfigurationError, match=text):
            await call
    assert await kv.try_get(own) is None


async def kv_a_value_of_64_mib(system: bringup.System) -> None:
    """Two of them in one call are the largest message there is."""
    if system.client_id == 1:
        value = os.urandom(MIB) * 64
        await system.kv.set("large", value)
        assert await system.kv.compare_and_set("large", value, memoryview(value)[::-1])
        await system.kv.set("large/digest", hashlib.sha256(value[::-1]).digest())
    digest = await system.kv.get("large/digest", timeout=LONG)
    assert hashlib.sha256(await system.kv.get("large")).digest() == digest
    await _meet(system, "large")
    if system.client_id == 1:
        await system.kv.delete("large")


async def kv_memory_is_bounded(system: bringup.System) -> None:
    """By `kv_max_bytes` of client 0, which is 256 MiB in this job."""
    if system.client_id == 2:
        for number in range(3):
            await system.kv.set(f"full/{number}", bytes(64 * MIB))
        with pytest.raises(bringup.ConfigurationError, match=rf"full/3.*kv_max_bytes={256 * MIB}"):
            await system.kv.set("full/3", bytes(64 * MIB))
        await system.kv.set("full/3", b"small")
        await system.kv.delete("full/0")
        await system.kv.set("full/3", bytes(64 * MIB), overwrite=True)
        await system.kv.delete("full")


async def kv_values_go_both_ways_at_once(system: bringup.System) -> None:
    """More than fits into any buffer on the way: neither side waits for the other to read first."""
    if system.client_id != 1:
        return
    kv, value = system.kv, bytes(32 * MIB)
    await kv.set("both ways", value)
    gets = [kv.get("both ways", timeout=LONG) for _ in range(6)]
    sets = [kv.set(f"both ways/{number}", value) for number in range(6)]
    async with asyncio.timeout(LONG):
        assert [len(got) for got in (await asyncio.gather(*gets, *sets))[:6]] == [32 * MIB] * 6
    await kv.delete("both ways")


async def kv_a_list_takes_as_many_messages_as_it_needs(system: bringup.System) -> None:
    if system.client_id == 2:
        await asyncio.gather(*(system.kv.set(f"many/{number:05}", str(number)) for number in range(5000)))
        await asyncio.gather(*(system.kv.set(f"wide/{number}", bytes(MIB)) for number in range(5)))
    await _meet(system, "many")
    assert await system.kv.list("many") == {f"many/{number:05}": str(number).encode() for number in range(5000)}
    assert list(await system.kv.list("many"))[:2] == ["many/00000", "many/00001"]
    assert {key: len(value) for key, value in (await system.kv.list("wide")).items()} == {
        f"wide/{number}": MIB for number in range(5)
    }


async def kv_one_wins_a_race(system: bringup.System) -> None:
    kv = system.kv
    won = 0
    for number in range(20):
        mine = await asyncio.gather(
            *(kv.compare_and_set(f"race/{number}", None, f"{system.client_id} {task}") for task in range(3))
        )
        won += sum(mine)
        for task in range(3):
            is_mine = await kv.get(f"race/{number}") == f"{system.client_id} {task}".encode()
            assert is_mine == mine[task]
    await kv.increment("race/won", won)
    for _ in range(30):
        while True:
            old = await kv.try_get("race/count")
            if await kv.compare_and_set("race/count", old, str(int(old or 0) + 1)):
                break
    await _meet(system, "race")
    assert await kv.increment("race/won", 0) == 20
    assert await kv.get("race/count") == str(30 * N).encode()


async def kv_every_increment_counts_once(system: bringup.System) -> None:
    numbers = await asyncio.gather(*(system.kv.increment("count", np.int16(2)) for _ in range(100)))
    assert numbers == sorted(numbers)
    await _meet(system, "count")
    assert await system.kv.increment("count", by=0) == 100 * N * 2
    assert await system.kv.get("count") == str(100 * N * 2).encode()
    await system.kv.set(f"count/text/{system.client_id}", "three")
    with pytest.raises(bringup.ConfigurationError, match="three"):
        await system.kv.increment(f"count/text/{system.client_id}")


async def kv_a_watch_begins_with_what_there_is(system: bringup.System) -> None:
    if system.client_id == 1:
        for key in ("watched/b", "watched", "watched/a", "watched-not"):
            await system.kv.set(key, key)
    await _meet(system, "before the watch")
    watching = asyncio.create_task(_changes(system, "/watched/", 7))
    await asyncio.sleep(0)  # it begins before this client comes to the barrier
    await _meet(system, "watching")
    if system.client_id == 2:
        await system.kv.set("watched/c", "new")
        await system.kv.set("watched-not", "new", overwrite=True)
        assert await system.kv.compare_and_set("watched/c", "new", "newer")
        await system.kv.delete("watched/b")
        await system.kv.increment("watched/n")
    expected = [("watched/c", b"new"), ("watched/c", b"newer"), ("watched/b", None), ("watched/n", b"1")]
    before = [(key, key.encode()) for key in ("watched", "watched/a", "watched/b")]
    assert await watching == [*before, *expected]


async def kv_a_watch_waits_for_a_slow_reader(system: bringup.System) -> None:
    """Nothing is lost, and nobody else waits: what the reader has not taken is kept for it."""
    if system.client_id == 2:
        await _meet(system, "slow reader")
        await asyncio.gather(*(system.kv.set(f"slow/{number:05}", bytes(100)) for number in range(5000)))
        return await _meet(system, "all is written")
    async with aclosing(system.kv.watch("slow")) as watch, asyncio.timeout(LONG):
        await system.kv.set(f"slow/{system.client_id} is there", b"")
        await anext(watch)
        await _meet(system, "slow reader")
        await _meet(system, "all is written")
        seen = [change.key async for change in _until(watch, "slow/04999")]
    assert [key for key in seen if "there" not in key] == [f"slow/{number:05}" for number in range(5000)]
    return None


async def _until(watch: Any, key: str) -> Any:
    async for change in watch:
        yield change
        if change.key == key:
            return


async def kv_a_watch_ends_whose_reader_is_too_slow(system: bringup.System) -> None:
    """It has had what was sent before, and a new one begins with what there is now."""
    if system.client_id == 2:
        await _meet(system, "too slow")
        for number in range(90):
            await system.kv.set("too slow", str(number).encode() * (MIB // 2), overwrite=True)
        return await _meet(system, "too slow: all is written")
    seen, told = 0, ""
    async with aclosing(system.kv.watch("too slow")) as watch, asyncio.timeout(LONG):
        first = asyncio.create_task(anext(watch))
        await asyncio.sleep(0)
        await _meet(system, "too slow")
        await first
        await _meet(system, "too slow: all is written")
        try:
            async for _ in watch:
                seen += 1
        except bringup.ConfigurationError as error:
            told = str(error)
    assert 1 < seen < 89
    assert "its reader is too slow" in told
    assert "watch anew" in told
    assert [value for _, value in await _changes(system, "too slow", 1)] == [b"89" * (MIB // 2)]
    return None


# Barriers.


async def barrier_names_can_be_used_again(system: bringup.System) -> None:
    for number in range(50):
        await system.kv.increment("again")
        await system.barrier("again", timeout=LONG)
        assert await system.kv.increment("again", by=0) >= N * (number + 1)
    for wrong in (7, "x" * 1025, "ä" * 513, "\ud800"):
        with pytest.raises(bringup.ConfigurationError, match="barrier name"):
            await system.barrier(wrong)  # type: ignore[arg-type]


async def barrier_of_some(system: bringup.System) -> None:
    """Barriers of different names, and of different clients, do not wait for each other."""
    if system.client_id > 0:
        await system.barrier("workers", client_ids=[1, 2], timeout=LONG)
    await system.barrier(f"alone {system.client_id}", client_ids=[system.client_id], timeout=0)
    await system.barrier("alone again", client_ids=np.array([system.client_id]), timeout=np.float32(0))
    for wrong in ([], [system.client_id] * 2, [system.client_id, -1], ["all"], [True], 7):
        with pytest.raises(bringup.ConfigurationError, match="client_ids"):
            await system.barrier("wrong", client_ids=wrong)  # type: ignore[arg-type]
    for when in ("1", -1, float("nan"), True):
        with pytest.raises(bringup.ConfigurationError, match=f"timeout={when!r} of barrier 'wrong'"):
            await system.barrier("wrong", timeout=when)  # type: ignore[arg-type]


async def barrier_whose_clients_disagree(system: bringup.System) -> None:
    """All are told at once, with both sides' sets, and so is who comes later."""
    named = {0: [0, 1], 1: [1, 2], 2: [1, 2]}[system.client_id]
    if system.client_id == 2:
        await system.barrier("0 and 1 know", timeout=LONG)
    with Seconds() as wait, pytest.raises(bringup.CollectiveMismatchError) as raised:
        await system.barrier("disputed", client_ids=named)
    assert wait.taken < 5.0
    assert "client 0 named clients 0-1" in str(raised.value)
    assert "client 1 named clients 1-2" in str(raised.value)
    if system.client_id != 2:
        await system.barrier("0 and 1 know", timeout=LONG)
    await system.barrier("disputed", timeout=LONG)


async def barrier_whose_caller_leaves_itself_out(system: bringup.System) -> None:
    """Those who wait there are told: they may be waiting for this very client."""
    if system.client_id == 0:
        await asyncio.to_thread(until_come, system, "left out", [1, 2])
        named = [1, 2]
    else:
        named = [0, 1, 2]
    with pytest.raises(bringup.CollectiveMismatchError) as raised:
        await system.barrier("left out", client_ids=named)
    assert "clients 1-2 named all 3 clients; client 0 named clients 1-2, without itself" in str(raised.value)
    await system.barrier("left out", timeout=LONG)


async def barrier_time_out_says_who_is_missing_and_where(system: bringup.System) -> None:
    """All of them, at the deadline of who came first; who comes later is told the same, once."""
    if system.client_id > 0:
        system.report_progress(40 + system.client_id)
        await system.barrier("1 and 2 are late", timeout=LONG)
        with Seconds() as wait, pytest.raises(bringup.BarrierTimeoutError) as late:
            await system.barrier("timed out", timeout=LONG)
        assert wait.taken < 5.0
        assert set(late.value.missing) == {1, 2}
    else:
        await asyncio.to_thread(until, lambda: [member.step for member in system.members[1:]] == [41, 42])
        with Seconds() as wait, pytest.raises(bringup.BarrierTimeoutError) as raised:
            await system.barrier("timed out", timeout=0.3)
        assert 0.3 - TICK <= wait.taken < 1.3
        assert raised.value.missing == {1: system.jobs[1], 2: system.jobs[2]}
        text = str(raised.value)
        assert "barrier 'timed out': 1 of 3 clients came within 0.3 s" in text
        for client_id in (1, 2):
            assert f"client {client_id} ({system.jobs[client_id]}, in phase ready, at step {40 + client_id}" in text
        await system.barrier("1 and 2 are late", timeout=LONG)
    await system.barrier("timed out", timeout=LONG)


async def barrier_deadline_is_that_of_the_first(system: bringup.System) -> None:
    if system.client_id == 2:
        return
    if system.client_id == 0:
        await asyncio.to_thread(until_come, system, "impatient", [1])
    with Seconds() as wait, pytest.raises(bringup.BarrierTimeoutError, match="timeout of client 1"):
        await system.barrier("impatient", timeout=(LONG, 0.2)[system.client_id])
    assert wait.taken < 2.0


async def barrier_once_at_a_time(system: bringup.System) -> None:
    if system.client_id != 1:
        await system.kv.get("busy", timeout=LONG)
        return await system.barrier("busy", timeout=LONG)
    first = asyncio.create_task(system.barrier("busy", timeout=LONG))
    await asyncio.sleep(0)
    with pytest.raises(bringup.ConfigurationError, match="waits there already"):
        await system.barrier("busy")
    await system.kv.set("busy", b"")
    return await first


async def barrier_can_be_cancelled(system: bringup.System) -> None:
    """Who was cancelled has not come, and comes to the same round with the next call."""
    if system.client_id == 1:
        for _ in range(5):
            waiting = asyncio.create_task(system.barrier("cancelled", timeout=LONG))
            await asyncio.sleep(0.01)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await system.kv.set("cancelled", b"")
    else:
        await system.kv.get("cancelled", timeout=LONG)
    await system.barrier("cancelled", timeout=LONG)


# Live clients.


async def live_clients_are_all(system: bringup.System) -> None:
    assert await system.live_clients() == (0, 1, 2)
    async with system.live() as live:
        assert live == (0, 1, 2)
    async with system.live([system.client_id]) as live:
        assert live == (system.client_id,)
    for wrong in ([], [(system.client_id + 1) % N], ["all"]):
        with pytest.raises(bringup.ConfigurationError, match="live"):
            async with system.live(wrong):  # type: ignore[arg-type]
                pass


async def live_sets_that_overlap(system: bringup.System) -> None:
    sets = {0: [[0, 1]], 1: [[1, 2], [0, 1]], 2: [[2, 1]]}[system.client_id]
    for client_ids in sets:
        async with asyncio.timeout(LONG), system.live(client_ids) as live:
            assert live == tuple(sorted(client_ids))


async def live_block_that_raises_on_one_client(system: bringup.System) -> None:
    """The others come to its end all the same, and the next block is the same one for all."""
    for number in range(3):
        try:
            async with asyncio.timeout(LONG), system.live():
                await system.kv.increment(f"live/{number}")
                if system.client_id == number:
                    raise MemoryError(f"on client {number}")
        except MemoryError:
            assert system.client_id == number
        else:
            assert system.client_id != number
        assert await system.kv.increment(f"live/{number}", by=0) == N


# From blocking code, threads and other loops.


def sync_face(system: bringup.System) -> None:
    blocking = bringup.sync.current()
    kv, own = blocking.kv, f"sync/{blocking.client_id}"
    kv.set(f"{own}/a", "one")
    assert kv.get(f"{own}/a", timeout=1.0) == kv.try_get(f"{own}/a") == b"one"
    assert kv.increment(f"{own}/n", 3) == 3
    assert kv.compare_and_set(f"{own}/a", "one", "two")
    assert kv.list(own) == {f"{own}/a": b"two", f"{own}/n": b"3"}
    watch = kv.watch(own)
    assert [next(watch).key for _ in range(2)] == [f"{own}/a", f"{own}/n"]
    kv.delete(own)
    assert [next(watch).value for _ in range(2)] == [None, None]
    watch.close()  # type: ignore[attr-defined]
    with pytest.raises(bringup.KeyNotFoundError):
        kv.get(f"{own}/a", timeout=0.05)
    with pytest.raises(bringup.BarrierTimeoutError):
        blocking.barrier(f"{own}/nobody", timeout=0.05)
    assert blocking.live_clients() == (0, 1, 2)
    with blocking.live() as live:
        assert live == (0, 1, 2)
    with pytest.raises(ZeroDivisionError), blocking.live([blocking.client_id]):
        raise ZeroDivisionError
    assert blocking.reached_preemption_point(0) is False
    blocking.barrier("sync", timeout=LONG)


async def two_loops_in_two_threads(system: bringup.System) -> None:
    """A system serves any loop, all at once; each has a link of its own."""

    async def work(name: str) -> int:
        total = 0
        for number in range(20):
            total = await system.kv.increment(f"loops/{name}")
            await system.barrier(f"loops/{name}/{number}", timeout=LONG)
        seen = await _changes(system, f"loops/{name}", 1)
        assert seen[0][0] == f"loops/{name}"
        return total

    here = asyncio.create_task(work("main"))
    there = [asyncio.to_thread(asyncio.run, work(f"thread {number}")) for number in range(2)]
    for total in await asyncio.gather(here, *there):
        assert 20 * N - 2 <= total <= 20 * N


async def loops_that_end_leave_nothing_behind(system: bringup.System) -> None:
    def run_many() -> None:
        for _ in range(20):
            asyncio.run(system.kv.increment("short loops"))

    server = system._client.peer.services
    await _meet(system, "before short loops")
    before = 0 if server is None else server.num_remote_sessions
    await _meet(system, "short loops")
    await asyncio.to_thread(run_many)
    await _meet(system, "after short loops")
    assert await system.kv.increment("short loops", by=0) == 20 * N
    await asyncio.to_thread(until, lambda: server is None or server.num_remote_sessions <= before)


# With harm done to a client: each of these is run alone.


async def killed(system: bringup.System) -> None:
    """Whatever waits is told, on whatever loop, and so is every later call."""
    if system.client_id == int(os.environ["VICTIM"]):
        print("waiting", flush=True)
        return await asyncio.sleep(LONG)
    blocking = bringup.sync.current()
    assert not blocking.reached_preemption_point(1)
    asked = notice_when_asked(system)
    survivors = [client_id for client_id in range(N) if client_id != int(os.environ["VICTIM"])]
    await system.barrier("hooked", client_ids=survivors, timeout=LONG)
    system.announce_preemption()
    await asyncio.to_thread(asked.wait, LONG)
    waiting = [
        *_calls(system, "here"),
        asyncio.to_thread(asyncio.run, _all_fail(_calls(system, "in another loop"))),
        asyncio.to_thread(blocking.kv.get, "killed"),
        asyncio.to_thread(blocking.barrier, "killed sync"),
        asyncio.to_thread(lambda: list(blocking.kv.watch("killed"))),
        asyncio.to_thread(blocking.reached_preemption_point, 3),
        system.reached_preemption_point(2),
    ]
    tasks = [asyncio.ensure_future(call) for call in waiting]
    await system.kv.set(f"survivor/{system.client_id}", b"")
    print("waiting", flush=True)
    await _all_fail(tasks)
    with Seconds() as wait:
        await _all_fail(_calls(system, "later"))
    assert wait.taken < 2.0
    with pytest.raises(bringup.PeerFailedError):
        blocking.kv.set("later", b"")
    return None


def _calls(system: bringup.System, where: str) -> list[Awaitable[object]]:
    return [
        system.kv.get("killed"),
        system.kv.get("killed", timeout=LONG),
        system.barrier(f"killed {where}"),
        system.barrier(f"killed {where}, timed", timeout=LONG),
        _watch(system),
        *([] if "other" in where else [_live(system)]),
    ]


async def _watch(system: bringup.System) -> None:
    async for change in system.kv.watch("killed"):
        raise AssertionError(change)


async def _live(system: bringup.System) -> None:
    async with system.live():
        raise AssertionError("they cannot all be there")


async def _all_fail(calls: list[Any]) -> None:
    """Check that all calls say who died; one that has checked others itself returns `None`."""
    async with asyncio.timeout(LONG):
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
    for outcome in outcomes:
        if outcome is not None:
            assert isinstance(outcome, bringup.PeerFailedError), repr(outcome)
            assert outcome.client_id == int(os.environ["VICTIM"]), str(outcome)
    assert sum(outcome is None for outcome in outcomes) <= 1


async def killed_in_a_live_block(system: bringup.System) -> None:
    """On all that are left the block raises what it is about, whatever came of it in the block itself."""
    with pytest.raises(bringup.PeerFailedError) as raised:
        await _exchange_gradients(system)
    assert raised.value.client_id == int(os.environ["VICTIM"])


async def _exchange_gradients(system: bringup.System) -> None:
    async with system.live():
        print("waiting", flush=True)
        if system.client_id == int(os.environ["VICTIM"]):
            await asyncio.sleep(LONG)
        elif system.client_id == 1:
            # As a framework's own connection does it: sooner than anybody knows why.
            raise BrokenPipeError("the other side closed the connection")


async def preempted(system: bringup.System) -> None:
    """The others are at other steps, and at another pace."""
    saved = []
    for step in range(100_000):
        if await system.reached_preemption_point(step):
            saved.append(step)
            break
        if step == 20 + system.client_id:
            print("training", flush=True)
        await asyncio.sleep(0.001 * (system.client_id + 1))
    assert not await system.reached_preemption_point(saved[0] + 1)
    await system.kv.set(f"saved/{system.client_id}", str(saved))
    await _meet(system, "saved")
    assert set((await system.kv.list("saved")).values()) == {str(saved).encode()}


def preempted_sync(system: bringup.System) -> None:
    """SIGTERM comes while the main thread is anywhere, in the middle of a call too."""
    blocking = bringup.sync.current()
    for step in range(100_000):
        if blocking.reached_preemption_point(step):
            break
        if step == 20:
            print("training", flush=True)
        blocking.barrier("step", timeout=LONG)
    blocking.kv.set(f"saved/{system.client_id}", str(step))
    blocking.barrier("saved", timeout=LONG)
    assert set(blocking.kv.list("saved").values()) == {str(step).encode()}


async def preempted_by_a_handler_of_its_own(system: bringup.System) -> None:
    """A program that has a handler gives the notice itself; it may have been interrupted anywhere."""

    def handle(number: int, frame: FrameType | None) -> None:
        system.announce_preemption(reason="the handler of the program")

    signal.signal(signal.SIGTERM, handle)
    await preempted(system)


async def never_asks(system: bringup.System) -> None:
    print("training", flush=True)
    time.sleep(LONG)  # noqa: ASYNC251 - a program that does not look at its loop


async def asked_once(system: bringup.System) -> None:
    """A second SIGTERM does what the first would have done to a program that does not ask."""
    assert not await system.reached_preemption_point(0)
    print("training", flush=True)
    asked = notice_when_asked(system)
    await asyncio.to_thread(asked.wait, LONG)
    print("noticed", flush=True)
    await asyncio.sleep(LONG)
