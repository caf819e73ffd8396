"""The roster and the merge over the rings of a job, in groups of any size."""

from __future__ import annotations

import pytest

from bringup.transport.collectives.schedule import RingOf

from .faults import BreakLink
from .network import Latency
from .test_bring_up import assert_all_up
from .world import World

HOP = 0.001
EVEN = Latency(HOP, HOP)


def brought_up(world: World, group_size: int) -> None:
    world.group_size = group_size
    world.start_all()
    world.settle(limit=30.0)
    assert_all_up(world)


@pytest.mark.parametrize("group_size", [0, 2, 3, 5, 7, 20])
def test_the_table_is_the_same_however_the_clients_are_grouped(group_size: int) -> None:
    with World(3, 41) as world:
        brought_up(world, group_size)
        assert world.processes[40].up is not None
        assert world.processes[40].up[1].table.core_ids.tolist() == world.core_ids
        leaders = [p for p in world.processes if p.ring_end is not None and RingOf.LEADERS in p.ring_end.places]
        assert len(leaders) == (41 // group_size if group_size else 0)


def test_a_merge_in_groups_takes_four_roots_of_hops() -> None:
    """It is one collection: gathered around the rings, and handed out along them, but not back to where it began."""

    def merge_of(group_size: int) -> float:
        with World(1, 64, latency=EVEN) as world:
            brought_up(world, group_size)
            slowest = {span.name: span for process in world.processes if process.up for span in process.up[1].slowest}
            return slowest["merge"].duration / HOP

    assert merge_of(0) == pytest.approx(2 * 64 - 1, abs=1)
    assert merge_of(8) == pytest.approx(2 * (8 + 8) - 2, abs=1)


@pytest.mark.parametrize("seed", range(8))
def test_the_link_of_a_leader_that_breaks_is_told_with_the_client_at_its_end(seed: int) -> None:
    with World(seed, 12) as world:
        brought_up(world, 3)
        leader = world.processes[world.rng.choice([0, 3, 6, 9])]
        world.strike(BreakLink(leader.client_id))
        world.run(until=world.clock.now + 1.0 + world.patience)
        assert leader.ring_end is not None
        assert world.struck["BreakLink"] == 1
        ends = {place.right.client_id for place in leader.ring_end.places.values()} | {leader.client_id}
        assert {
            error.client_id for process in world.processes if process.failed for error in [process.failed[1]]
        } <= ends
