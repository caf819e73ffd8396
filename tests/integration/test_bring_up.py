"""Real processes on loopback: all come up, and agree."""

from __future__ import annotations

import numpy as np
import pytest

from bringup.testing.job import LocalJob


def test_four_clients_hold_the_same_table() -> None:
    with LocalJob(4) as job:
        facts = job.initialize(device_type="SIM")
    first = facts[0]
    for client_id, one in enumerate(facts):
        assert one["client_id"] == client_id
        for key in ("job_id", "core_ids", "devices", "topology", "jobs", "simulated"):
            assert one[key] == first[key]
        assert one["local_device_ids"] == list(range(8 * client_id, 8 * client_id + 8))
        assert [member["phase"] for member in one["members"]] == ["ready"] * 4
    assert sorted(first["core_ids"]) == list(range(32))
    assert first["core_ids"] != list(range(32))
    assert first["topology"]["mesh_shape"] == [4, 4, 1, 2]
    assert first["jobs"] == list(job.jobs)
    assert first["devices"][8]["name"] == "/job:worker/replica:0/task:1/device:SIM:0"
    assert first["simulated"]
    assert all("SIM" in device["kind"] for device in first["devices"])


def test_sixteen_clients_come_up() -> None:
    with LocalJob(16) as job:
        facts = job.initialize(device_type="SIM")
    assert {tuple(one["core_ids"]) for one in facts} == {tuple(facts[0]["core_ids"])}
    assert sorted(facts[0]["core_ids"]) == list(range(128))


def test_clients_with_unequal_numbers_of_devices() -> None:
    with LocalJob(3) as job:
        job.start()
        calls = [
            job.clients[client_id].call("initialize", device_type="CPU", num_logical_cpu_devices=count)
            for client_id, count in enumerate((3, 1, 2))
        ]
        facts = [call.value() for call in calls]
    assert [one["core_ids"] for one in facts] == [[0, 1, 2, 3, 4, 5]] * 3
    assert [one["local_device_ids"] for one in facts] == [[0, 1, 2], [3], [4, 5]]
    assert facts[0]["devices"][3]["name"] == "/job:worker/replica:0/task:1/device:CPU:0"
    assert facts[0]["topology"] is None


@pytest.mark.parametrize("last", [0, 2])
def test_any_client_may_start_last(last: int) -> None:
    early = [client_id for client_id in range(3) if client_id != last]
    with LocalJob(3) as job:
        job.start(early)
        calls = job.call("initialize", early, device_type="SIM")
        # They answer, so they are waiting for the client that is not there.
        for call in job.call("resources", early):
            call.value()
        job.start([last])
        calls += job.call("initialize", [last], device_type="SIM")
        tables = [call.value()["core_ids"] for call in calls]
    assert tables[0] == tables[1] == tables[2]


@pytest.mark.parametrize("host", ["localhost", "localhost.", "::1", "127.0.0.2"])
def test_loopback_addresses_of_every_kind(host: str) -> None:
    with LocalJob(2, host=host) as job:
        facts = job.initialize(device_type="SIM")
    assert facts[0]["jobs"] == list(job.jobs)


def test_the_example_of_the_dtensor_documentation() -> None:
    with LocalJob(4) as job:
        dtensor = {"BRINGUP_JOBS": "", "BRINGUP_CLIENT_ID": "", "DTENSOR_JOBS": ",".join(job.jobs)}
        for client_id in range(4):
            job.start([client_id], **dtensor, DTENSOR_CLIENT_ID=str(client_id), DTENSOR_JOB_NAME="trainer")
        facts = job.initialize(device_type="SIM")
    assert facts[3]["devices"][-1]["name"] == "/job:trainer/replica:0/task:3/device:SIM:7"


def test_one_address_and_a_number_of_clients() -> None:
    with LocalJob(3) as job:
        alone = {"BRINGUP_JOBS": job.jobs[0], "BRINGUP_NUM_CLIENTS": "3"}
        job.start(**alone)
        facts = job.initialize(device_type="SIM")
    assert facts[1]["jobs"] == facts[0]["jobs"]
    assert len(facts[1]["jobs"]) == 3
    assert facts[1]["jobs"][0].startswith("127.0.0.1:")


def test_a_proxy_in_the_environment_does_not_matter() -> None:
    proxy = "http://127.0.0.1:9"
    with LocalJob(2, environment={"http_proxy": proxy, "HTTP_PROXY": proxy, "https_proxy": proxy}) as job:
        assert len(job.initialize(device_type="SIM")) == 2


def test_heartbeats_flow_while_a_backend_takes_three_seconds() -> None:
    """Clients that fell silent for a third of that would be declared dead."""
    with LocalJob(2) as job:
        job.start([0])
        job.start([1], BRINGUP_SIM_START_SECONDS="3")
        facts = job.initialize(device_type="SIM", heartbeat_interval=0.2, heartbeat_timeout=1.0)
    spans = {span["phase"]: span["duration"] for span in facts[1]["timeline"] if span["client_id"] == 1}
    assert spans["devices"] >= 3.0
    assert spans["connect"] + spans["rendezvous"] < 2.0
    waited_for = [
        span["client_id"] for span in facts[0]["timeline"] if span["phase"] == "devices" and span["duration"] > 2
    ]
    assert waited_for == [1]


def test_a_caller_that_blocks_its_loop_stays_alive() -> None:
    with LocalJob(2) as job:
        job.initialize(device_type="SIM", heartbeat_interval=0.5, heartbeat_timeout=2.0)
        job.clients[1].call("block", seconds=3.0).value()
        results = [call.value() for call in job.call("all_reduce", array=[1, 2])]
    assert results == [[2, 4], [2, 4]]


def test_collectives_and_barriers_between_processes() -> None:
    with LocalJob(4) as job:
        job.initialize(device_type="SIM")
        for size in (1, 1000, 100_000):
            arrays = [(np.arange(size) * (client_id + 1)).tolist() for client_id in range(4)]
            calls = [job.clients[c].call("all_reduce", array=arrays[c]) for c in range(4)]
            total = np.sum(arrays, axis=0).tolist()
            assert all(call.value() == total for call in calls)
        for _ in range(3):
            for call in job.call("barrier", name="again"):
                assert call.value() is None
        mismatched = [job.clients[c].call("all_reduce", array=[1] * (2 if c == 2 else 3)) for c in range(4)]
        for call in mismatched:
            error = call.error()
            assert error.error == "CollectiveMismatchError"
            assert "client 2 called all_reduce(sum, int64[2])" in error.text
        assert [call.value() for call in job.call("all_reduce", array=[1])] == [[4]] * 4


def test_a_collective_that_times_out_behind_another_leaves_the_clients_in_step() -> None:
    with LocalJob(2) as job:
        job.initialize(device_type="SIM")
        first, other = job.clients[0], job.clients[1]
        before = first.call("all_reduce", array=[1])
        first.call("facts").value()  # so that it has been called
        error = first.call("all_reduce", array=[10], timeout=0.1).error()
        assert "timeout=0.1 s" in error.text
        behind = first.call("all_reduce", array=[100])
        assert other.call("all_reduce", array=[2]).value() == before.value() == [3]
        assert "client 0 called nothing: its call ended before its turn" in (
            other.call("all_reduce", array=[20]).error().text
        )
        assert other.call("all_reduce", array=[200]).value() == behind.value() == [300]


def test_a_barrier_that_times_out_names_who_did_not_come() -> None:
    with LocalJob(3) as job:
        job.initialize(device_type="SIM")
        errors = [call.error() for call in job.call("barrier", [0, 1], name="step 7", timeout=0.5)]
    for error in errors:
        assert error.error == "BarrierTimeoutError"
        assert "TimeoutError" in error.bases
        assert list(error.attributes["missing"]) == ["2"]
        assert "'step 7'" in error.text
        assert job.jobs[2] in error.text


def test_shutdown_leaves_nothing_behind_and_a_job_can_follow_at_once() -> None:
    with LocalJob(3) as job:
        job.start()
        before = job.resources()
        ids = set()
        for _ in range(5):
            facts = job.initialize(device_type="SIM")
            ids.add(facts[0]["job_id"])
            for call in job.call("shutdown"):
                call.value()
        assert job.resources_beyond(before) == [{}] * 3
    assert len(ids) == 5


def test_a_client_that_never_shuts_down_is_named_and_does_not_hold_up_the_rest() -> None:
    with LocalJob(3) as job:
        job.initialize(device_type="SIM", shutdown_timeout=1.0)
        left = job.clients[2].call("wait_failed")
        for call in job.call("shutdown", [0, 1]):
            told = call.error()
            assert (told.error, told.attributes["client_id"]) == ("PeerFailedError", 2)
            assert "left the job without client 2 (127.0.0.1:" in told.text
            assert "did not join its shutdown within shutdown_timeout=1 s" in told.text
        job.clients[0].wait_for("without client 2")
        failure = left.value()
    assert failure["error"] == "PeerFailedError"
    assert "did not join" in failure["text"]
