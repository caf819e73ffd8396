"""Connections that break or lead nowhere while both ends live: the session goes on, and nobody is blamed."""

from __future__ import annotations

import pytest

from bringup.errors import CoordinatorLostError, PeerFailedError

from .faults import BreakConnection, CutOff
from .network import DELAY_MAX, EVER, RECONNECT_MAX
from .world import World

SEEDS = range(10)
N = 8
VICTIM = 5
TIMEOUT = 10.0
INTERVAL = 1.0
ALL_BUT_THE_HOST = tuple(range(1, N))


def assert_nobody_failed(world: World) -> None:
    assert [process.failed for process in world.processes if process.failed] == []


def reconnects_seen(world: World, observer: int, client_id: int) -> int:
    return world.processes[observer].machine.state_of(client_id).reconnects


@pytest.mark.parametrize("seed", SEEDS)
def test_flaps_are_forgiven_and_counted(seed: int) -> None:
    with World(seed, N) as world:
        world.bring_up()
        for second in range(5):
            world.clock.after(second, world.strike, BreakConnection((VICTIM,), 1, 0.0))
        world.run(until=world.clock.now + 30.0)
        assert_nobody_failed(world)
        assert reconnects_seen(world, 1, VICTIM) == 5


@pytest.mark.parametrize("seed", SEEDS)
def test_connections_that_break_all_through_the_bring_up_hold_nobody_up(seed: int) -> None:
    with World(seed, N) as world:
        world.start_all(within=0.05)
        world.clock.after(0.02, world.strike, BreakConnection(ALL_BUT_THE_HOST, times=20, period=0.02))
        world.settle(limit=5.0)
        assert_nobody_failed(world)
        assert all(process.up is not None for process in world.processes)


@pytest.mark.parametrize("way", ["both ways", "to it", "from it"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_cut_shorter_than_the_timeout_is_forgiven(seed: int, way: str) -> None:
    with World(seed, N) as world:
        world.bring_up()
        seconds = world.rng.uniform(1.0, TIMEOUT - RECONNECT_MAX - INTERVAL)
        world.strike(CutOff(VICTIM, way, seconds))
        world.run(until=world.clock.now + 60.0)
        assert_nobody_failed(world)


@pytest.mark.parametrize("way", ["both ways", "to it", "from it"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_cut_longer_than_the_timeout_is_told_to_both_sides_in_time(seed: int, way: str) -> None:
    with World(seed, N) as world:
        world.bring_up()
        cut_at = world.clock.now
        world.strike(CutOff(VICTIM, way, EVER))
        world.run(until=cut_at + 3 * TIMEOUT)
        for process in world.processes:
            assert process.failed is not None, f"{process.name} was not told"
            told_at, error = process.failed
            assert isinstance(error, PeerFailedError)
            # The verdict reaches the victim, too, where nothing lies on its way.
            has_lost_it = process.client_id == VICTIM and (way != "from it" or error.client_id == 0)
            assert type(error) is (CoordinatorLostError if has_lost_it else PeerFailedError)
            assert error.client_id == (0 if has_lost_it else VICTIM)
            assert cut_at + TIMEOUT - INTERVAL <= told_at <= cut_at + TIMEOUT + INTERVAL + 1.0


@pytest.mark.parametrize("seed", SEEDS)
def test_a_client_that_dies_while_its_connection_is_broken_is_told_once_it_can_be_asked(seed: int) -> None:
    with World(seed, N) as world:
        world.bring_up()
        world.strike(CutOff(VICTIM, "both ways", 3.0))
        world.strike(BreakConnection((VICTIM,), 1, 0.0))
        world.run(until=world.clock.now + 1.5)
        world.processes[VICTIM].crash()
        world.run(until=world.clock.now + 1.5)
        healed_at = world.clock.now
        world.run(until=healed_at + TIMEOUT)
        for process in world.processes:
            if process.client_id != VICTIM:
                assert process.failed is not None, f"{process.name} was not told"
                told_at, error = process.failed
                assert isinstance(error, PeerFailedError)
                assert "process died" in error.cause
                # A question that was on its way is waited for; the next one comes soon after it.
                assert told_at <= healed_at + 1.0 + 0.25 + 0.02 + 5 * DELAY_MAX


@pytest.mark.parametrize("seed", SEEDS)
def test_a_coordinator_that_was_started_anew_is_not_taken_for_the_old_one(seed: int) -> None:
    with World(seed, N) as world:
        world.bring_up()
        crashed_at = world.clock.now
        world.processes[0].crash()
        world.start(0, at=crashed_at)
        world.run(until=crashed_at + 1.0)
        for process in world.processes[1:N]:
            assert process.failed is not None, f"{process.name} was not told"
            told_at, error = process.failed
            assert isinstance(error, CoordinatorLostError)
            assert told_at <= crashed_at + 6 * DELAY_MAX
