"""`bringup.testing.FakeJob`: a job within one process, for users' unit tests."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import bringup
from bringup.errors import ConfigurationError, NotInitializedError, PeerFailedError
from bringup.runtime.blocking import SyncSystem
from bringup.runtime.system import System
from bringup.testing import FakeJob, FakeSystem


async def train(system: System) -> tuple[list[float], bytes]:
    total = await system.all_reduce([float(system.client_id), 1.0])
    if system.client_id == 0:
        await system.kv.set("chosen", "by client 0")
    await system.barrier("all have reduced")
    chosen = await system.kv.get("chosen", timeout=10)
    await system.shutdown()
    return total.tolist(), chosen


@pytest.mark.parametrize("num_clients", [1, 2, 5])
async def test_what_is_run_on_every_system_meets_the_others(num_clients: int) -> None:
    async with FakeJob(num_clients) as job:
        assert [system.client_id for system in job.systems] == list(range(num_clients))
        assert len({system.job_id for system in job.systems}) == 1
        assert all(isinstance(system, FakeSystem) for system in job.systems)
        assert {len(system.devices) for system in job.systems} == {len(job.systems[0].local_devices) * num_clients}
        found = await asyncio.gather(*map(train, job.systems))
    total = float(sum(range(num_clients)))
    assert found == [([total, num_clients], b"by client 0")] * num_clients


@pytest.mark.parametrize("victim", [0, 1])
async def test_a_client_that_is_killed_is_named_in_every_pending_call(victim: int) -> None:
    async with FakeJob(3) as job:
        others = [system for system in job.systems if system.client_id != victim]
        calls = [asyncio.create_task(system.barrier("b")) for system in others]
        calls += [asyncio.create_task(system.all_reduce([1])) for system in others]  # type: ignore[arg-type]
        await asyncio.sleep(0)
        job.kill(victim)
        for call in calls:
            with pytest.raises(PeerFailedError) as caught:
                await call
            assert caught.value.client_id == victim
        assert [system.failure.client_id for system in others if system.failure] == [victim] * 2


@pytest.mark.parametrize("cancelled", [0, 1])
async def test_a_collective_whose_task_is_cancelled_before_it_begins_has_its_place(cancelled: int) -> None:
    async def cut_short(system: System) -> list[float]:
        task = asyncio.create_task(system.all_reduce([1.0]))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return (await system.all_reduce([7.0])).tolist()  # type: ignore[no-any-return]

    async def go_on(system: System) -> list[float]:
        with pytest.raises(bringup.CollectiveMismatchError, match="CancelledError"):
            await system.all_reduce([1.0])
        return (await system.all_reduce([7.0])).tolist()  # type: ignore[no-any-return]

    async with FakeJob(2) as job:
        programs = [(cut_short if s.client_id == cancelled else go_on)(s) for s in job.systems]
        async with asyncio.timeout(30):
            assert await asyncio.gather(*programs) == [[14.0], [14.0]]


async def test_a_client_that_is_cut_off_is_silent() -> None:
    async with FakeJob(3, heartbeat_interval=0.02, heartbeat_timeout=0.2) as job:
        waiting = asyncio.create_task(job.systems[0].barrier("b"))
        job.cut(2)
        with pytest.raises(PeerFailedError, match="no heartbeat"):
            await waiting


def test_blocking_code_has_a_thread_for_each_client() -> None:
    def work(system: SyncSystem) -> list[int]:
        total: list[int] = system.all_reduce([system.client_id, 1]).tolist()
        system.barrier("b")
        system.shutdown()
        return total

    with FakeJob(3) as job, ThreadPoolExecutor() as pool:
        assert list(pool.map(work, job.blocking_systems)) == [[3, 3]] * 3


def test_a_blocking_call_hears_of_a_death() -> None:
    with FakeJob(2) as job, ThreadPoolExecutor() as pool:
        waiting = pool.submit(job.blocking_systems[0].barrier, "b")
        job.kill(1)
        with pytest.raises(PeerFailedError):
            waiting.result(30)


async def test_it_leaves_nothing_and_is_no_system_of_this_process() -> None:
    async with FakeJob(2):
        with pytest.raises(NotInitializedError):
            bringup.current()
    assert len(asyncio.all_tasks()) == 1
    with FakeJob(2):
        pass
    for thread in threading.enumerate():
        if thread.name.startswith("bringup"):
            thread.join(10.0)  # it has said that it ends, and is about to
            assert not thread.is_alive(), thread.name


async def test_devices_are_those_asked_for() -> None:
    async with FakeJob(2, environment={"BRINGUP_SIM_TOPOLOGY": "2x2x1x1"}) as job:
        topology = job.systems[0].topology
        assert topology is not None
        assert list(topology.mesh_shape) == [2, 2, 1, 1]


async def test_a_bring_up_that_fails_raises_and_leaves_nothing() -> None:
    with pytest.raises(bringup.BringupError, match="of its own"):
        async with FakeJob(2, environment={"BRINGUP_SIM_FAULT": "1:raise:of its own"}):
            pass
    assert len(asyncio.all_tasks()) == 1
    with (
        pytest.raises(bringup.BringupError, match="of its own"),
        FakeJob(1, environment={"BRINGUP_SIM_FAULT": "0:raise:of its own"}),
    ):
        pass


def test_mistakes_are_named() -> None:
    with pytest.raises(ConfigurationError, match="num_clients=0"):
        FakeJob(0)
    with FakeJob(2) as job, pytest.raises(ConfigurationError, match="clients 0 to 1"):
        job.kill(2)
