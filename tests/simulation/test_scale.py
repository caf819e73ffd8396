"""One job of 2,000 clients: it comes up while connections break and clients stall, and all hear of a death at once.

More are the same code, and minutes.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from bringup.errors import PeerFailedError

from .faults import BreakConnection, Stop
from .network import Latency
from .world import World

PEERS = 2000
VICTIM = 1234
HERE = Latency(0.000001, 0.000005)
"""Between processes of one machine: the sums of the merge go once along all clients, and once more."""


@pytest.fixture
def rare_collections() -> Iterator[None]:
    """Nothing of a world is garbage before its end; to look for it takes as long as all the rest."""
    thresholds = gc.get_threshold()
    gc.set_threshold(100_000, 50, 50)
    yield
    gc.set_threshold(*thresholds)


@pytest.mark.usefixtures("rare_collections")
def test_thousands_of_clients() -> None:
    with World(7, PEERS, latency=HERE, heartbeat_interval=5.0, heartbeat_timeout=30.0) as world:
        world.start_all(within=1.0)
        for moment in (0.2, 0.5, 0.8):
            victims = tuple(sorted(world.rng.sample(range(1, PEERS), 100)))
            world.clock.at(moment, world.strike, BreakConnection(victims, times=2, period=0.05))
            world.clock.at(moment, world.strike, Stop(victims[:10], seconds=0.5))
        world.settle(limit=60.0)
        assert all(process.up is not None for process in world.processes)
        assert len({process.up[1].table.digest for process in world.processes if process.up}) == 1

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
