"""What must hold at every step of every simulation, whatever the faults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bringup.errors import CoordinatorLostError, PeerFailedError
from bringup.runtime.machines import events as ev
from bringup.runtime.machines.coordinator import CoordinatorMachine
from bringup.runtime.machines.ids import unpack_ids
from bringup.runtime.machines.peer import PeerMachine
from bringup.transport.messages import Ready, Verdict

if TYPE_CHECKING:
    from .process import Process
    from .world import World

__all__ = ["after_step", "nobody_waits_past_its_deadline"]

PATIENCE = 0.001
"""Seconds by which a client may be later than its deadline: its event loop's timers are not exact."""


def after_step(process: Process, machine: PeerMachine | CoordinatorMachine, effects: list[Any]) -> None:
    """Check one step of one machine."""
    world = process.world
    if isinstance(machine, CoordinatorMachine):
        for effect in effects:
            if isinstance(effect, ev.Answer) and isinstance(effect.message, Verdict):
                _verdict_blames_only_culprits(world, effect.message)
        return
    for effect in effects:
        assert not process.is_over, f"{process.name} asks for {effect} after its end"
        match effect:
            case ev.Send(Ready(digest)):
                world.ready[process.client_id] = digest
            case ev.Up():
                _up_means_all_agree(world, process, effect)
            case ev.Failed(error):
                _error_blames_only_culprits(world, process, error)
    if any(isinstance(effect, ev.Failed | ev.Left) for effect in effects):
        assert isinstance(effects[-1], ev.Failed | ev.Left), f"{process.name} asks for more than its end: {effects}"
        assert machine.deadline() is None, f"{process.name} has a deadline after its end"


def nobody_waits_past_its_deadline(world: World) -> None:
    """Check that every client whose time has run out has come up or raised."""
    queue = world.by_deadline
    while queue and queue[0][0] + PATIENCE < world.clock.now:
        _, _, process = queue.pop(0)
        settled = process.up is not None or process.is_over or process.is_stopped
        assert settled, f"{process.name} still waits {world.clock.now - process.began:.4f} s after it began"


def _up_means_all_agree(world: World, process: Process, up: ev.Up) -> None:
    assert len(world.ready) == world.num_clients, f"{process.name} is up, ready are only {sorted(world.ready)}"
    assert set(world.ready.values()) == {up.table.digest}, f"{process.name} is up with a table that others do not hold"
    expected = [device.core_id for client_id in range(world.num_clients) for device in world.devices[client_id]]
    assert up.table.core_ids.tolist() == expected, f"{process.name} is up with a wrong table"


def _verdict_blames_only_culprits(world: World, verdict: Verdict) -> None:
    if verdict.error != PeerFailedError.__name__:
        return
    blamed = {verdict.client_id, *unpack_ids(verdict.also)}
    assert blamed <= world.culprits, f"the coordinator blames {blamed}, at fault are {world.culprits}: {verdict.cause}"
    if "process died" in verdict.cause:
        assert not any(p.is_listening for p in world.processes if p.client_id == verdict.client_id), verdict.cause


def _error_blames_only_culprits(world: World, process: Process, error: BaseException) -> None:
    if isinstance(error, CoordinatorLostError):
        assert 0 in world.culprits, f"{process.name} gave up on a sound coordinator: {error}"
    elif isinstance(error, PeerFailedError):
        assert error.client_id in world.culprits, f"{process.name} blames {error.client_id}: {error}"
