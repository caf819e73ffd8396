"""Real processes in groups, as in a large job: all come up, agree, and hear of the death of a client in each role."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from bringup.testing.job import LocalJob

SIZE = 7
GROUP_SIZE = 3
"""Of three and four clients: the leaders are 0 and 3."""

JOBS = [(7, 3), (8, 2), (5, 2), (4, 3)]
"""Unequal groups, many groups, groups of two and three, one group."""

SAME_ON_ALL = ("job_id", "core_ids", "devices", "topology", "jobs")


@pytest.fixture(scope="module")
def job() -> Iterator[LocalJob]:
    """A job that is up."""
    with LocalJob(SIZE, fork=True) as job:
        job.initialize(device_type="SIM", group_size=GROUP_SIZE)
        yield job


def all_reduce(job: LocalJob, arrays: list[list[float]], **arguments: Any) -> list[list[float]]:
    """Return each client's result of a collective."""
    calls = [job.clients[c].call("all_reduce", array=array, **arguments) for c, array in enumerate(arrays)]
    return [call.value() for call in calls]


@pytest.mark.parametrize(("size", "group_size"), JOBS)
def test_clients_in_groups_hold_the_same_table_and_know_all_members(size: int, group_size: int) -> None:
    with LocalJob(size, fork=True) as job:
        facts = job.initialize(device_type="SIM", group_size=group_size)
        sums = all_reduce(job, [[10**client_id] for client_id in range(size)])
        left = [call.value() for call in job.call("shutdown")]
    for client_id, one in enumerate(facts):
        assert one["client_id"] == client_id
        assert [one[key] for key in SAME_ON_ALL] == [facts[0][key] for key in SAME_ON_ALL]
        assert one["local_device_ids"] == list(range(8 * client_id, 8 * client_id + 8))
        members = one["members"]
        assert [(member["client_id"], member["phase"]) for member in members] == [(c, "ready") for c in range(size)]
        assert [member["incarnation"] for member in members] == [m["incarnation"] for m in facts[0]["members"]]
    assert sorted(facts[0]["core_ids"]) == list(range(8 * size))
    assert facts[0]["jobs"] == list(job.jobs)
    assert len({member["incarnation"] for member in facts[0]["members"]}) == size
    assert sums == [[int("1" * size)]] * size
    assert left == [None] * size


def test_the_group_size_of_client_0_counts() -> None:
    with LocalJob(4, fork=True) as job:
        job.start([0], BRINGUP_GROUP_SIZE="2")
        job.start(range(1, 4))
        for call in job.call("initialize", device_type="SIM"):
            call.value()
        assert all_reduce(job, [[1]] * 4) == [[4]] * 4


# One message, one piece, and several segments that follow each other around.
@pytest.mark.parametrize(("op", "length"), [("sum", 1), ("sum", 1000), ("sum", 40_000), ("max", 40_000)])
def test_every_client_gets_the_same_bits(job: LocalJob, op: str, length: int) -> None:
    rng = np.random.default_rng(length)
    arrays = rng.normal(size=(SIZE, length)) * 10.0 ** rng.integers(-8, 8, size=(SIZE, length))
    results = all_reduce(job, arrays.tolist(), op=op)
    assert results == [results[0]] * SIZE
    reduced = {"sum": np.sum, "max": np.max}[op](arrays, axis=0)
    np.testing.assert_allclose(results[0], reduced, rtol=1e-9, atol=1e-6)


def test_calls_that_differ_are_named_as_in_one_ring(job: LocalJob) -> None:
    with LocalJob(SIZE, fork=True) as ring:
        ring.initialize(device_type="SIM", group_size=0)
        for odd in (0, 2, 3, 5):
            texts = {text for one in (job, ring) for text in mismatch_texts(one, odd)}
            assert len(texts) == 1, texts
            assert f"client {odd} called all_reduce(sum, int64[2])" in texts.pop()
    assert all_reduce(job, [[1]] * SIZE) == [[SIZE]] * SIZE


def mismatch_texts(job: LocalJob, odd: int) -> list[str]:
    """Return the texts of the errors where one client's array has another length, less the collective's number."""
    calls = [job.clients[c].call("all_reduce", array=[1] * (2 if c == odd else 3)) for c in range(SIZE)]
    errors = [call.error() for call in calls]
    assert {error.error for error in errors} == {"CollectiveMismatchError"}
    return [re.sub(r"collective \d+", "collective n", error.text) for error in errors]


def test_a_barrier_and_a_key_across_groups(job: LocalJob) -> None:
    waiting = job.call("get_key", range(1, SIZE), key="k")
    job.clients[5].call("set_key", key="k", value="v").value()
    assert [call.value() for call in waiting] == ["v"] * (SIZE - 1)
    for call in job.call("barrier", name="all"):
        assert call.value() is None


# Client 0 leads and hosts the coordinator, 3 leads, 1 and 6 do not, and 6 is the last of all.
@pytest.mark.parametrize("victim", [0, 1, 3, 6])
def test_the_death_of_a_client_in_each_role_is_heard_by_all(victim: int) -> None:
    survivors = [client_id for client_id in range(SIZE) if client_id != victim]
    with LocalJob(SIZE, fork=True) as job:
        job.initialize(device_type="SIM", group_size=GROUP_SIZE)
        failed = job.call("wait_failed", survivors)
        computing = job.call("all_reduce", survivors, array=[1.0] * 20_000)
        for facts in job.call("facts", survivors):
            facts.value()
        job.clients[victim].kill()
        told = [call.value() for call in failed]
        told += [{"error": error.error, "attributes": error.attributes} for error in (c.error() for c in computing)]
    for one in told:
        assert one["error"] == ("CoordinatorLostError" if victim == 0 else "PeerFailedError"), one
        assert one["attributes"]["client_id"] == victim, one
