"""The coordinator's judgement of silence, of stalls, and of its own sleep."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from msgspec.structs import replace

from bringup.runtime.machines.coordinator import events as ev
from bringup.runtime.machines.coordinator.machine import CoordinatorMachine
from bringup.runtime.machines.coordinator.members import info_of
from bringup.runtime.machines.coordinator.stragglers import Stragglers
from bringup.runtime.machines.roster import Roster
from bringup.transport.ports import ProbeOutcome
from bringup.transport.wire.messages import (
    Dismissed,
    HeartbeatAck,
    Leave,
    Step,
    Suspect,
    Verdict,
)

from .....lib.coordinator_scripts import (
    BEAT,
    CONFIG,
    N,
    answers,
    end,
    judged,
    listen,
    ready,
    register,
    running,
    say,
    verdict,
)


def test_a_late_heartbeat_is_told_to_the_others() -> None:
    machine = running()
    listen(machine, 3, silent=2)
    (ack,) = answers(say(machine, 0, BEAT, 3.0), HeartbeatAck)
    assert [(late.client_id, late.age) for late in ack.overdue] == [(2, 3.0)]


def test_silence_is_judged_later_while_a_large_job_comes_up() -> None:
    many = 96
    roster = Roster.of(info_of(register(client_id)) for client_id in range(many))
    machine = CoordinatorMachine(dataclasses.replace(CONFIG, num_clients=many, addresses=None))

    def silent(begin: int, end: int) -> list[tuple[int, list[Any]]]:
        found = []
        for second in range(begin, end):
            found += [(second, effects)] if (effects := answers(machine.wake(float(second)), Verdict)) else []
            for client_id in range(1, many):
                say(machine, client_id, BEAT, float(second))
        return found

    for client_id in range(many):
        say(machine, client_id, register(client_id, num_clients=many))
    assert silent(1, 17) == []
    for client_id in range(many):
        say(machine, client_id, ready(roster_digest=roster.digest), 17.0)
    ((second, _), *_) = silent(18, 40)
    assert second == 28, "it is up"


def test_silence_is_death_after_the_timeout() -> None:
    machine = running()
    assert listen(machine, 10, silent=1) == []
    found = verdict(listen(machine, 11, silent=1)[:1])
    assert (found.error, found.client_id, found.hostname) == ("PeerFailedError", 1, "node-1")
    assert found.cause == "no heartbeat for 10.0 s"
    assert machine.deadline() is None


def test_a_coordinator_that_slept_blames_nobody() -> None:
    machine = running()
    listen(machine, 3, silent=-1)
    assert machine.wake(500.0) == []
    for client_id in range(N):
        say(machine, client_id, BEAT, 500.1)
    assert machine.wake(501.0) == []


def test_who_is_behind_is_told_in_heartbeats() -> None:
    machine = running()
    for client_id, step in enumerate((42, 41, 42)):
        beat = replace(BEAT, step=step, step_age=1.0)
        effects = say(machine, client_id, beat, float(client_id))
    (ack,) = answers(effects, HeartbeatAck)
    assert ack.steps == (Step(1, 41, 2.0), Step(0, 42, 3.0), Step(2, 42, 1.0))


def test_a_stall_is_a_failure_of_who_is_furthest_behind_where_it_is_asked_for() -> None:
    machine = CoordinatorMachine(dataclasses.replace(CONFIG, stall_timeout=60.0))
    for client_id in range(N):
        say(machine, client_id, register(client_id))
    for client_id, (step, busy) in enumerate(((42, 0.0), (41, 59.0), (42, 59.0))):
        said = say(machine, client_id, replace(BEAT, step=step, step_age=59.0, busy=busy))
        assert answers(said, Verdict) == []
    assert answers(say(machine, 0, replace(BEAT, step=42, step_age=61.0), 2.0), Verdict) == []
    found = verdict(say(machine, 1, replace(BEAT, step=41, step_age=61.0, busy=61.0), 2.0))
    assert found.client_id == 1
    assert found.cause == "no progress for 61.0 s (stall_timeout=60 s): it is at step 41, 1 behind client 0"


def test_of_several_that_have_stalled_the_one_furthest_behind_is_named() -> None:
    steps = Stragglers(stall_timeout=60.0)
    steps.note(1, replace(BEAT, step=41, step_age=59.0, busy=60.0), 0.0)
    steps.note(2, replace(BEAT, step=42, step_age=59.0, busy=60.0), 0.0)
    found = steps.stalled(2)
    assert found is not None
    assert found[0] == 1
    steps.leaves(1)
    found = steps.stalled(2)
    assert found is not None
    assert found[0] == 2


def test_what_a_client_may_have_done_since_it_last_spoke_is_not_held_against_it() -> None:
    """Client 1 waited when it last spoke; what it said since is on its way."""
    machine = CoordinatorMachine(dataclasses.replace(CONFIG, stall_timeout=3.0))
    for client_id in range(N):
        say(machine, client_id, register(client_id))
    say(machine, 1, replace(BEAT, step=0, step_age=2.0, busy=2.0), 0.0)
    assert verdict(say(machine, 2, replace(BEAT, step=4, step_age=3.0, busy=3.0), 5.0)).client_id == 2


def test_a_client_that_is_leaving_has_not_stalled() -> None:
    machine = CoordinatorMachine(dataclasses.replace(CONFIG, stall_timeout=3.0))
    for client_id in range(N):
        say(machine, client_id, register(client_id))
    for client_id in range(N):
        say(machine, client_id, ready())
    for client_id in (1, 2):
        say(machine, client_id, replace(BEAT, step=client_id, step_age=2.0, busy=2.0), 1.0)
    say(machine, 1, Leave(30.0), 1.0)
    found = verdict(say(machine, 2, replace(BEAT, step=2, step_age=5.0, busy=5.0), 4.0))
    assert found.client_id == 2


def test_the_silent_are_named_with_the_step_they_were_at() -> None:
    machine = running()
    say(machine, 1, replace(BEAT, step=7, step_age=0.0))
    assert verdict(listen(machine, 11, silent=1)).cause == "no heartbeat for 10.0 s (it is at step 7)"


def awoken(num_clients: int, seconds: float) -> CoordinatorMachine:
    """Return the machine of a coordinator that slept for so long, and then hears what had come before."""
    machine = CoordinatorMachine(dataclasses.replace(CONFIG, num_clients=num_clients))
    for client_id in range(num_clients):
        say(machine, client_id, register(client_id, num_clients=num_clients))
    digest = Roster.of(info_of(register(client_id)) for client_id in range(num_clients)).digest
    for client_id in range(num_clients):
        say(machine, client_id, ready(roster_digest=digest))
    machine.wake(1.0 + seconds)
    for client_id in range(num_clients):
        assert answers(say(machine, client_id, BEAT, 1.0 + seconds), Verdict) == []
    return machine


@pytest.mark.parametrize("num_clients", [2, 3, 16])
def test_a_coordinator_that_slept_names_itself_and_not_those_that_have_gone_for_it(num_clients: int) -> None:
    """The first that shows is a neighbour's broken link; what it said as it went is read a little later, or never."""
    machine = awoken(num_clients, 20.0)
    left = num_clients - 1
    (probe,) = say(machine, 0, Suspect(left, "closed"), 21.0)
    machine.handle(ev.ProbeAnswered(probe.tag, ProbeOutcome.REFUSED, "refused"), 21.01)
    assert answers(judged(machine, 21.2), Verdict) == []
    found = verdict(judged(machine, 24.0))
    assert (found.error, found.client_id) == ("CoordinatorLostError", 0)
    assert found.cause.startswith("it did not run for 21.0 s (stopped, suspended or starved)")
    assert f"client {left}: process died (refused; its ring link with client 0 broke: closed)" in found.cause


def test_a_client_that_dies_well_after_the_coordinator_slept_has_died_by_itself() -> None:
    machine = awoken(2, 20.0)
    for second in (22.0, 23.0):
        machine.wake(second)
        say(machine, 1, BEAT, second)
    (probe,) = end(machine, 1, 23.5)
    machine.handle(ev.ProbeAnswered(probe.tag, ProbeOutcome.REFUSED, "refused"), 23.6)
    found = verdict(judged(machine, 24.0))
    assert (found.error, found.client_id) == ("PeerFailedError", 1)


def test_a_client_that_dies_while_the_coordinator_sleeps_for_less_than_the_timeout_has_died_by_itself() -> None:
    machine = awoken(2, 5.0)
    (probe,) = end(machine, 1, 6.0)
    machine.handle(ev.ProbeAnswered(probe.tag, ProbeOutcome.REFUSED, "refused"), 6.1)
    found = verdict(judged(machine, 8.0))
    assert (found.error, found.client_id) == ("PeerFailedError", 1)


def test_a_coordinator_that_slept_reads_first_who_else_wants_to_leave() -> None:
    machine = running()
    say(machine, 0, Leave(5.0), 1.0)
    assert answers(machine.wake(9.0), Verdict) == []
    assert answers(say(machine, 1, Leave(5.0), 9.0), Verdict) == []
    assert answers(say(machine, 2, Leave(5.0), 9.1), Dismissed) == [Dismissed(())]


def test_what_lies_unread_is_not_taken_for_silence() -> None:
    """The coordinator is behind: what client 1 said is in its inbox, after much of the others'."""
    machine = running()
    machine.caught_up(0.0)
    for moment in range(1, 40):
        assert answers(machine.wake(moment / 2), Verdict) == []
        due = machine.deadline()
        assert due is not None
        assert due > moment / 2
        for client_id in (0, 2):
            assert answers(say(machine, client_id, BEAT, moment / 2), Verdict) == []
    machine.caught_up(19.5)
    assert verdict(judged(machine, 20.5)).client_id == 1
