"""Processes killed and stopped: every survivor is told who, and how it was found out."""

from __future__ import annotations

import time

import pytest

from bringup.testing.job import Answer, Call, LocalJob

TOLD_OF_DEATH = 2.0
"""Seconds; far above what is measured, far below any time-out that could tell of a death instead."""


def _died(error: Answer, client_id: int) -> None:
    assert error.error == ("CoordinatorLostError" if client_id == 0 else "PeerFailedError"), error.text
    assert error.attributes["client_id"] == client_id
    assert "no heartbeat" not in error.text


def _kill_and_collect(job: LocalJob, victim: int, calls: dict[int, Call]) -> dict[int, Answer]:
    killed_at = time.monotonic()
    job.clients[victim].kill()
    errors = {client_id: call.error() for client_id, call in calls.items() if client_id != victim}
    for client_id, error in errors.items():
        _died(error, victim)
        assert error.at - killed_at < TOLD_OF_DEATH, f"client {client_id} was told late: {error.text}"
    return errors


@pytest.mark.parametrize("victim", [0, 2])
def test_killed_while_others_are_missing(victim: int) -> None:
    with LocalJob(4) as job:
        job.start([0, 1, 2])
        calls = dict(zip((0, 1, 2), job.call("initialize", [0, 1, 2], device_type="SIM"), strict=True))
        for reached in job.call("reach", [0, 1, 2], phases=["rendezvous"]):
            reached.value()
        _kill_and_collect(job, victim, calls)


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("slow", [0, 1, 2])
def test_killed_while_devices_come_up(victim: int, slow: int) -> None:
    with LocalJob(3, environment={"BRINGUP_SIM_FAULT": f"{slow}:slow:60"}) as job:
        job.start()
        calls = dict(enumerate(job.call("initialize", device_type="SIM")))
        for client_id in range(3):
            phases = ["devices"] if client_id == slow else ["merge"]
            job.clients[client_id].call("reach", phases=phases).value()
        _kill_and_collect(job, victim, calls)


@pytest.mark.parametrize("victim", [0, 1, 3])
@pytest.mark.parametrize("call", ["wait_failed", "barrier", "all_reduce"])
def test_killed_when_up(victim: int, call: str) -> None:
    arguments = {"wait_failed": {}, "barrier": {"name": "b"}, "all_reduce": {"array": [1]}}[call]
    with LocalJob(4) as job:
        job.initialize(device_type="SIM")
        survivors = [client_id for client_id in range(4) if client_id != victim]
        calls = dict(zip(survivors, job.call(call, survivors, **arguments), strict=True))
        for client_id in survivors:
            job.clients[client_id].call("facts").value()
        killed_at = time.monotonic()
        job.clients[victim].kill()
        for client_id in survivors:
            if call == "wait_failed":
                told = calls[client_id].answer()
                assert told.value["attributes"]["client_id"] == victim
            else:
                told = calls[client_id].error()
                _died(told, victim)
            assert told.at - killed_at < TOLD_OF_DEATH
        # Later calls say the same at once, and shutting down is as quick.
        for later in job.call("barrier", survivors, name="later"):
            _died(later.error(), victim)
        for gone in job.call("shutdown", survivors):
            assert gone.value() is None


def test_killed_while_shutting_down_is_no_failure() -> None:
    with LocalJob(3) as job:
        job.initialize(device_type="SIM")
        leaving = job.clients[1].call("shutdown")
        job.clients[1].call("reach", phases=["leaving"]).value()
        job.clients[1].kill()
        assert leaving  # it never answers
        for call in job.call("shutdown", [0, 2]):
            assert call.value() is None


@pytest.mark.parametrize("victim", [0, 1])
def test_stopped_for_longer_than_the_timeout(victim: int) -> None:
    with LocalJob(3) as job:
        job.initialize(device_type="SIM", heartbeat_interval=0.2, heartbeat_timeout=1.0)
        survivors = [client_id for client_id in range(3) if client_id != victim]
        calls = job.call("wait_failed", survivors)
        stopped_at = time.monotonic()
        job.clients[victim].stop()
        for call in calls:
            told = call.answer()
            assert told.value["attributes"]["client_id"] == victim
            assert "no heartbeat for 1." in told.value["attributes"]["cause"]
            assert 1.0 - 0.2 <= told.at - stopped_at < 4.0
        job.clients[victim].resume()
        failed = job.clients[victim].call("wait_failed").answer()
        assert failed.value["error"] in ("PeerFailedError", "CoordinatorLostError")


@pytest.mark.parametrize("victim", [0, 1])
def test_stopped_for_less_than_the_timeout_is_forgiven(victim: int) -> None:
    with LocalJob(3) as job:
        job.initialize(device_type="SIM", heartbeat_interval=0.2, heartbeat_timeout=5.0)
        job.clients[victim].stop()
        time.sleep(1.0)  # the time that it is stopped for is what is tested
        job.clients[victim].resume()
        assert [call.value() for call in job.call("all_reduce", array=[1])] == [[3]] * 3


def test_a_restarted_client_is_refused_and_the_job_has_failed_already() -> None:
    with LocalJob(3) as job:
        job.initialize(device_type="SIM")
        told = job.clients[0].call("wait_failed")
        job.clients[2].kill()
        assert told.value()["attributes"]["client_id"] == 2
        again = job.start([2])[0].call("initialize", device_type="SIM", initialization_timeout=1.0)
        assert again.error().error in ("RegistrationRefusedError", "RendezvousTimeoutError")
