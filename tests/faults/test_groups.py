"""Clients of a job in groups, killed and stopped: leaders, members, several at once, whole groups."""

from __future__ import annotations

import time
from typing import Any

import pytest

from bringup.testing.job import LocalJob
from bringup.testing.remote_calls import Answer

from .assertions import FAST, INTERVAL, SLACK, TIMEOUT, TOLD_OF_DEATH, check_works, failure_of, wait_until_all_are_heard

SIZE = 9
GROUPED: dict[str, Any] = {**FAST, "group_size": 3, "initialization_timeout": 35.0}
"""The leaders are 0, 3 and 6."""

AGE_MAX = 3 * INTERVAL
"""A wave tells what the leader heard an interval before, and the next one comes an interval later."""

VICTIMS = [(4,), (3,), (4, 5), (2, 7), (3, 4, 5)]
"""A member, a leader, neighbours in a group, members of two groups, a whole group."""


def check_names_some(answer: Answer, victims: tuple[int, ...]) -> None:
    """Check that an error names victims, and nobody else."""
    assert answer.error == ("CoordinatorLostError" if 0 in victims else "PeerFailedError"), answer.text
    assert answer.attributes["client_id"] in victims, answer.text


def others(victims: tuple[int, ...]) -> list[int]:
    return [client_id for client_id in range(SIZE) if client_id not in victims]


@pytest.mark.parametrize("victims", VICTIMS, ids=str)
def test_killed_together_are_named_at_once(job: LocalJob, victims: tuple[int, ...]) -> None:
    job.initialize(**GROUPED)
    wait_until_all_are_heard(job, AGE_MAX)
    survivors = others(victims)
    failed = job.call("wait_failed", survivors)
    waiting = job.call("all_reduce", survivors, array=[1])
    for facts in job.call("facts", survivors):
        facts.value()
    killed_at = time.monotonic()
    for victim in victims:
        job.clients[victim].kill()
    for failure in [*map(failure_of, failed), *(call.error() for call in waiting)]:
        check_names_some(failure, victims)
        assert "no heartbeat" not in failure.text
        assert failure.at - killed_at < TOLD_OF_DEATH, failure.text


@pytest.mark.parametrize("victims", [(4,), (3,), (4, 5), (0,)], ids=str)
def test_stopped_together_for_longer_than_the_timeout_are_named(job: LocalJob, victims: tuple[int, ...]) -> None:
    job.initialize(**GROUPED)
    wait_until_all_are_heard(job, AGE_MAX)
    survivors = others(victims)
    failed = job.call("wait_failed", survivors)
    for facts in job.call("facts", survivors):
        facts.value()
    stopped_at = time.monotonic()
    for victim in victims:
        job.clients[victim].stop()
    for failure in map(failure_of, failed):
        check_names_some(failure, victims)
        assert "no heartbeat for" in failure.text, failure.text
        # A wave, or a heartbeat, is passed on for an interval, and may be one old.
        assert TIMEOUT - 2 * INTERVAL <= failure.at - stopped_at < TIMEOUT + SLACK, failure.text
    for victim in victims:
        job.clients[victim].resume()
    for call in job.call("wait_failed", victims):
        assert failure_of(call).error in ("PeerFailedError", "CoordinatorLostError")


def test_stopped_for_less_than_the_timeout_are_forgiven(job: LocalJob) -> None:
    job.initialize(**{**GROUPED, "heartbeat_timeout": 5.0})
    wait_until_all_are_heard(job, AGE_MAX)
    victims = (0, 3, 7)
    waiting = job.call("all_reduce", others(victims), array=[1])
    for victim in victims:
        job.clients[victim].stop()
    time.sleep(1.0)  # the time that they are stopped for is what is tested
    for victim in victims:
        job.clients[victim].resume()
    waiting += job.call("all_reduce", victims, array=[1])
    assert [call.value() for call in waiting] == [[SIZE]] * SIZE
    wait_until_all_are_heard(job, AGE_MAX)
    check_works(job)


@pytest.mark.parametrize(("phase", "victim"), [("ring", 6), ("merge", 3), ("merge", 5), ("commit", 4)])
def test_killed_as_it_gets_to_a_phase_of_bring_up(job: LocalJob, phase: str, victim: int) -> None:
    *first, last = range(SIZE)
    job.clients[victim].call("signal_at", signal="SIGKILL", phase=phase).value()
    calls = job.call("initialize", first, **GROUPED)
    job.clients[victim].call("reach", phases=["rendezvous"], done=["devices"]).value()
    calls += job.call("initialize", [last], **GROUPED)
    job.clients[victim].wait()
    killed_at = time.monotonic()
    for client_id, call in enumerate(calls):
        if client_id != victim:
            failure = call.error()
            check_names_some(failure, (victim,))
            assert failure.at - killed_at < TOLD_OF_DEATH, failure.text


def test_a_step_and_a_departure_get_around(job: LocalJob) -> None:
    job.initialize(**GROUPED)
    for client_id in range(SIZE):
        job.clients[client_id].call("report_progress", step=100 - client_id).value()
    deadline = time.monotonic() + TOLD_OF_DEATH
    while not all(knows_who_is_last(facts.value()) for facts in job.call("facts")):
        assert time.monotonic() < deadline, "some do not know who is furthest behind"
    leaving = job.call("shutdown", [4, 6])
    told = [call.value() for call in job.call("wait_leaving", others((4, 6)))]
    assert all(set(leavers) <= {4, 6} for leavers in told)
    for call in [*leaving, *job.call("shutdown", others((4, 6)))]:
        assert call.value() is None


def knows_who_is_last(facts: dict[str, Any]) -> bool:
    """Return whether a client knows the step of the last."""
    return bool(facts["members"][SIZE - 1]["step"] == 100 - SIZE + 1)
