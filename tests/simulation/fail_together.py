"""`python -m tests.simulation.fail_together`: how soon the survivors of a large job hear that one client has died."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click

from bringup.errors import PeerFailedError
from bringup.runtime.machines.groups import group_size_of

from .network import Latency
from .world import World

CLUSTER = Latency(0.00002, 0.0001)
"""Between hosts of one cluster, one way."""

_SEED = 13
_LIMIT = 5.0


@dataclass(frozen=True, slots=True)
class Told:
    """The times of a death's news, in seconds since the client died.

    Attributes:
        judged: when the coordinator had come to its verdict.
        median: when half of the survivors had been told.
        last: when all had but client 0.
        host: when client 0 had.
    """

    judged: float
    median: float
    last: float
    host: float


def tell_survivors(num_clients: int, group_size: int, victim: int) -> Told:
    """Bring a job up, and kill one client.

    Raises:
        AssertionError: a survivor was not told, or of something else.
    """
    settings = {
        "heartbeat_interval": 5.0,
        "heartbeat_timeout": 30.0,
        "initialization_timeout": 300.0,
        "addresses": None,
    }
    with rare_collections(), World(_SEED, num_clients, latency=CLUSTER, **settings) as world:
        world.group_size = group_size
        world.start_all(within=1.0)
        world.settle(limit=300.0)
        died_at = max(world.clock.now, max(process.busy_until for process in world.processes)) + 1.0
        world.run(until=died_at)
        culprit = world.first(victim)
        assert culprit is not None
        culprit.crash()
        world.run(until=died_at + _LIMIT)
        told: list[float] = []
        for process in world.processes:
            if process is not culprit:
                assert process.failed is not None, f"{process.name} was not told within {_LIMIT} s"
                at, error = process.failed
                assert isinstance(error, PeerFailedError), f"{process.name} was told {error}"
                assert error.client_id == victim, f"{process.name} was told {error}"
                told.append(at - died_at)
        host, *others = told
        return Told(world.jobs[0].verdicts[0][0] - died_at, sorted(others)[len(others) // 2], max(others), host)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Look for garbage rarely: nothing of a world is before its end, and to look takes as long as all the rest."""
    thresholds = gc.get_threshold()
    gc.set_threshold(100_000, 50, 50)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


@click.command()
@click.option("--clients", default=(1000, 5000), multiple=True, show_default=True, help="How many the job has.")
def main(clients: tuple[int, ...]) -> None:
    """Print the figures, by client 0 alone, and through the groups."""
    click.echo("clients  groups of   verdict, ms   half told, ms   all others told, ms   client 0 told, ms")
    for num_clients in clients:
        for group_size in (0, group_size_of(num_clients)):
            told = tell_survivors(num_clients, group_size, num_clients // 3)
            times = (1000 * seconds for seconds in (told.judged, told.median, told.last, told.host))
            shown = "{:14.1f}{:16.1f}{:22.1f}{:20.1f}".format(*times)
            click.echo(f"{num_clients:7}{group_size or 'none':>11}{shown}")


if __name__ == "__main__":
    main()
