"""Whole peers and their coordinator on one event loop, over every network."""

from __future__ import annotations

import asyncio
import dataclasses
import threading

import numpy as np
import pytest
from msgspec.structs import replace

from bringup.devices.sim.slice import SimSlice, default_shape
from bringup.errors import (
    BarrierTimeoutError,
    ConfigurationError,
    CoordinatorLostError,
    DeviceInitializationError,
    NotInitializedError,
    PeerFailedError,
    RegistrationRefusedError,
    RendezvousTimeoutError,
    TopologyError,
)
from bringup.runtime.drivers.ring import RingDriver
from bringup.runtime.machines.peer import events as ev

from .peers import JobOfPeers, job_of_peers
from .places import Place

N = 8
VICTIM = 3
GROUP_SIZES = [0, 2, 3]
"""Of a job of `N` clients: one group of all, four of two, groups of unequal sizes."""


async def brought_up(job: JobOfPeers) -> None:
    job.start()
    await job.ups()


def assert_blame(errors: list[BaseException], client_id: int, cause: str) -> None:
    for error in errors:
        assert isinstance(error, PeerFailedError)
        assert error.client_id == client_id
        assert cause in error.cause


@pytest.mark.parametrize(("size", "group_size"), [(1, 0), (2, 0), (N, 0), (4, 2), (N, 2), (N, 3)])
async def test_all_come_up_with_equal_tables_and_leave(place: Place, size: int, group_size: int) -> None:
    before = threading.active_count()
    async with job_of_peers(place, size, group_size=group_size) as job:
        job.start()
        ups = await job.ups()
        part = SimSlice(default_shape(size), size)
        expected = [core for client_id in range(size) for core in part.core_ids(client_id)]
        assert len(ups) == size
        assert len({up.table.digest for up in ups}) == 1
        assert ups[0].table.core_ids.tolist() == expected
        assert [member.client_id for member in ups[-1].members] == list(range(size))
        assert await job.leave() == [()] * size
    assert threading.active_count() <= before + 1  # gRPC has one of its own, from its first use on


@pytest.mark.parametrize("group_size", GROUP_SIZES)
async def test_different_kinds_of_devices_are_known_to_all(
    place: Place, group_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = RingDriver.merge

    async def merge(self: RingDriver, effect: ev.Merge, device_type: str) -> None:
        kind = f"model {self._config.client_id % 3}"
        named = tuple(dataclasses.replace(each, kind=kind) for each in effect.devices)
        await shipped(self, replace(effect, devices=named), device_type)

    monkeypatch.setattr(RingDriver, "merge", merge)
    async with job_of_peers(place, N, group_size=group_size) as job:
        job.start()
        ups = await job.ups()
        assert len({up.table.digest for up in ups}) == 1
        for up in ups:
            assert [run.kind for run in up.table.kinds.runs] == [f"model {client_id % 3}" for client_id in range(N)]
            assert [run.count for run in up.table.kinds.runs] == up.table.counts.tolist()


async def test_client_0_may_come_last(place: Place) -> None:
    async with job_of_peers(place, 4) as job:
        job.start(3, 1, 2)
        await asyncio.wait(list(job.runs.values()), timeout=0.1)
        assert all("client 0" in p.machine.progress(p.clock()).waiting_for for p in job.peers.values())
        job.start(0)
        await job.ups()


@pytest.mark.parametrize("group_size", GROUP_SIZES)
async def test_collectives_and_barriers_work_on_what_came_up(place: Place, group_size: int) -> None:
    async with job_of_peers(place, N, group_size=group_size) as job:
        await brought_up(job)
        totals = await asyncio.gather(
            *(peer.ring.all_reduce(np.full(5, client_id), "sum") for client_id, peer in job.peers.items())
        )
        assert all((total == sum(range(N))).all() for total in totals)
        await job.barrier(name="a")
        outcomes = await asyncio.gather(
            *(job.barrier(i, name="b", timeout=0.1) for i in job.peers if i != VICTIM), return_exceptions=True
        )
        for outcome in outcomes:
            assert isinstance(outcome, BarrierTimeoutError)
            assert list(outcome.missing) == [VICTIM]


@pytest.mark.parametrize("victim", [0, VICTIM])
async def test_a_backend_that_fails_is_told_to_all(place: Place, victim: int) -> None:
    faults = {"BRINGUP_SIM_FAULT": f"{victim}:raise:no such chip", "BRINGUP_SIM_START_SECONDS": "0.3"}
    async with job_of_peers(place, N, environment=faults) as job:
        job.start()
        assert_blame(await job.failures(but=(victim,)), victim, "DeviceInitializationError")
        assert isinstance(await job.peers[victim].failed.wait(), DeviceInitializationError)


async def test_a_backend_that_fails_before_its_client_has_registered_is_told_to_all(place: Place) -> None:
    async with job_of_peers(place, N, environment={"BRINGUP_SIM_FAULT": f"{VICTIM}:raise:no such chip"}) as job:
        job.start(*(i for i in range(N) if i != VICTIM))
        await job.all_have_registered_but(VICTIM)
        job.start(VICTIM)
        assert_blame(await job.failures(but=(VICTIM,)), VICTIM, "DeviceInitializationError")


async def test_clients_that_claim_one_core_are_told(place: Place) -> None:
    async with job_of_peers(place, N, environment={"BRINGUP_SIM_FAULT": f"{VICTIM}:duplicate"}) as job:
        job.start()
        for error in await job.failures():
            assert isinstance(error, TopologyError)
            assert "client 0" in str(error)
            assert f"client {VICTIM}" in str(error)


@pytest.mark.parametrize(("size", "group_size"), [(2, 0), (N, 0), (N, 3)])
async def test_clients_that_share_a_device_are_told_which_on_which_hosts(
    place: Place, size: int, group_size: int
) -> None:
    faults = {"BRINGUP_SIM_FAULT": f"{size - 1}:shared"}
    async with job_of_peers(place, size, environment=faults, group_size=group_size) as job:
        job.start()
        errors = await job.failures()
        assert len(errors) == size
        assert {type(error) for error in errors} == {TopologyError}
        (text,) = {str(error) for error in errors}
        assert f"client 0 on host host-0 and client {size - 1} on host host-{size - 1} have brought up the" in text
        assert "SIM-0" in text
        assert "local_device_ids" in text


# In groups: client 0, one that leads none, and another leader.
@pytest.mark.parametrize(("victim", "group_size"), [(0, 0), (VICTIM, 0), (0, 2), (VICTIM, 2), (4, 2)])
async def test_a_client_that_gives_up_says_why(place: Place, victim: int, group_size: int) -> None:
    async with job_of_peers(place, N, group_size=group_size) as job:
        await brought_up(job)
        job.peers[victim].abort(KeyboardInterrupt("by hand"))
        assert_blame(await job.failures(but=(victim,)), victim, "KeyboardInterrupt: by hand")


@pytest.mark.parametrize("absent", [(), (1,)])
async def test_a_client_that_gives_up_during_bring_up_says_why(place: Place, absent: tuple[int, ...]) -> None:
    async with job_of_peers(place, N, environment={"BRINGUP_SIM_START_SECONDS": "5"}) as job:
        job.start(*(i for i in range(N) if i not in absent))
        await job.all_have_registered_but(*absent)
        job.peers[VICTIM].abort(KeyboardInterrupt("by hand"))
        assert_blame(await job.failures(but=(VICTIM,)), VICTIM, "KeyboardInterrupt: by hand")


@pytest.mark.parametrize("group_size", GROUP_SIZES)
async def test_pending_calls_of_all_clients_raise_the_failure(place: Place, group_size: int) -> None:
    async with job_of_peers(place, N, group_size=group_size) as job:
        await brought_up(job)
        calls = [job.barrier(i, name="never") for i in job.peers if i not in (VICTIM, 5)]
        calls += [job.peers[5].ring.all_reduce(np.zeros(3), "sum")]  # type: ignore[list-item]
        pending = asyncio.gather(*calls, return_exceptions=True)
        await asyncio.sleep(0)
        job.peers[VICTIM].abort(ValueError("a bug"))
        assert_blame([error for error in await pending if error], VICTIM, "ValueError: a bug")
        with pytest.raises(PeerFailedError):
            await job.barrier(0, name="later")


async def test_who_is_missing_at_the_deadline_is_named(place: Place) -> None:
    async with job_of_peers(place, N, initialization_timeout=0.5) as job:
        job.start(*(i for i in range(N) if i not in (2, 5)))
        for error in await job.failures():
            assert isinstance(error, RendezvousTimeoutError)
            assert list(error.missing) == [2, 5]


async def test_a_taken_address_fails_client_0_at_once(place: Place) -> None:
    async with job_of_peers(place, 2) as job, job_of_peers(place, 2) as other:
        job.start(0)
        await job.all_have_registered_but(1)
        other.start(0)
        (error,) = await other.failures()
        assert isinstance(error, ConfigurationError)
        job.start(1)
        await job.ups()


async def test_a_client_of_another_job_is_refused(place: Place) -> None:
    async with job_of_peers(place, 2) as job, job_of_peers(place, 3) as other:
        job.start(0)
        other.start(1)
        (error,) = await other.failures()
        assert isinstance(error, RegistrationRefusedError)
        assert (error.field, error.ours, error.theirs) == ("num_clients", "3", "2")
        await other.runs[1]
        job.start(1)
        await job.ups()


async def test_a_job_can_be_formed_again_at_once(place: Place) -> None:
    for _ in range(2):
        async with job_of_peers(place, 4) as job:
            await brought_up(job)
            await job.leave()
            for running in job.runs.values():
                await running
            with pytest.raises(NotInitializedError):
                await job.barrier(1, name="too late")


@pytest.mark.parametrize(("victim", "absent", "group_size"), [(3, (), 0), (3, (1,), 0), (3, (), 2), (4, (), 2)])
@pytest.mark.places("memory")
async def test_a_process_that_dies_is_told_to_all(
    place: Place, victim: int, absent: tuple[int, ...], group_size: int
) -> None:
    async with job_of_peers(place, N, group_size=group_size) as job:
        job.start(*(i for i in range(N) if i not in absent))
        await (job.all_have_registered_but(*absent) if absent else job.ups())
        with place.hub.refuse(f"host-{victim}:9000"):
            assert_blame(await job.failures(but=(victim,)), victim, "process died")


@pytest.mark.places("memory")
async def test_a_client_that_is_cut_off_is_told_after_the_timeout(place: Place) -> None:
    async with job_of_peers(place, N, heartbeat_timeout=0.6, heartbeat_interval=0.1) as job:
        await brought_up(job)
        with place.hub.cut(f"host-{VICTIM}:9000"):
            assert_blame(await job.failures(but=(VICTIM,)), VICTIM, "no heartbeat for 0.")
            assert isinstance(await job.peers[VICTIM].failed.wait(), CoordinatorLostError)


@pytest.mark.places("memory")
async def test_the_death_of_the_coordinator_is_told_to_all(place: Place) -> None:
    async with job_of_peers(place, N) as job:
        await brought_up(job)
        with place.hub.refuse("host-0:9000"):
            for error in await job.failures(but=(0,)):
                assert isinstance(error, CoordinatorLostError)
