"""A client whose connection to the coordinator breaks comes back, over every network, and nothing was lost."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable

import numpy as np
import pytest

from bringup.errors import PeerFailedError
from bringup.runtime.drivers.peer import CoordinationPeer
from bringup.runtime.machines.phases import Phase

from .peers import JobOfPeers, job_of_peers
from .places import Place

N = 6
CLIENT = 3


@contextlib.asynccontextmanager
async def breakable(
    place: Place, num_clients: int = N, **settings: float
) -> AsyncIterator[tuple[JobOfPeers, Callable[[], None]]]:
    """Yield a job that was not started, and what breaks the connection of one of its clients."""
    async with place.detour(CLIENT) as (address, break_it), job_of_peers(place, num_clients, **settings) as job:
        job.detours[CLIENT] = address
        yield job, break_it


def reconnects_seen_by(job: JobOfPeers, client_id: int) -> int:
    return job.peers[client_id].machine.state_of(CLIENT).reconnects


async def reconnected(job: JobOfPeers, times: int) -> None:
    """Wait until the client knows that it has come back."""
    while reconnects_seen_by(job, CLIENT) < times:  # noqa: ASYNC110 - pure: it tells nobody
        await asyncio.sleep(0.001)


async def all_meet(job: JobOfPeers) -> None:
    totals = await asyncio.gather(*(peer.ring.all_reduce(np.ones(3), "sum") for peer in job.peers.values()))
    assert all((total == len(job.peers)).all() for total in totals)
    await job.barrier()


async def test_a_connection_that_breaks_while_the_job_is_up_is_restored_and_counted(place: Place) -> None:
    async with breakable(place) as (job, break_it):
        job.start()
        await job.ups()
        break_it()
        await reconnected(job, 1)
        await all_meet(job)
        while reconnects_seen_by(job, 1) == 0:  # noqa: ASYNC110 - pure: it tells nobody
            await asyncio.sleep(0.001)
        assert await job.leave() == [()] * N


@pytest.mark.parametrize("phase", [Phase.RENDEZVOUS, Phase.DEVICES, Phase.RING, Phase.MERGE, Phase.COMMIT])
async def test_a_connection_that_breaks_during_bring_up_holds_nobody_up(place: Place, phase: Phase) -> None:
    async with breakable(place, environment={"BRINGUP_SIM_START_SECONDS": "0.2"}) as (job, break_it):
        order = [client_id for client_id in range(N) if client_id != 1]
        job.start(*order)
        if phase is Phase.RENDEZVOUS:
            await job.all_have_registered_but(1)
            break_it()
            job.start(1)
        else:
            job.start(1)
            peer = job.peers[CLIENT]
            while peer.machine.phase not in (phase, Phase.READY):  # noqa: ASYNC110 - pure: it tells nobody
                await asyncio.sleep(0)
            break_it()
        await job.ups()
        await all_meet(job)


async def save_together(job: JobOfPeers, first_step: int) -> int:
    """Let all clients run from a step on until they are to save; returns the step, the same for all."""

    async def run(peer: CoordinationPeer) -> int:
        step = first_step
        while True:
            answer = peer.preemption.reached(step)
            if answer if isinstance(answer, bool) else await asyncio.wrap_future(answer):
                return step
            step += 1
            await asyncio.sleep(0)

    steps = await asyncio.gather(*map(run, job.peers.values()))
    assert len(set(steps)) == 1
    return steps[0]


@pytest.mark.parametrize("seed", range(3))
async def test_whenever_connections_break_no_message_is_lost(place: Place, seed: int) -> None:
    """Each agreement takes two messages to every client and one back: whichever is lost hangs it."""
    rng = random.Random(seed)
    async with breakable(place) as (job, break_it):
        job.start()
        await job.ups()
        step = 0
        for _ in range(30):
            job.peers[CLIENT].preemption.announce(0.0, "a test")
            saving = asyncio.create_task(save_together(job, step))
            for _ in range(rng.randint(0, 20)):
                await asyncio.sleep(0)
            break_it()
            step = await saving + 1
        assert reconnects_seen_by(job, CLIENT) > 5
        assert all(not peer.failed.is_set for peer in job.peers.values())


async def test_a_verdict_that_finds_a_client_away_reaches_it_when_it_comes_back(place: Place) -> None:
    async with breakable(place) as (job, break_it):
        job.start()
        await job.ups()
        break_it()
        job.peers[2].abort(ValueError("a bug"))
        for error in await job.failures(but=(2,)):
            assert isinstance(error, PeerFailedError)
            assert (error.client_id, error.cause) == (2, "ValueError: a bug")
