"""The end of a job that came up: all leave together, or hear who did not."""

from __future__ import annotations

import pytest

from bringup.errors import PeerFailedError
from bringup.runtime.machines.id_ranges import unpack_ids
from bringup.runtime.machines.phases import Phase
from bringup.transport.wire.services import Done, Refusal

from .process import Process
from .program import Program
from .scenario import Step
from .test_faults import ROUND_TRIP, VICTIM, N, assert_all_blame, run_into
from .world import World

SEEDS = range(15)


@pytest.mark.parametrize("seed", SEEDS)
def test_all_leave_together(seed: int) -> None:
    with World(seed, N) as world:
        wishes = []
        for process in world.bring_up():
            wishes.append(world.clock.now + world.rng.uniform(0.0, 20.0))
            world.clock.at(wishes[-1], process.wish_leave)
        world.run(until=max(wishes) + 1.0)
        for process in world.processes:
            assert process.failed is None
            assert process.left is not None
            told_at, left = process.left
            assert left.missing == ()
            assert max(wishes) <= told_at <= max(wishes) + ROUND_TRIP


@pytest.mark.parametrize("missing", [(VICTIM,), (0,), (0, 1, 11)])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_client_that_never_comes_is_named_when_the_time_is_over(seed: int, missing: tuple[int, ...]) -> None:
    with World(seed, N, shutdown_timeout=5.0) as world:
        wishes = []
        for process in world.bring_up():
            if process.client_id not in missing:
                wishes.append(world.clock.now + world.rng.uniform(0.0, 2.0))
                world.clock.at(wishes[-1], process.wish_leave)
        world.run(until=min(wishes) + 10.0)
        for process in world.processes:
            if process.client_id in missing:
                assert process.failed is not None
                error = process.failed[1]
                assert isinstance(error, PeerFailedError)
                assert "it shut down" in error.cause
            else:
                assert process.left is not None
                assert process.left[1].missing == missing
                assert process.left[0] <= min(wishes) + 5.0 + 0.001 + ROUND_TRIP


@pytest.mark.parametrize("seed", SEEDS)
def test_a_crash_while_others_leave_is_told(seed: int) -> None:
    with World(seed, N) as world:
        run_into(world, 1, Phase.LEAVING)
        world.run(until=world.clock.now + 1.0)
        crashed_at = world.clock.now
        next(process for process in world.processes if process.client_id == VICTIM).crash()
        world.run(until=crashed_at + 1.0)
        assert_all_blame(world, VICTIM, "process died")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_crash_of_one_that_is_leaving_holds_nobody_up(seed: int) -> None:
    with World(seed, N) as world:
        run_into(world, VICTIM, Phase.LEAVING)
        world.run(until=world.clock.now + 1.0)
        for process in world.processes:
            if process.client_id == VICTIM:
                process.crash()
            else:
                process.wish_leave()
        world.run(until=world.clock.now + 1.0)
        assert all(process.left is not None for process in world.processes if process.client_id != VICTIM)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_barrier_lets_nobody_through_before_the_last_has_come(seed: int) -> None:
    with World(seed, N) as world:
        arrivals = []
        for process in world.bring_up():
            for ticket in range(3):
                arrivals.append(world.clock.now + 10.0 * ticket + world.rng.uniform(0.0, 9.0))
                world.clock.at(arrivals[-1], process.enter_barrier, f"step {ticket}")
        world.run(until=max(arrivals) + 1.0)
        for process in world.processes:
            assert [reply for _, reply in process.barriers] == [Done(1), Done(2), Done(3)]
            for ticket, (passed_at, _) in enumerate(process.barriers):
                last = max(arrivals[ticket::3])
                assert last <= passed_at <= last + ROUND_TRIP


@pytest.mark.parametrize("victim", [0, VICTIM])
@pytest.mark.parametrize("seed", SEEDS)
def test_nobody_waits_at_a_barrier_for_one_who_leaves(seed: int, victim: int) -> None:
    """And after all have heard of it they still leave together."""
    with World(seed, N) as world:
        processes = world.bring_up()
        leaver = next(process for process in processes if process.client_id == victim)
        others = [process for process in processes if process is not leaver]
        began = world.clock.now
        for process in others:
            world.clock.at(began + world.rng.uniform(0.0, 2.0), process.enter_barrier, "step")
            process.on_barrier = lambda process, _: process.wish_leave()
        leaver.later(1.0, leaver.wish_leave)
        world.run(until=began + 4.0)
        for process in others:
            [(told_at, reply)] = process.barriers
            assert isinstance(reply, Refusal)
            assert reply.error == "PeerFailedError"
            assert victim in unpack_ids(reply.missing)
            assert told_at <= began + 2.0 + ROUND_TRIP
            assert "is leaving the job (shutdown); client" in reply.text
        assert all(process.left is not None and not process.left[1].missing for process in processes)
        assert all(process.machine.leavers == (0, N - 1) for process in processes)


@pytest.mark.parametrize("seed", SEEDS)
def test_programs_of_uneven_length_end_in_order(seed: int) -> None:
    """Whoever has fewer steps leaves, and the others are told so wherever they wait for it, and then leave as well."""
    with World(seed, N, shutdown_timeout=60.0) as world:
        counts = [world.rng.randint(3, 10) for _ in range(N)]
        steps = [Step(name, 0.5, None) for name in "abacabaaba"]

        def prepare(process: Process) -> None:
            Program(tuple(steps[: counts[process.client_id]]), think=0.5).prepare(process)

        world.prepare = prepare
        world.start_all(within=1.0)
        world.run(until=30.0)
        for process in world.processes:
            assert process.left is not None, process.failed
            assert not process.left[1].missing
            kinds = [type(reply) for _, reply in process.barriers]
            assert kinds[: min(counts)] == [Done] * min(counts)
            assert {reply.error for _, reply in process.barriers if isinstance(reply, Refusal)} <= {"PeerFailedError"}
        assert world.clock.now < 60.0


@pytest.mark.parametrize("seed", SEEDS)
def test_a_barrier_that_times_out_names_who_did_not_come(seed: int) -> None:
    with World(seed, N) as world:
        for process in world.bring_up():
            if process.client_id != VICTIM:
                process.enter_barrier("step", 3.0)
        began = world.clock.now
        world.run(until=began + 5.0)
        for process in world.processes:
            if process.client_id != VICTIM:
                [(told_at, reply)] = process.barriers
                assert isinstance(reply, Refusal)
                assert (reply.error, reply.missing) == ("BarrierTimeoutError", (VICTIM, VICTIM))
                assert began + 3.0 <= told_at <= began + 3.0 + 0.001 + ROUND_TRIP
