"""What takes a process too long is found as what it does to a job: heartbeats that come too late.

Each defect is planted in what ships, and found; without it the same job is sound.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bringup.transport import codec

from . import world as worlds
from .network import Latency
from .process import Process
from .world import World

HERE = Latency(0.000001, 0.000005)
SEED = 3
Planting = Callable[[pytest.MonkeyPatch], None]


def tell_all_at_once(patch: pytest.MonkeyPatch) -> None:
    """Formed is encoded anew for every client, and all of them are told in one go."""
    patch.setattr(worlds, "TOLD_AT_ONCE", 1_000_000)
    patch.setattr(codec, "_once", lambda shared, make: make(shared))


def block_the_loop(patch: pytest.MonkeyPatch) -> None:
    """What belongs on another thread runs on the loop that answers heartbeats: the devices, when they come up."""
    shipped = Process._backend_answers

    def answers(self: Process, tag: object) -> None:
        if self.client_id == 5:
            self.work(4.0)
        shipped(self, tag)  # type: ignore[arg-type]

    patch.setattr(Process, "_backend_answers", answers)


def come_up_later(process: Process) -> None:
    process.backend_seconds = 0.5


def large_job() -> None:
    """Somewhat smaller than those that are used, and less patient."""
    with World(SEED, 400, latency=HERE, heartbeat_interval=0.15, heartbeat_timeout=0.35) as world:
        world.bring_up()
        world.run(until=world.clock.now + 1.0)
        assert all(process.failed is None for process in world.processes)


def small_job() -> None:
    with World(SEED, 10, heartbeat_interval=0.5, heartbeat_timeout=2.0) as world:
        world.prepare = come_up_later
        world.bring_up()
        world.run(until=world.clock.now + 3.0)
        assert all(process.failed is None for process in world.processes)


PLANTED: dict[Planting, Callable[[], None]] = {tell_all_at_once: large_job, block_the_loop: small_job}
"""Each defect with the job that finds it."""


@pytest.mark.parametrize(("plant", "job"), PLANTED.items(), ids=[plant.__name__ for plant in PLANTED])
def test_a_step_that_takes_too_long_is_found(plant: Planting, job: Callable[[], None]) -> None:
    job()
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        with pytest.raises(AssertionError, match=r"(?s)no heartbeat for .* lives and could be reached"):
            job()


def test_what_comes_to_a_busy_process_waits_for_its_turn() -> None:
    with World(SEED, 2) as world:
        process = world.bring_up()[1]
        began = max(world.clock.now, process.busy_until)
        seen: list[tuple[str, float]] = []
        process.work(0.5)
        process.later(0.1, lambda: process.work(0.25))
        process.later(0.2, lambda: seen.append(("second", world.clock.now)))
        world.run(until=began + 1.0)
        [(_, at)] = seen
        assert at == pytest.approx(began + 0.75, abs=world.patience)


def test_what_is_said_after_work_leaves_after_it() -> None:
    with World(SEED, 3) as world:
        world.bring_up()
        one, other = world.processes[1], world.processes[2]
        one.work(3.0)
        busy_until = one.busy_until
        one.wish_leave()
        other.wish_leave()
        world.processes[0].wish_leave()
        world.run_until(lambda: not world.running, limit=30.0)
        assert all(p.left is not None and p.left[0] >= busy_until for p in (one, other))
