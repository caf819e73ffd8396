"""Devices that come up as they should not, or that fail while the job runs, in real processes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bringup.testing.job import LocalJob
from bringup.testing.remote_calls import ANSWER_TIMEOUT

N = 3
HEALTH = {"health_interval": 0.05, "heartbeat_interval": 0.2, "heartbeat_timeout": 30.0}


def wait_for_health(job: LocalJob, client_id: int, text: str) -> list[str]:
    """Wait until every client shows a health with `text` for one of them, and return what they show."""
    deadline = time.monotonic() + ANSWER_TIMEOUT
    while time.monotonic() < deadline:
        shown = [call.value()["members"][client_id]["health"] for call in job.call("facts")]
        if all(text in health for health in shown):
            return shown
    raise AssertionError(f"some do not show it: {shown}")


def test_health_that_degrades_shows_everywhere_and_the_job_goes_on() -> None:
    with LocalJob(N, environment={"BRINGUP_SIM_FAULT": "1:degrade:0.2:ECC errors"}) as job:
        job.start()
        facts = job.initialize(device_type="SIM", **HEALTH)
        assert {member["health"] for own in facts for member in own["members"]} == {"healthy"}
        wait_for_health(job, 1, "ECC errors (in 3 checks in a row")
        assert [call.value() for call in job.call("all_reduce", array=[1])] == [[N]] * N
        for call in job.call("shutdown"):
            call.value()


def test_health_that_flaps_is_no_change() -> None:
    with LocalJob(N, environment={"BRINGUP_SIM_FAULT": "1:flap:2,2:degrade:0.5:the end"}) as job:
        job.start()
        job.initialize(device_type="SIM", **HEALTH)
        wait_for_health(job, 2, "the end")
        assert [call.value()["members"][1]["health"] for call in job.call("facts")] == ["healthy"] * N


def test_devices_that_fail_end_the_job_where_that_is_asked_for_and_every_client_says_why() -> None:
    with LocalJob(N, environment={"BRINGUP_SIM_FAULT": "1:degrade:0.2:ECC errors"}) as job:
        job.start()
        job.initialize(device_type="SIM", unhealthy_action="fail", **HEALTH)
        waiting = job.call("barrier", [0, 2], name="never")
        told = [call.answer().value for call in job.call("wait_failed")]
        errors = [call.error() for call in waiting] + [call.error() for call in job.call("all_reduce", array=[1])]
    for error in errors:
        assert error.error == "DeviceFailedError"
        assert {"DeviceError", "PeerFailedError"} <= set(error.bases)
        assert "the devices of client 1 (" in error.text
        assert "ECC errors (in 3 checks in a row)" in error.text
        assert error.attributes["client_id"] == 1
        assert error.attributes["cause"] == "ECC errors (in 3 checks in a row)"
    assert [one["error"] for one in told] == ["DeviceFailedError"] * N


def test_a_health_check_that_hangs_counts_as_a_failure_of_the_devices_and_holds_nothing_up() -> None:
    with LocalJob(N, environment={"BRINGUP_SIM_FAULT": "2:stuck:0.2"}) as job:
        job.start()
        job.initialize(device_type="SIM", device_timeout=1.0, **HEALTH)
        (shown, *_) = wait_for_health(job, 2, "check_health did not return within 1 s")
        assert "the SIM backend of client 2 on host " in shown
        for call in job.call("shutdown"):
            call.value()


def wait_until_registered(job: LocalJob, *client_ids: int) -> None:
    """Who comes when the job has failed finds nobody to tell it."""
    for call in job.call("reach", client_ids, phases=["rendezvous"]):
        call.value()


def test_a_wrong_setting_of_one_client_is_told_to_all_at_once() -> None:
    with LocalJob(N) as job:
        job.start([0, 1])
        job.start([2], BRINGUP_SIM_TOPOLOGY="4x")
        calls = job.call("initialize", [0, 1], device_type="SIM", initialization_timeout=60.0)
        wait_until_registered(job, 0, 1)
        calls += job.call("initialize", [2], device_type="SIM", initialization_timeout=60.0)
        errors = [call.error() for call in calls]
    assert [error.error for error in errors] == ["PeerFailedError", "PeerFailedError", "ConfigurationError"]
    for error in errors:
        assert "BRINGUP_SIM_TOPOLOGY" in error.text
        assert "'4x'" in error.text
    assert [error.attributes["client_id"] for error in errors[:2]] == [2, 2]


@pytest.mark.parametrize(("given", "told"), [("CPUU", "device_type='CPUU' is not known"), (None, "num_logical_cpu")])
def test_a_backend_that_cannot_be_made_is_told_to_all_at_once(given: str | None, told: str) -> None:
    with LocalJob(N) as job:
        job.start()
        calls = job.call(
            "initialize", [0, 2], device_type="CPU", num_logical_cpu_devices=1, initialization_timeout=60.0
        )
        wait_until_registered(job, 0, 2)
        calls += job.call(
            "initialize", [1], device_type=given, num_logical_cpu_devices=10**8, initialization_timeout=60.0
        )
        errors = [call.error() for call in calls]
    assert [error.error for error in errors] == ["PeerFailedError", "PeerFailedError", "ConfigurationError"]
    for error in errors:
        assert told in error.text


@pytest.mark.parametrize("hanging", [0, 1])
def test_a_backend_whose_making_hangs_is_named_before_the_others_give_up(tmp_path: Path, hanging: int) -> None:
    info = tmp_path / "hanging-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hanging\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[bringup.backends]\nHANGING = hanging_module:make\n")
    (tmp_path / "hanging_module.py").write_text("import threading\nthreading.Event().wait()\n")
    with LocalJob(2, environment={"PYTHONPATH": str(tmp_path)}) as job:
        job.start()
        calls = job.call("initialize", [1 - hanging], device_type="SIM", initialization_timeout=8.0)
        calls += job.call("initialize", [hanging], device_type="hanging", initialization_timeout=8.0)
        other, own = (call.error() for call in calls)
    assert own.error == "DeviceTimeoutError"
    assert other.error == "PeerFailedError"
    for error in (own, other):
        assert "open did not return within 7.2 s" in error.text


def test_a_client_may_have_no_devices_where_all_allow_it() -> None:
    with LocalJob(N, environment={"BRINGUP_SIM_FAULT": "1:missing:8"}) as job:
        job.start()
        facts = job.initialize(device_type="SIM", allow_empty=True)
        assert [len(own["local_device_ids"]) for own in facts] == [8, 0, 8]
        assert all(own["core_ids"] == facts[0]["core_ids"] for own in facts)
        assert [call.value() for call in job.call("all_reduce", array=[1])] == [[N]] * N
        for call in job.call("shutdown"):
            call.value()


@pytest.mark.parametrize("allowing", [[1], [0, 2]])
def test_clients_that_do_not_agree_on_empty_clients_fail_with_the_reason(allowing: list[int]) -> None:
    with LocalJob(N, environment={"BRINGUP_SIM_FAULT": "1:missing:8"}) as job:
        job.start([client_id for client_id in range(N) if client_id not in allowing])
        job.start(allowing, BRINGUP_ALLOW_EMPTY="1")
        calls = job.call("initialize", [0, 2], device_type="SIM")
        for reached in job.call("reach", [0, 2], phases=["rendezvous"]):
            reached.value()  # whoever came after the failure would find nobody
        calls[1:1] = job.call("initialize", [1], device_type="SIM")
        errors = [call.error() for call in calls]
    for client_id, error in enumerate(errors):
        if 1 in allowing:
            assert error.error == "TopologyError"
            assert "client 1 brought no devices to the job" in error.text
        else:
            assert error.error == ("DeviceNotFoundError" if client_id == 1 else "PeerFailedError")


@pytest.mark.parametrize("fault", ["1:crash:SEGV", "1:hang"])
def test_native_code_that_crashes_or_hangs_in_a_process_of_its_own_is_named(fault: str) -> None:
    with LocalJob(N, environment={"BRINGUP_SIM_FAULT": fault}) as job:
        job.start()
        calls = job.call("initialize", device_type="SIM", isolate_backend=True, device_timeout=5.0)
        errors = [call.error() for call in calls]
        assert all(client.process.poll() is None for client in job.clients.values())
    own = errors.pop(1)
    assert own.error == ("DeviceTimeoutError" if fault == "1:hang" else "DeviceInitializationError")
    expected = "start did not return within 5 s" if fault == "1:hang" else "was killed by SIGSEGV during start"
    for error in (own, *errors):
        assert expected in error.text
    assert {error.error for error in errors} == {"PeerFailedError"}


def test_a_job_with_backends_in_processes_of_their_own_comes_up_and_leaves_none_behind() -> None:
    with LocalJob(N) as job:
        job.start()
        before = job.resources()
        facts = job.initialize(device_type="SIM", isolate_backend=True, **HEALTH)
        assert [len(own["local_device_ids"]) for own in facts] == [8] * N
        for call in job.call("shutdown"):
            call.value()
        assert job.resources_beyond(before) == [{}] * N
