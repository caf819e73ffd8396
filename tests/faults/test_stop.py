"""Stopped processes: silence is a failure after `heartbeat_timeout`, and not before; a pause is none."""

from __future__ import annotations

import time

import pytest

from bringup.testing.job import LocalJob
from bringup.testing.remote_calls import Answer, Call

from .assertions import FAST, TIMEOUT, all_but, check_names, check_silent, check_works, failure_of


def test_stopped_before_anybody_knew_it_comes_late(job: LocalJob) -> None:
    job.clients[1].call("signal_at", signal="SIGSTOP", phase="connect").value()
    calls = job.call("initialize", [1, 0, 2], **FAST)
    for call in job.call("reach", [0, 2], phases=["rendezvous"]):
        call.value()
    job.clients[1].wait_stopped()
    time.sleep(1.5 * TIMEOUT)  # it has not registered, so that nobody may hold its silence against it
    job.clients[1].resume()
    for call in calls:
        call.value()
    check_works(job)


@pytest.mark.parametrize(
    ("phase", "victim"),
    [("rendezvous", 1), ("devices", 1), ("ring", 1), ("merge", 0), ("merge", 1), ("commit", 0), ("commit", 1)],
)
def test_stopped_as_it_gets_to_a_phase_of_bring_up(job: LocalJob, phase: str, victim: int) -> None:
    first, last = all_but(victim)
    if phase == "devices":
        job.start([victim], BRINGUP_SIM_START_SECONDS="1")
    job.clients[victim].call("signal_at", signal="SIGSTOP", phase=phase).value()
    stopped_after = time.monotonic()
    calls = job.call("initialize", [victim, first], **FAST)
    if phase not in ("rendezvous", "devices"):
        job.clients[victim].call("reach", phases=["rendezvous"], done=["devices"]).value()
        stopped_after = time.monotonic()
    calls += job.call("initialize", [last], **FAST)
    for call in calls[1:]:
        check_silent(call.error(), victim, stopped_after)
    job.clients[victim].resume()
    # A coordinator may have all that it takes to come up, before it reads that the others have gone.
    late = calls[0].answer()
    check_has_failed_too(job, job.clients[victim].call("wait_failed") if late.error is None else late)
    if phase == "devices":
        job.clients[victim].kill()  # its devices would come up as slowly in other tests


def check_has_failed_too(job: LocalJob, late: Answer | Call) -> None:
    """Check that who was given up while it was stopped knows it, and can begin anew with the others."""
    failure = failure_of(late) if isinstance(late, Call) else late
    assert failure.error in ("PeerFailedError", "CoordinatorLostError"), failure.text
    job.initialize(**FAST)
    check_works(job)


@pytest.mark.parametrize("victim", [0, 1])
def test_stopped_for_longer_than_the_timeout_while_others_wait_in_every_way(job: LocalJob, victim: int) -> None:
    survivors = all_but(victim)
    job.initialize(**FAST)
    failed = job.call("wait_failed", survivors)
    calls = [*job.call("barrier", survivors, name="b"), *job.call("all_reduce", survivors, array=[1])]
    for waiting in job.call("facts", survivors):
        waiting.value()
    stopped_at = time.monotonic()
    job.clients[victim].stop()
    for failure in [*map(failure_of, failed), *(call.error() for call in calls)]:
        check_silent(failure, victim, stopped_at)
    job.clients[victim].resume()
    check_has_failed_too(job, job.clients[victim].call("wait_failed"))


@pytest.mark.parametrize("victim", [0, 1])
def test_stopped_for_less_than_the_timeout_is_forgiven_in_the_middle_of_everything(job: LocalJob, victim: int) -> None:
    job.initialize(**{**FAST, "heartbeat_timeout": 5.0})
    survivors = all_but(victim)
    waiting = [*job.call("barrier", survivors, name="b"), *job.call("all_reduce", survivors, array=[1])]
    for call in job.call("facts", survivors):
        call.value()
    job.clients[victim].stop()
    time.sleep(1.0)  # the time that it is stopped for is what is tested
    job.clients[victim].resume()
    waiting += [job.clients[victim].call("barrier", name="b"), job.clients[victim].call("all_reduce", array=[1])]
    assert [call.value() for call in waiting] == [None, None, [3], [3], None, [3]]
    check_works(job)


def test_a_coordinator_that_was_stopped_blames_nobody_when_it_goes_on(job: LocalJob) -> None:
    """Its clients have given it up, and say so; it was not they who were silent."""
    job.initialize(**FAST)
    failed = job.call("wait_failed", [1, 2])
    job.clients[0].stop()
    for call in failed:
        check_names(failure_of(call), 0)
    own = job.clients[0].call("wait_failed")
    job.clients[0].resume()
    failure = failure_of(own)
    assert failure.error == "CoordinatorLostError" or "CoordinatorLostError: no heartbeat" in failure.text, failure.text


def test_a_coordinator_that_was_stopped_for_long_does_not_blame_its_only_client_which_has_gone() -> None:
    with LocalJob(2) as job:
        job.initialize(**FAST)
        failed = job.clients[1].call("wait_failed")
        job.clients[0].stop()
        check_names(failure_of(failed), 0)
        time.sleep(2 * TIMEOUT)  # the client is given the time to be gone, so that its address refuses
        own = job.clients[0].call("wait_failed")
        job.clients[0].resume()
        failure = failure_of(own)
        check_names(failure, 0)
        assert "it did not run for" in failure.text
        assert "client 1 has gone" in failure.text


@pytest.mark.parametrize("victim", [0, 1])
def test_stopped_in_shutdown_holds_nobody_up_for_longer_than_it_may(job: LocalJob, victim: int) -> None:
    job.initialize(**FAST, shutdown_timeout=1.0)
    job.clients[victim].call("signal_at", signal="SIGSTOP", phase="leaving").value()
    leaving = job.clients[victim].call("shutdown")
    for call in job.call("shutdown", all_but(victim)):
        check_names(call.error(), victim)
    job.clients[victim].resume()
    leaving.answer()


def test_two_that_are_stopped_together_are_both_named() -> None:
    with LocalJob(4) as job:
        job.initialize(**FAST)
        failed = job.call("wait_failed", [0, 2])
        for victim in (1, 3):
            job.clients[victim].stop()
        for call in failed:
            failure = failure_of(call)
            assert failure.attributes["client_id"] in (1, 3)
            assert f"failed with it: {4 - failure.attributes['client_id']}" in failure.text, failure.text
