"""Jobs of thousands of clients, in groups: they come up while connections break, and all hear of a death at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bringup.errors import PeerFailedError
from bringup.runtime.machines.groups import group_size_of

from .fail_together import rare_collections
from .faults import BreakConnection, Stop
from .network import Latency
from .world import World

PEERS = 2000
VICTIM = 1234
HERE = Latency(0.000001, 0.000005)
"""Between processes of one machine."""


@pytest.fixture(autouse=True)
def few_collections() -> Iterator[None]:
    with rare_collections():
        yield


def assert_all_up(world: World) -> None:
    assert all(process.up is not None for process in world.processes)
    assert len({process.up[1].table.digest for process in world.processes if process.up}) == 1


def test_thousands_of_clients() -> None:
    with World(7, PEERS, latency=HERE, heartbeat_interval=5.0, heartbeat_timeout=30.0) as world:
        world.group_size = group_size_of(PEERS)
        world.start_all(within=1.0)
        for moment in (0.2, 0.5, 0.8):
            victims = tuple(sorted(world.rng.sample(range(1, PEERS), 100)))
            world.clock.at(moment, world.strike, BreakConnection(victims, times=2, period=0.05))
            world.clock.at(moment, world.strike, Stop(victims[:10], seconds=0.5))
        world.settle(limit=60.0)
        assert_all_up(world)

        victim = world.processes[VICTIM]
        victim.crash()
        crashed_at = world.clock.now
        world.run(until=crashed_at + 1.0 + world.patience)
        for process in world.processes:
            if process is not victim:
                assert process.failed is not None, f"{process.name} was not told"
                told_at, error = process.failed
                assert isinstance(error, PeerFailedError)
                assert error.client_id == VICTIM
                assert told_at <= crashed_at + 0.02 + 4 * HERE.worst + world.patience


def test_the_work_of_the_largest_jobs_is_in_proportion_to_their_clients() -> None:
    """Of 10,000, in simulated time and events; the real time, some 10 s on one core, is the same for each client."""
    with World(7, 10_000, latency=HERE, addresses=None) as world:
        world.group_size = group_size_of(10_000)
        world.start_all(within=1.0)
        world.settle(limit=30.0)
        assert_all_up(world)
        assert world.clock.steps < 60 * 10_000
        assert world.processes[0].busy_seconds < 0.002 * 10_000
