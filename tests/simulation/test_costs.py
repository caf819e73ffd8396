"""Work that takes a process too long shows in the simulation as late heartbeats.

Each defect is planted in what ships, and found; without it the same job is sound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from bringup.runtime.machines.coordinator import events as ev
from bringup.runtime.machines.coordinator.machine import CoordinatorMachine
from bringup.runtime.machines.coordinator.members import MemberState
from bringup.runtime.machines.kv import store as kv_store
from bringup.runtime.machines.kv.store import StoreMachine
from bringup.transport.wire.messages import Formed
from bringup.transport.wire.services import Items, ListKeys, ServiceReply

from . import costs
from .costs import Meter
from .faults import BreakConnection
from .network import Latency
from .process import Process
from .world import World

KEYS = 30_000
NO_REASON = (
    "(?s)lives and could be reached.*no heartbeat for|no heartbeat for.*lives and could be reached|answers nobody"
)
CLIENT_SECONDS_MAX = 0.004
"""Of client 0's work for each client of its job, from the beginning until all have been up for a second."""
HERE = Latency(0.000001, 0.000005)
SEED = 3
Planting = Callable[[pytest.MonkeyPatch], None]


def send_the_roster_to_all(patch: pytest.MonkeyPatch) -> None:
    """Client 0 itself tells every client the whole roster, which an encoder in Python encodes anew for each."""
    shipped = CoordinatorMachine._formed_for

    def formed_for(self: CoordinatorMachine, member: MemberState) -> Formed:
        assert self._roster is not None
        return replace(shipped(self, member), roster=self._roster.data)

    patch.setattr(costs, "ENCODED_BYTE", 0.3e-6)
    patch.setattr(CoordinatorMachine, "_formed_for", formed_for)


def block_the_loop(patch: pytest.MonkeyPatch) -> None:
    """The bring-up of devices runs on the loop that answers heartbeats, not on a thread of its own."""
    shipped = Process._backend_answers

    def answers(self: Process, tag: object) -> None:
        if self.client_id == 5:
            self.work(4.0)
        shipped(self, tag)  # type: ignore[arg-type]

    patch.setattr(Process, "_backend_answers", answers)


def list_all_in_one_step(patch: pytest.MonkeyPatch) -> None:
    """A list is answered at once, however many keys there are."""
    shipped = StoreMachine._list

    def answer(self: StoreMachine, session: int, request: ListKeys) -> list[tuple[int, ServiceReply]]:
        replies = shipped(self, session, request)
        while self._lists.count_of(session):
            replies += self._next_items(session)
        return replies

    patch.setitem(kv_store._HANDLERS, ListKeys, answer)


def all_live(world: World) -> None:
    for process in world.processes:
        assert process.failed is None, f"{process.name}, which lives and could be reached, fails: {process.failed[1]}"


def check_longest_task(world: World, seconds: float) -> None:
    """Check that client 0 was at nothing for longer: a coordinator that is busy is late with every answer."""
    longest = world.jobs[0].host.longest_task
    assert longest < seconds, f"client 0 answers nobody for {longest:.3f} s"


def come_up_later(process: Process) -> None:
    process.backend_seconds = 0.5


def large_job() -> None:
    """Somewhat smaller than those that are used, and less patient."""
    with World(SEED, 400, latency=HERE, heartbeat_interval=0.15, heartbeat_timeout=0.35) as world:
        world.bring_up()
        world.run(until=world.clock.now + 1.0)
        all_live(world)
        busy = world.jobs[0].host.busy_seconds
        assert busy < CLIENT_SECONDS_MAX * 400, f"client 0 answers nobody for {busy:.3f} s in all"


def small_job() -> None:
    with World(SEED, 10, heartbeat_interval=0.5, heartbeat_timeout=2.0) as world:
        world.prepare = come_up_later
        world.bring_up()
        world.run(until=world.clock.now + 3.0)
        all_live(world)


def job_with_many_keys() -> None:
    """Each client lists all keys, at once, as programs do that come out of a barrier."""
    with World(SEED, 10, latency=HERE, heartbeat_interval=0.04, heartbeat_timeout=0.12) as world:
        world.is_metered = True
        processes = world.bring_up()
        services = world.jobs[0].services
        services.fill(KEYS)
        listed: Counter[int] = Counter()

        def note(client_id: int, reply: ServiceReply) -> None:
            assert isinstance(reply, Items)
            listed[client_id] += len(reply.items)

        for process in processes:
            services.ask(process, lambda ticket: ListKeys(ticket, "d"), partial(note, process.client_id))
        world.run(until=world.clock.now + 1.0)
        all_live(world)
        check_longest_task(world, 0.01)
        assert set(listed.values()) == {KEYS}


def calls_when_all_come_back(num_clients: int) -> int:
    """Return how many calls the coordinator makes while all connections break, and are made again."""
    with World(SEED, num_clients, latency=HERE, heartbeat_interval=5.0, heartbeat_timeout=20.0) as world:
        world.bring_up()
        host = next(process for process in world.processes if process.client_id == 0)
        coordinator = host.coordinator
        assert coordinator is not None
        meter, shipped, calls = Meter(), coordinator.machine.handle, 0

        def handle(event: Any, now: float) -> Any:
            nonlocal calls
            if isinstance(event, ev.MessageReceived):
                return shipped(event, now)  # whoever has come back is told of to all, which is their square
            (effects, _), _ = meter(lambda: (shipped(event, now), coordinator.machine.deadline()))
            calls += meter.calls
            return effects

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(coordinator.machine, "handle", handle)
            world.strike(BreakConnection(tuple(range(1, num_clients)), times=1, period=0.0))
            world.run(until=world.clock.now + 2.0)
        all_live(world)
        return calls


def costs_the_square() -> bool:
    few, many = calls_when_all_come_back(75), calls_when_all_come_back(300)
    return many > 8 * few


def test_what_costs_the_square_of_the_clients_that_come_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not costs_the_square()
    shipped = CoordinatorMachine.deadline

    def deadline(self: CoordinatorMachine) -> float | None:
        """Look at everybody at each event."""
        return min(filter(None, (shipped(self) for _ in self._members)), default=None)

    monkeypatch.setattr(CoordinatorMachine, "deadline", deadline)
    assert costs_the_square()


PLANTED: dict[Planting, Callable[[], None]] = {
    send_the_roster_to_all: large_job,
    block_the_loop: small_job,
    list_all_in_one_step: job_with_many_keys,
}
"""Each defect with the job that finds it."""


@pytest.mark.parametrize(("plant", "job"), PLANTED.items(), ids=[plant.__name__ for plant in PLANTED])
def test_a_step_that_takes_too_long_is_found(plant: Planting, job: Callable[[], None]) -> None:
    job()
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        with pytest.raises(AssertionError, match=NO_REASON):
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
