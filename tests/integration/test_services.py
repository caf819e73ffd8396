"""The coordination services between real processes: see `service_cases.py` for what the clients do."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

import bringup
from bringup.testing.job import LocalJob

from .cases import check_case, job_of_cases, names_of

N = 3
MODULE = "service_cases.py"
ALONE = ("killed", "preempted", "never", "asked")
CASES = [name for name in names_of(MODULE) if not name.startswith(ALONE)]


@pytest.fixture(scope="module")
def job() -> Iterator[LocalJob]:
    environment = {"BRINGUP_KV_MAX_BYTES": str(256 * 1024**2), "BRINGUP_HEARTBEAT_INTERVAL": "0.1"}
    with job_of_cases(N, MODULE, CASES, **environment) as job:
        job.start()
        yield job


@pytest.mark.parametrize("name", CASES)
def test_case(job: LocalJob, name: str) -> None:
    check_case(job, name)


def test_the_job_ends_in_order_after_all_that(job: LocalJob) -> None:
    assert job.wait() == {0: 0, 1: 0, 2: 0}


@pytest.mark.parametrize("victim", [0, 2])
@pytest.mark.parametrize("case", ["killed", "killed_in_a_live_block"])
def test_whatever_waits_is_told_of_a_death(case: str, victim: int) -> None:
    survivors = [client_id for client_id in range(N) if client_id != victim]
    with job_of_cases(N, MODULE, [case], VICTIM=str(victim)) as job:
        job.start()
        for client in job.clients.values():
            client.wait_for("waiting")
        job.clients[victim].kill()
        check_case(job, case, survivors)
        job.wait(survivors)
        assert "never retrieved" not in "".join(job.clients[client_id].log for client_id in survivors)


@pytest.mark.parametrize(
    ("case", "victim"), [("preempted", 1), ("preempted_sync", 0), ("preempted_by_a_handler_of_its_own", 2)]
)
def test_all_save_at_one_step_when_a_client_is_to_be_taken(case: str, victim: int) -> None:
    with job_of_cases(N, MODULE, [case]) as job:
        job.start()
        for client in job.clients.values():
            client.wait_for("training")
        job.clients[victim].terminate()
        check_case(job, case)
        assert job.wait() == {0: 0, 1: 0, 2: 0}
        for client in job.clients.values():
            assert f"client {victim} is to be preempted" in client.log


@pytest.mark.parametrize("case", ["never_asks", "asked_once"])
def test_sigterm_ends_who_does_not_ask_or_asks_no_more(case: str) -> None:
    with job_of_cases(2, MODULE, [case]) as job:
        job.start()
        for client in job.clients.values():
            client.wait_for("training")
        job.clients[1].terminate()
        if case == "asked_once":
            for client in job.clients.values():
                client.wait_for("noticed")
            job.clients[1].terminate()
        assert job.clients[1].wait() == -signal.SIGTERM


def test_a_handler_of_the_program_is_left_alone() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        with bringup.sync.initialize("SIM", jobs=None) as system:
            system.reached_preemption_point(0)
            os.kill(os.getpid(), signal.SIGTERM)
            assert heard == [signal.SIGTERM]
            assert not system.reached_preemption_point(1)
    finally:
        signal.signal(signal.SIGTERM, before)


CALLS = (
    ("barrier", {"name": "off"}),
    ("live_clients", {}),
    ("announce_preemption", {}),
    ("reached_preemption_point", {"step": 0}),
)


@pytest.mark.parametrize("off", [[0], [1], [0, 1]])
def test_services_that_are_switched_off_say_so_and_by_whom(off: list[int]) -> None:
    with LocalJob(2) as job:
        job.start()
        calls = [
            job.clients[client_id].call(
                "initialize", device_type="SIM", enable_coordination_service=client_id not in off
            )
            for client_id in range(2)
        ]
        for call in calls:
            call.value()
        for client_id in range(2):
            for name, arguments in CALLS:
                if client_id not in off and 0 not in off:
                    continue
                error = job.clients[client_id].call(name, **arguments).error()
                assert error.error == "ConfigurationError"
                who = "this client" if client_id in off else "client 0"
                assert f"{name}() needs the coordination services, which {who} switched off" in error.text
                assert "enable_coordination_service=False" in error.text
        assert [call.value() for call in job.call("all_reduce", array=[1])] == [[2], [2]]


def test_no_store_where_the_services_are_switched_off() -> None:
    with bringup.sync.initialize("SIM", jobs=None, enable_coordination_service=False) as system:
        with pytest.raises(bringup.ConfigurationError, match="kv needs the coordination services"):
            _ = system.kv
        with pytest.raises(bringup.ConfigurationError, match=r"live\(\) needs"), system.live():
            pass
