"""Jobs that cannot come up say who is missing, or what does not fit, on every client, at once or at the deadline."""

from __future__ import annotations

import time

import pytest

from bringup.testing.job import LocalJob


def test_a_missing_client_is_named_at_the_deadline() -> None:
    with LocalJob(4) as job:
        job.start()
        job.resources()  # what is imported late is imported now
        began = time.monotonic()
        errors = [c.error() for c in job.call("initialize", [0, 1, 2], device_type="SIM", initialization_timeout=2.0)]
    for error in errors:
        assert error.error == "RendezvousTimeoutError"
        assert "TimeoutError" in error.bases
        assert error.attributes["missing"] == {"3": job.jobs[3]}
        assert sorted(error.attributes["present"]) == ["0", "1", "2"]
        assert f"client 3 ({job.jobs[3]})" in error.text
        assert "initialization_timeout=2" in error.text
        assert 2.0 <= error.at - began < 3.5


def test_client_0_says_whom_it_refused_as_the_others_wait_for_it() -> None:
    with LocalJob(2) as job:
        job.start([0])
        job.start([1], BRINGUP_JOBS=f"{job.jobs[0]},127.0.0.1:1")
        first, other = job.call("initialize", device_type="SIM", initialization_timeout=2.0)
        assert other.error().error == "RegistrationRefusedError"
        assert first.error().error == "RendezvousTimeoutError"
        job.clients[0].wait_for("bringup: client 0 refused client 1: jobs differ between the two")


def test_a_missing_coordinator_is_named_at_the_deadline() -> None:
    with LocalJob(3) as job:
        job.start([1, 2])
        errors = [c.error() for c in job.call("initialize", [1, 2], device_type="SIM", initialization_timeout=1.5)]
    for error in errors:
        assert error.error == "RendezvousTimeoutError"
        assert error.attributes["missing"] == {"0": job.jobs[0]}
        assert "hosts the coordinator" in error.text
        assert "connection refused" in error.text


def test_after_a_time_out_the_same_ports_work_at_once() -> None:
    with LocalJob(3) as job:
        job.start()
        for call in job.call("initialize", [0, 1], device_type="SIM", initialization_timeout=1.0):
            call.error()
        facts = job.initialize(device_type="SIM")
    assert facts[0]["core_ids"] == facts[2]["core_ids"]


def test_a_second_process_with_the_same_id_is_refused_and_disturbs_nobody() -> None:
    with LocalJob(3) as job:
        job.start([1, 0])
        waiting = job.call("initialize", [1, 0], device_type="SIM")
        first = job.clients[1]
        first.call("reach", phases=["rendezvous"]).value()
        job.start([1])
        second = job.clients[1].call("initialize", device_type="SIM", initialization_timeout=30.0)
        refused = second.error()
        assert refused.error == "RegistrationRefusedError"
        assert refused.attributes["field"] == "client_id"
        assert str(first.process.pid) in refused.attributes["theirs"]
        job.start([2])
        tables = [call.value()["core_ids"] for call in (*waiting, *job.call("initialize", [2], device_type="SIM"))]
        late = job.start([1])[0].call("initialize", device_type="SIM").error()
        assert late.error == "RegistrationRefusedError"
        assert late.attributes["field"] == "incarnation"
    assert tables[0] == tables[1] == tables[2]


@pytest.mark.parametrize(
    ("field", "environment", "ours", "theirs"),
    [
        ("num_clients", {"BRINGUP_JOBS": "{0},{1},127.0.0.1:9"}, "3", "2"),
        ("job_name", {"BRINGUP_JOB_NAME": "other"}, "'other'", "'worker'"),
    ],
)
def test_a_client_with_other_beliefs_is_refused_with_both_sides_values(
    field: str, environment: dict[str, str], ours: str, theirs: str
) -> None:
    with LocalJob(2) as job:
        job.start([0])
        waiting = job.clients[0].call("initialize", device_type="SIM")
        job.start([1], **{name: value.format(*job.jobs) for name, value in environment.items()})
        refused = job.clients[1].call("initialize", device_type="SIM").error()
        assert refused.error == "RegistrationRefusedError"
        assert (refused.attributes["field"], refused.attributes["ours"], refused.attributes["theirs"]) == (
            field,
            ours,
            theirs,
        )
        job.start([1])
        job.clients[1].call("initialize", device_type="SIM").value()
        waiting.value()


def test_clients_with_different_devices_are_refused() -> None:
    with LocalJob(2) as job:
        job.start()
        job.clients[0].call("initialize", device_type="SIM")
        refused = job.clients[1].call("initialize", device_type="CPU").error()
    assert refused.error == "RegistrationRefusedError"
    assert refused.attributes["field"] == "device_type"


def test_clients_that_turn_out_to_have_different_devices_are_all_told() -> None:
    with LocalJob(3) as job:
        job.start()
        calls = job.call("initialize", [0, 2], device_type="SIM")
        calls += job.call("initialize", [1])
        errors = [call.error() for call in calls]
    for error in errors:
        assert error.error == "TopologyError"
        assert "clients 0, 2 have SIM; client 1 has " in error.text


def test_a_second_job_on_the_same_port_is_told_which_and_by_whom() -> None:
    with LocalJob(2) as job:
        job.initialize(device_type="SIM")
        first = job.clients[0]
        refused = job.start([0])[0].call("initialize", device_type="SIM").error()
        assert refused.error == "ConfigurationError"
        assert job.jobs[0] in refused.text
        assert f"by process {first.process.pid}" in refused.text
        results = [
            call.value() for call in (first.call("all_reduce", array=[1]), job.clients[1].call("all_reduce", array=[1]))
        ]
    assert results == [[2], [2]]


def test_the_port_of_the_ring_can_be_chosen_and_be_taken() -> None:
    with LocalJob(2) as job:
        port = int(job.jobs[1].rpartition(":")[2])
        job.start([1])
        refused = (
            job.clients[1].call("initialize", device_type="SIM", initialization_timeout=0.5, ring_port=port).error()
        )
        assert refused.error == "RendezvousTimeoutError"
        job.start([0])
        taken = int(job.jobs[0].rpartition(":")[2])
        refused = (
            job.clients[0].call("initialize", device_type="SIM", ring_port=taken, initialization_timeout=0.5).error()
        )
        assert refused.error == "ConfigurationError"
        assert str(taken) in refused.text


def test_a_backend_that_fails_fails_everybody_by_name() -> None:
    with LocalJob(3, environment={"BRINGUP_SIM_FAULT": "1:raise:no power"}) as job:
        job.start()
        bystanders = job.call("initialize", [0, 2], device_type="SIM")
        for call in job.call("resources", [0, 2]):
            call.value()
        victim = job.clients[1].call("initialize", device_type="SIM")
        errors = [call.error() for call in (bystanders[0], victim, bystanders[1])]
    assert errors[1].error == "DeviceInitializationError"
    assert "no power" in errors[1].text
    for error in (errors[0], errors[2]):
        assert error.error == "PeerFailedError"
        assert error.attributes["client_id"] == 1
        assert error.attributes["phase"] == "devices"
        assert "no power" in error.attributes["cause"]


@pytest.mark.parametrize("victim", [0, 2])
def test_a_backend_that_fails_at_once_is_told_to_those_who_come_a_little_later(victim: int) -> None:
    with LocalJob(4, environment={"BRINGUP_SIM_FAULT": f"{victim}:raise:no power"}) as job:
        job.start()
        job.resources()  # loads what would else hold one of them up for longer than the job stays
        calls = job.call("initialize", device_type="SIM", initialization_timeout=15.0)
        for client_id, call in enumerate(calls):
            error = call.error()
            assert error.error == ("DeviceInitializationError" if client_id == victim else "PeerFailedError"), (
                error.text
            )
            assert "no power" in error.text


def test_a_backend_that_hangs_is_given_up_at_its_deadline() -> None:
    with LocalJob(2, environment={"BRINGUP_SIM_FAULT": "1:hang"}) as job:
        job.start()
        errors = [call.error() for call in job.call("initialize", device_type="SIM", device_timeout=1.0)]
    assert errors[1].error == "DeviceTimeoutError"
    assert errors[0].error == "PeerFailedError"
    assert "DeviceTimeoutError" in errors[0].text


def test_a_slow_client_is_named_when_the_time_for_all_runs_out() -> None:
    with LocalJob(2, environment={"BRINGUP_SIM_FAULT": "1:hang"}) as job:
        job.start()
        errors = [call.error() for call in job.call("initialize", device_type="SIM", initialization_timeout=2.0)]
    for error in errors:
        assert error.error == "RendezvousTimeoutError"
        assert list(error.attributes["missing"]) == ["1"]


@pytest.mark.parametrize(("fault", "says"), [("duplicate", "core id"), ("shifted", "location")])
def test_a_table_that_is_not_sound_is_refused_on_every_client(fault: str, says: str) -> None:
    with LocalJob(3, environment={"BRINGUP_SIM_FAULT": f"1:{fault}"}) as job:
        job.start()
        errors = [call.error() for call in job.call("initialize", device_type="SIM")]
    for error in errors:
        assert error.error == "TopologyError"
        assert f"{says} " in error.text
        assert "client 1" in error.text


def test_a_job_that_leaves_the_machine_needs_insecure() -> None:
    with LocalJob(1) as job:
        client = job.start()[0]
        refused = client.call(
            "initialize", device_type="SIM", jobs="192.0.2.1:1000,192.0.2.2:1000", client_id=0
        ).error()
    assert refused.error == "ConfigurationError"
    assert "insecure=True" in refused.text
