"""`bringup.compat.jax.distributed.global_state.client` does what jax's client does: see `jax_client_cases.py`."""

from __future__ import annotations

import ast
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

import bringup
from bringup.compat.jax.distributed import JaxRuntimeError, global_state
from bringup.testing.job import LocalJob

from .cases import check_case, job_of_cases, names_of
from .jax_case_list import CASES as LISTED
from .jax_case_list import CASES_WITHOUT_A_NUMBER, NUMBERED, Differs

N = 3
MODULE = "jax_client_cases.py"
CASES = [name for name in names_of(MODULE) if name != "killed"]


ROOT = Path(__file__).parents[2]


def shown_by(number: str) -> tuple[str, ...]:
    listed = LISTED[number]
    return listed.tests if isinstance(listed, Differs) else (listed,) if isinstance(listed, str) else listed


def test_every_case_of_the_original_is_listed() -> None:
    numbers = [f"{kind}{number}" for kind, count in NUMBERED.items() for number in range(1, count + 1)]
    assert list(LISTED) == numbers
    assert all(map(shown_by, numbers))


def test_what_is_listed_is_there_and_every_case_of_ours_is_listed() -> None:
    named = {name for number in LISTED for name in shown_by(number)} | set(CASES_WITHOUT_A_NUMBER)
    assert {name for name in named if "::" not in name} == set(names_of(MODULE))
    for path, _, name in (each.partition("::") for each in named if "::" in each):
        nodes = ast.parse((ROOT / path).read_text()).body
        functions = [node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        assert name in functions, f"{path} has no {name}"


@pytest.fixture(scope="module")
def job() -> Iterator[LocalJob]:
    with job_of_cases(N, MODULE, CASES) as job:
        job.start()
        yield job


@pytest.mark.parametrize("name", CASES)
def test_case(job: LocalJob, name: str) -> None:
    check_case(job, name)


def test_the_job_ends_in_order_after_all_that(job: LocalJob) -> None:
    assert job.wait() == {0: 0, 1: 0, 2: 0}


@pytest.mark.parametrize("victim", [0, 2])
def test_all_that_waits_is_told_of_a_death(victim: int) -> None:
    survivors = [client_id for client_id in range(N) if client_id != victim]
    with job_of_cases(N, MODULE, ["killed"], VICTIM=str(victim)) as job:
        job.start()
        for client in job.clients.values():
            client.wait_for("waiting")
        job.clients[victim].kill()
        check_case(job, "killed", survivors)
        for client_id in survivors:
            assert f"client {victim} " in job.clients[client_id].wait_for("told:")


ONE = {"jobs": "127.0.0.1:1", "client_id": 0}


def test_there_is_no_client_without_a_system() -> None:
    """So that programs that look for one first do without, as they do where jax was not initialised."""
    for _ in range(2):
        assert global_state.client is None
        assert global_state.preemption_sync_manager is None
        assert (global_state.process_id, global_state.num_processes, global_state.coordinator_address) == (0, 1, None)
        with bringup.sync.initialize("SIM", **ONE):
            assert global_state.client is not None
            assert (global_state.process_id, global_state.num_processes) == (0, 1)
            assert global_state.coordinator_address == "127.0.0.1:1"


def test_local_mode_has_no_coordinator() -> None:
    with bringup.sync.initialize("SIM", jobs=None):
        assert global_state.client is not None
        assert global_state.coordinator_address is None
        global_state.client.wait_at_barrier("alone", 0)


def test_a_client_that_is_kept_says_that_its_job_is_over() -> None:
    """In the original a key can still be set then."""
    with bringup.sync.initialize("SIM", **ONE):
        client, manager = global_state.client, global_state.preemption_sync_manager
    assert client is not None
    assert manager is not None
    calls = (
        lambda: client.key_value_set("key", "value"),
        lambda: client.blocking_key_value_get("key", 1000),
        lambda: client.wait_at_barrier("late", 1000),
        lambda: client.get_live_nodes([0]),
        lambda: manager.reached_sync_point(0),
    )
    for call in calls:
        with pytest.raises(JaxRuntimeError, match=r"^CANCELLED: ") as raised:
            call()
        assert isinstance(raised.value.__cause__, bringup.NotInitializedError)


def test_services_that_are_switched_off_say_so() -> None:
    """There is a client all the same: a program that finds none goes on without the others."""
    with bringup.sync.initialize("SIM", enable_coordination_service=False, **ONE):
        client, manager = global_state.client, global_state.preemption_sync_manager
        assert client is not None
        assert manager is not None
        calls = (
            lambda: client.key_value_set("key", "value"),
            lambda: client.key_value_dir_get("key"),
            lambda: client.wait_at_barrier("off", 1000),
            lambda: client.get_live_nodes([0]),
            lambda: manager.reached_sync_point(0),
        )
        for call in calls:
            with pytest.raises(JaxRuntimeError, match=r"^FAILED_PRECONDITION: .*enable_coordination_service=False"):
                call()


def test_shutting_down_with_a_notice_that_nobody_has_met() -> None:
    """G6, and G3 has left another one behind."""
    with bringup.sync.initialize("SIM", **ONE) as system:
        system.announce_preemption()
        system.announce_preemption(deadline=1000.0)


def test_errors_can_be_copied_between_processes() -> None:
    error = JaxRuntimeError("NOT_FOUND: Config key a not found.")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.code) == (JaxRuntimeError, str(error), "NOT_FOUND")
