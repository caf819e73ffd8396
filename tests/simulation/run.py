"""One run of one seed: a safety phase with faults, a liveness phase without, and no leftovers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bringup.transport.wire.services import Done

from .network import EVER
from .process import Process
from .program import Program
from .scenario import Scenario, Step, draw
from .world import World

_LIVENESS_STEPS = (Step("all are here", 0.1, None),)
_KILLED_WHILE_STOPPED = 0.25
_ALONE_EVERY = 4
"""Of this many seeds one has a second job although nothing is left that it could meet: such jobs are all alike, and
take as long as what they follow."""


@dataclass(frozen=True, slots=True)
class Report:
    """The events and outcomes of one run.

    Attributes:
        seed: whose run it was.
        steps: how many things happened.
        seconds: the simulated time.
        faults: how many faults of each kind struck.
        outcomes: how many processes of the safety phase ended in which way.
    """

    seed: int
    steps: int
    seconds: float
    faults: Counter[str]
    outcomes: Counter[str]


def run_seed(
    seed: int,
    num_clients: int,
    watch: Callable[[World], None] = lambda world: None,
    *,
    group_size: int | None = None,
) -> Report:
    """Run one seed.

    Args:
        seed: decides everything.
        num_clients: of the job.
        watch: told of the world before anything happens in it.
        group_size: the clients of a group, about; 0 for one group of all; `None` for what the seed draws.

    Raises:
        AssertionError: something that must hold does not; its notes hold the history.
    """
    scenario = draw(seed, num_clients, group_size)
    world = World(seed, num_clients, latency=scenario.latency, **scenario.settings)
    watch(world)
    with world:
        world.clock.note("scenario", str(scenario))
        _live_through_faults(world, scenario)
        outcomes = Counter(_outcome(process) for process in world.processes)
        _come_up_again(world)
        _leave_nothing(world)
    return Report(seed, world.clock.steps, world.clock.now, _struck(world, scenario), outcomes)


def _struck(world: World, scenario: Scenario) -> Counter[str]:
    names = {"Backend": scenario.backends, "Missing": scenario.missing, "Late": scenario.late}
    names |= {"Early": scenario.early, "Traffic": scenario.traffic, "Strict": scenario.strict}
    names |= {"FirstDials": scenario.first_dials, "Stall": scenario.stallers}
    names |= {"Garble": (*scenario.garblers, *scenario.misprinters), "Stay": scenario.stayers}
    names |= {"DisputedCore": scenario.has_disputed_cores}
    return world.struck + Counter({name: 1 for name, was_drawn in names.items() if was_drawn})


def _outcome(process: Process) -> str:
    if process.left is not None:
        return "left in order" if not process.left[1].missing else "left without some"
    return "killed or stopped" if process.failed is None else type(process.failed[1]).__name__


# The safety phase.


def _live_through_faults(world: World, scenario: Scenario) -> None:
    world.stall_timeout, world.group_size = scenario.stall_timeout, scenario.group_size
    program = Program(
        scenario.steps,
        scenario.think,
        scenario.stayers,
        scenario.stallers,
        scenario.work,
        scenario.traffic,
        scenario.early,
    )
    world.prepare = partial(_prepare, program, scenario)
    world.garblers.update(scenario.garblers)
    world.misprinters.update(scenario.misprinters)
    if scenario.has_disputed_cores:
        world.dispute_cores()
    for client_id in range(world.num_clients):
        if client_id not in scenario.missing:
            at = scenario.late.get(client_id, world.rng.uniform(0, scenario.spread))
            world.start(client_id, at=at, fails_when_unhealthy=client_id in scenario.strict)
    for planned in scenario.plan:
        moment = planned.moment
        if moment.phase is None:
            world.clock.at(moment.after, world.strike, planned.fault)
        elif (process := world.first(moment.client)) is not None:
            strike = partial(world.clock.after, moment.after, world.strike, planned.fault)
            process.on_phase(moment.phase, strike)
    world.run_until(lambda: not world.running, scenario.horizon)
    for job in world.jobs:
        job.store.check()


def _prepare(program: Program, scenario: Scenario, process: Process) -> None:
    program.prepare(process)
    process.backend_seconds = process.world.rng.uniform(0, scenario.backend_max)
    process.dials.troubles.extend(scenario.first_dials.get(process.client_id, ()))
    trouble = scenario.backends.get(process.client_id)
    if trouble is not None:
        process.backend_seconds, process.backend_error = trouble.seconds, trouble.error


# The liveness phase.


def _come_up_again(world: World) -> None:
    """Faults are over. What is left of the job is killed, but for some that hang on a host that nobody can get at.

    The next job must come up beside those.
    """
    world.clock.note("liveness", "all processes of the job are started again")
    world.is_calm = True
    world.network.heal_all()
    world.garblers.clear()
    world.misprinters.clear()
    world.settle_disputes()
    zombies = _kill_the_rest(world)
    if not zombies and world.seed % _ALONE_EVERY:
        return
    world.prepare = Program(_LIVENESS_STEPS, think=0.1).prepare
    # The merge goes twice around a ring of all clients, where there are no groups.
    timeout = 60.0 + 2 * world.num_clients * world.network.latency.high
    processes = world.start_all(within=world.rng.choice([0.0, 0.1, 1.0]), initialization_timeout=timeout)
    for zombie in zombies:
        world.running[zombie] = None
        world.clock.after(world.rng.uniform(0.0, 1.5), zombie.resume)
    silence = processes[0].config.heartbeat_timeout
    world.run_until(lambda: not world.running, world.clock.now + timeout + 3 * silence + 10.0)
    for process in processes:
        assert process.up is not None, f"{process.name} does not come up though there are no faults: {process.failed}"
        assert process.failed is None, f"{process.name} fails though there are no faults: {process.failed}"
        assert process.left is not None, f"{process.name} does not leave though there are no faults"
        assert not process.left[1].missing, f"{process.name} leaves without clients {process.left[1].missing}"
        assert [type(reply) for _, reply in process.barriers] == [Done], f"{process.name}: {process.barriers}"
    assert len({process.up[1].job_id for process in processes if process.up}) == 1, "they are not all in one job"


def _kill_the_rest(world: World) -> list[Process]:
    zombies = []
    for process in world.processes:
        if process.gone_at < EVER:
            continue
        can_stay = process.is_stopped and process.client_id != 0 and process.job is not None
        if can_stay and not process.is_in_dark and world.rng.random() > _KILLED_WHILE_STOPPED:
            zombies.append(process)
        else:
            process.crash()
    return zombies


# The end.


def _leave_nothing(world: World) -> None:
    """Check that all has ended: what is still to come does not stir anybody."""
    num_notes = world.clock.num_notes
    world.clock.drain()
    assert world.clock.num_notes == num_notes, "something still happens after the end"
    for process in world.processes:
        assert process.gone_at < EVER, f"{process.name} has not ended"
        assert not process.connections, f"{process.name} has connections open"
        assert process.link.machine.is_closed, f"{process.name} has not ended its session"
        assert not process.served, f"{process.name} has connections of clients open"
        assert process.ring_end is None or process.ring_end.is_closed, f"{process.name} has links open"
        for runner in (process.peer, process.coordinator):
            assert runner is None or runner.is_over, f"{process.name} has a driver that still runs"
