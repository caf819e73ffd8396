"""The heartbeats of one client: when they are sent, and what they tell."""

from __future__ import annotations

import dataclasses

from bringup.errors import (
    DeviceFailedError,
)
from bringup.runtime.machines.peer import events as ev
from bringup.runtime.machines.peer.job_view import ClientState
from bringup.runtime.machines.phases import Phase
from bringup.transport.wire.messages import (
    Goodbye,
    Heartbeat,
    HeartbeatAck,
    MemberUpdate,
    Overdue,
)

from .....lib.peer_scripts import CONFIG, FORMED, of_kind, registering, sent, up, waiting


def test_heartbeats_go_out_every_interval_from_the_first_answer_on() -> None:
    assert sent(registering().pass_time(5.0)) == []
    script = waiting(0, 0)
    script.pass_time(0.5)  # that it now waits is told at once
    beats = of_kind(Heartbeat, script.pass_time(4.5))
    assert [beat.sequence for beat in beats] == [2, 3, 4, 5]


def test_a_phase_that_lasts_is_reported_soon() -> None:
    script = waiting()
    script.hear(FORMED, 0.1)
    (beat,) = sent(script.pass_time(0.5))
    assert isinstance(beat, Heartbeat)
    assert beat.phase == "devices"


def test_a_change_of_health_is_reported_at_once() -> None:
    script = up()
    (beat,) = sent(script.take(ev.HealthChanged(False, "too hot")))
    assert isinstance(beat, Heartbeat)
    assert (beat.healthy, beat.health) == (False, "too hot")
    assert script.machine.state_of(1) == ClientState(Phase.READY, False, "too hot")


def test_a_client_whose_devices_may_not_become_unhealthy_says_so_and_fails() -> None:
    script = up()
    script.machine.config = dataclasses.replace(CONFIG, fails_when_unhealthy=True)
    assert [type(message) for message in sent(script.take(ev.HealthChanged(True, "healthy again")))] == [Heartbeat]
    goodbye, failed = script.take(ev.HealthChanged(False, "ECC errors"))
    assert goodbye == ev.Send(Goodbye(Phase.READY, "DeviceFailedError", "ECC errors"))
    error = failed.error
    assert isinstance(error, DeviceFailedError)
    assert (error.client_id, error.address, error.host, error.cause) == (1, "h1:9000", "node-1", "ECC errors")
    assert script.machine.deadline() is None


def test_a_client_that_is_leaving_does_not_fail_for_its_devices() -> None:
    script = up()
    script.machine.config = dataclasses.replace(CONFIG, fails_when_unhealthy=True)
    script.take(ev.LeaveRequested())
    assert [type(message) for message in sent(script.take(ev.HealthChanged(False, "hot")))] == [Heartbeat]


def test_what_the_coordinator_says_of_others_is_kept() -> None:
    script = up()
    script.hear(HeartbeatAck(3, (), (Overdue(2, 4.0),), (MemberUpdate(3, False, "cold"),), news=5), 7.0)
    assert script.machine.state_of(3) == ClientState(Phase.READY, False, "cold")
    assert script.machine.view.age_of(2, 8.0) == 5.0
    assert script.machine.view.age_of(3, 8.0) == 1.0
    assert script.machine.view.age_of(1, 8.0) == 0.0


def test_heartbeats_carry_the_step_of_the_program_and_how_long_it_has_been_at_work() -> None:
    script = up()
    script.take(ev.ProgressReported(41, 0.5, is_waiting=False, waited_until=0.0))
    (beat,) = of_kind(Heartbeat, script.pass_time(1.0))
    assert (beat.step, beat.step_age, beat.busy) == (41, script.now - 0.5, script.now - 0.5)
    script.take(ev.ProgressReported(41, 0.5, is_waiting=True, waited_until=0.0))
    (beat,) = of_kind(Heartbeat, script.pass_time(2.0))
    assert (beat.step, beat.step_age, beat.busy) == (41, script.now - 0.5, 0.0)


def test_a_wait_for_others_is_not_the_programs_own_time_once_it_is_over() -> None:
    script = up()
    script.pass_time(6.0)
    script.take(ev.ProgressReported(41, 0.5, is_waiting=False, waited_until=6.25))
    (beat,) = of_kind(Heartbeat, script.pass_time(7.0))
    assert (beat.step_age, beat.busy) == (script.now - 0.5, script.now - 6.25)


def test_a_client_that_is_leaving_waits_for_others() -> None:
    script = up()
    script.take(ev.ProgressReported(41, 0.5, is_waiting=False, waited_until=0.0))
    script.take(ev.LeaveRequested())
    beats = of_kind(Heartbeat, script.pass_time(3.0))
    assert beats
    assert all(beat.busy == 0.0 for beat in beats)


def test_fresh_news_are_asked_for_just_before_the_deadline() -> None:
    script = waiting(2, 3)
    for second in range(30):
        script.pass_time(second + 0.2)
        script.hear(HeartbeatAck(second, (2, 3), (), ()), second + 0.2)
    effects = script.pass_time(29.9)
    assert script.now >= 29.75
    assert any(isinstance(message, Heartbeat) for message in sent(effects))


def test_the_next_heartbeat_says_which_changes_are_known() -> None:
    script = up()
    script.hear(HeartbeatAck(3, (), (), (MemberUpdate(3, False, "cold"),), news=5), 1.0)
    script.hear(HeartbeatAck(4, (), (), (), news=0), 1.0)
    (beat,) = of_kind(Heartbeat, script.take(ev.HealthChanged(True, "well")))
    assert beat.seen == 5
