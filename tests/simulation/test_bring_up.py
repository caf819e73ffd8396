"""Jobs in which nobody fails come up, whatever the order, the delays and the devices."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bringup.runtime.machines.phases import Phase

from .world import World

SEEDS = range(30)


def assert_all_up(world: World) -> None:
    for process in world.processes:
        assert process.up is not None, f"{process.name} is not up, but {process.machine.phase}"
        assert process.failed is None
    assert len({process.up[1].table.digest for process in world.processes if process.up}) == 1
    assert len({process.up[1].job_id for process in world.processes if process.up}) == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_64_clients_come_up_in_any_order(seed: int) -> None:
    with World(seed, 64) as world:
        world.start_all(within=world.rng.choice([0.0, 0.01, 1.0, 20.0]))
        world.settle(limit=30.0)
        assert_all_up(world)


@pytest.mark.parametrize("seed", SEEDS)
def test_client_0_may_come_last_by_minutes(seed: int) -> None:
    with World(seed, 64) as world:
        world.start_all(within=1.0, absent=(0,))
        late = world.start(0, at=world.rng.uniform(60.0, 290.0))
        world.settle(limit=300.0)
        assert_all_up(world)
        assert world.clock.now < late.began + 1.5


@pytest.mark.parametrize("seed", SEEDS)
def test_slow_devices_hold_up_everybody_and_nobody_fails(seed: int) -> None:
    with World(seed, 16) as world:
        for process in world.start_all(within=2.0):
            process.backend_seconds = world.rng.choice([0.0, 0.001, 3.0, 45.0])
        world.settle(limit=60.0)
        assert_all_up(world)


@pytest.mark.parametrize("num_clients", [1, 2, 3])
@pytest.mark.parametrize("seed", range(10))
def test_small_jobs_come_up(seed: int, num_clients: int) -> None:
    with World(seed, num_clients) as world:
        world.start_all(within=1.0)
        world.settle(limit=5.0)
        assert_all_up(world)


def test_a_job_that_is_up_stays_up() -> None:
    with World(1, 16) as world:
        world.bring_up()
        world.run(until=600.0)
        assert_all_up(world)
        assert {process.machine.phase for process in world.processes} == {Phase.READY}


def trace_of(seed: int) -> str:
    world = World(seed, 24)
    for process in world.start_all(within=3.0):
        process.backend_seconds = world.rng.uniform(0.0, 5.0)
    victim = world.processes[world.rng.randrange(24)]
    world.clock.at(world.rng.uniform(0.0, 8.0), victim.crash)
    world.run(until=30.0)
    return world.clock.trace


def test_a_seed_decides_everything() -> None:
    assert trace_of(1) == trace_of(1)
    assert trace_of(1) != trace_of(2)


def test_the_hash_seed_decides_nothing() -> None:
    script = "from tests.simulation.test_bring_up import trace_of; print(*map(trace_of, range(8)))"
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    traces = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": root},
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        ).stdout
        for hash_seed in ("0", "1", "4242")
    }
    assert len(traces) == 1
    assert len(traces.pop().split()) == 8
