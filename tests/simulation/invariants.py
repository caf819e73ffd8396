"""Invariants of every step of every simulation, whatever the faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bringup.runtime.machines.coordinator import events as coordinator_events
from bringup.runtime.machines.coordinator.machine import CoordinatorMachine
from bringup.runtime.machines.coordinator.members import info_of
from bringup.runtime.machines.id_ranges import unpack_ids
from bringup.runtime.machines.peer import events as ev
from bringup.runtime.machines.peer.machine import PeerMachine
from bringup.transport.wire.messages import Commit, Dismissed, HeartbeatAck, MemberInfo, Ready, Register, Verdict
from bringup.transport.wire.services import ClientIds, Done, ServiceReply

from . import verdict_oracle

if TYPE_CHECKING:
    from .job import Job
    from .process import Process
    from .world import World

PATIENCE = 0.001
"""Seconds by which a client may be later than its deadline: its event loop's timers are not exact."""


def after_step(process: Process, machine: PeerMachine | CoordinatorMachine, event: Any, effects: list[Any]) -> None:
    """Check one step of one machine."""
    world = process.world
    if isinstance(machine, CoordinatorMachine):
        assert process.hosted is not None
        for effect in effects:
            kind = type(effect)
            if kind is ev.Probe:
                _asked(world, process.hosted, effect)
            elif kind is coordinator_events.SendTo and (check := _OF_ANSWERS.get(type(effect.message))) is not None:
                check(world, process.hosted, event, effect)
        return
    assert not process.is_over, f"{process.name} asks for {effects} after its end"
    for effect in effects:
        kind = type(effect)
        if (look := _OF_EFFECTS.get(kind)) is not None:
            look(world, process, effect)
        if kind is ev.Failed or kind is ev.Left:
            assert effect is effects[-1], f"{process.name} asks for more than its end: {effects}"
            assert machine.deadline() is None, f"{process.name} has a deadline after its end"


def waits_no_longer(process: Process, what: str, is_done: Callable[[], bool], since: float) -> None:
    """Check that a client whose time has run out waits no longer; the time in which it was stopped does not count."""
    clock = process.world.clock
    stopped = sum(min(end, clock.now) - max(begin, since) for begin, end in process.stops if end > since)
    if process.is_stopped or is_done():
        return
    assert stopped, f"{process.name} still waits {what} after its deadline, in phase {process.machine.phase}"
    clock.after(stopped, waits_no_longer, process, what, is_done, clock.now)


# Of the coordinator's effects.


def _asked(world: World, job: Job, probe: ev.Probe) -> None:
    suspect = next(member for member in job.members.values() if member.incarnation == probe.incarnation)
    links = [suspect, *(member for member in job.members.values() if suspect.client_id in member.neighbours)]
    is_troubled = any(
        world.network.is_link_troubled(p.client_id) or not p.is_listening or p.dials.hindrances for p in links
    )
    is_connected = suspect.is_connected and suspect.heard_at != world.clock.now
    assert is_troubled or not is_connected, f"{suspect.name} is probed for no reason"


def _took_in(world: World, job: Job, event: Any, answer: coordinator_events.SendTo) -> None:
    if isinstance(event, coordinator_events.MessageReceived) and isinstance(event.message, Register):
        client = job.host.sessions.clients[event.session]
        incumbent = job.members.get(client.client_id, client)
        assert incumbent is client, f"{client.name} is taken in beside {incumbent.name}"
        if client.client_id not in job.members:
            job.take_in(client, world.clock.now)


def _judged(world: World, job: Job, event: Any, answer: coordinator_events.SendTo) -> None:
    assert isinstance(answer.message, Verdict)
    if not job.verdicts:
        verdict_oracle.verdict_is_true(world, job, answer.message)
    job.verdicts.append((world.clock.now, answer.message))
    last_word = job.verdicts[0][1]
    assert answer.message == last_word, f"the coordinator first says {last_word}, then {answer.message}"


def _let_go(world: World, job: Job, event: Any, answer: coordinator_events.SendTo) -> None:
    assert isinstance(answer.message, Dismissed)
    missing = set(unpack_ids(answer.message.missing))
    wishes = {c: p.leave_wished_at for c, p in job.members.items() if p.leave_wished_at is not None}
    stayers = job.members.keys() - wishes.keys()
    assert stayers <= missing, f"clients {sorted(stayers)} do not want to leave, missing are {sorted(missing)}"
    if missing:
        patience = min(p.config.shutdown_timeout for p in job.members.values())
        waited = world.clock.now - min(wishes.values())
        assert waited >= patience, f"the others are let go {waited} s after the first wish, without {sorted(missing)}"


def barrier_ends(world: World, caller: Process, reply: ServiceReply) -> None:
    """Check that a barrier lets nobody through before all have come."""
    assert caller.job is not None
    if isinstance(reply, Done):
        name, count, size = caller.barrier_calls[reply.ticket]
        arrived = caller.job.arrivals[name, count]
        assert arrived == size, f"barrier {name!r} of {size} clients lets through when {arrived} have come"


def are_alive(world: World, caller: Process, reply: ClientIds) -> None:
    """Check that those who live are said to, and that of those who are leaving nobody is."""
    assert caller.job is not None
    told = set(unpack_ids(reply.client_ids))
    for client_id, member in caller.job.members.items():
        assert client_id not in told or not member.is_let_go, f"{caller.name} is told that {member.name} is there"
        is_there = member.is_listening and not member.is_over and not member.wants_to_leave
        assert client_id in told or not is_there, f"{caller.name} is not told that {member.name} is alive"


def _committed(world: World, job: Job, event: Any, answer: coordinator_events.SendTo) -> None:
    job.committed_at = world.clock.now
    world.clock.after(0.0, job.host.recover)


_OF_ANSWERS: dict[type, Callable[[World, Job, Any, coordinator_events.SendTo], None]] = {
    Commit: _committed,
    HeartbeatAck: _took_in,
    Verdict: _judged,
    Dismissed: _let_go,
}


# Of the peers' effects.


def _sent(world: World, process: Process, effect: Any) -> None:
    if isinstance(effect.message, Ready):
        assert process.job is not None, f"{process.name} is ready before it was taken in"
        process.job.note_ready(process.client_id, effect.message.digest)


def _up(world: World, process: Process, up: ev.Up) -> None:
    job = process.job
    assert job is not None, f"{process.name} is up before it was taken in"
    assert job.agreed == up.table.digest, f"{process.name} is up with a table that others do not hold"
    assert up.table is job.sound_table or up.table.core_ids.tolist() == world.core_ids, f"{process.name}: wrong table"
    job.sound_table = up.table
    if up.members is not job.sound_roster:
        wrong = [info for info in up.members if info != _truth_of(job, info.client_id)]
        assert [info.client_id for info in up.members] == list(range(world.num_clients)), f"{process.name}: wrong ids"
        assert not wrong, f"{process.name} is up with wrong facts: {wrong}"
    job.sound_roster = up.members


def _truth_of(job: Job, client_id: int) -> MemberInfo:
    member = job.members[client_id]
    return info_of(member.config.registration(member.link_address))


def _failed(world: World, process: Process, failed: ev.Failed) -> None:
    verdict_oracle.error_is_true(world, process, failed.error)


_OF_EFFECTS: dict[type, Callable[[World, Process, Any], None]] = {ev.Send: _sent, ev.Up: _up, ev.Failed: _failed}
