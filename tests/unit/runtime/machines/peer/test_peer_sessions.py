"""One client and its coordinator: sessions that break, redials, probes, and loss."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from bringup.errors import (
    CoordinatorLostError,
    RendezvousTimeoutError,
)
from bringup.runtime.machines.peer import events as ev
from bringup.runtime.machines.peer.machine import PeerMachine
from bringup.transport.ports import ProbeOutcome
from bringup.transport.wire.messages import (
    Goodbye,
    Heartbeat,
    HeartbeatAck,
    Register,
)

from .....lib.peer_scripts import (
    CONFIG,
    MEMBERS,
    STAGES,
    Script,
    committing,
    failure,
    formed,
    merging,
    of_kind,
    registering,
    sent,
    up,
    waiting,
)


def test_a_session_that_ends_before_the_first_answer_is_opened_again() -> None:
    (effect,) = registering().take(ev.SessionLost("it broke"))
    assert isinstance(effect, ev.Connect)


@pytest.mark.parametrize("stage", STAGES[2:])
def test_a_session_that_breaks_later_is_taken_up_again(stage: Any) -> None:
    script = stage()
    assert script.take(ev.SessionLost("it broke")) == []
    phase = script.machine.phase
    (beat,) = of_kind(Heartbeat, script.take(ev.Reconnected(), 0.5))
    assert beat.phase == phase
    assert script.machine.state_of(1).reconnects == 1


@pytest.mark.parametrize("stage", STAGES[2:])
def test_a_coordinator_that_refuses_to_take_the_session_up_has_died(stage: Any) -> None:
    script = stage()
    script.take(ev.SessionLost("it broke"))
    error = failure(script.take(ev.CoordinatorGone("h0:9000 refuses")))
    assert isinstance(error, CoordinatorLostError)
    assert (error.client_id, error.cause) == (0, "process died (h0:9000 refuses; it broke)")


def test_a_session_that_is_not_taken_up_again_is_lost_after_the_timeout() -> None:
    script = up()
    script.hear(HeartbeatAck(1, (), (), ()), 1.0)
    script.take(ev.SessionLost("it broke"), 1.5)
    error = failure(script.pass_time(20.0))
    assert isinstance(error, CoordinatorLostError)
    assert error.cause == "no heartbeat for 10.0 s (it broke)"
    assert script.now == 12.0


@pytest.mark.parametrize("stage", STAGES[2:])
def test_a_session_that_keeps_too_many_messages_is_the_end_of_the_client(stage: Any) -> None:
    error = failure(stage().take(ev.SessionGivenUp("10000 messages were not acknowledged")))
    assert isinstance(error, CoordinatorLostError)
    assert (error.client_id, error.cause) == (0, "10000 messages were not acknowledged")


def test_a_coordinator_that_is_not_heard_is_dialled_again_before_it_is_lost() -> None:
    script = up()
    script.hear(HeartbeatAck(1, (), (), ()), 1.0)
    assert ev.Redial() in script.pass_time(6.0)
    assert script.now == 6.0
    assert ev.Redial() not in script.pass_time(10.9)
    script.take(ev.Reconnected(), 10.9)
    script.hear(HeartbeatAck(2, (), (), ()), 10.95)
    assert not [e for e in script.pass_time(15.9) if isinstance(e, ev.Redial | ev.Failed)]


def test_a_coordinator_that_is_silent_again_is_dialled_again() -> None:
    script = up()
    script.hear(HeartbeatAck(1, (), (), ()), 1.0)
    assert ev.Redial() in script.pass_time(6.0)
    script.hear(HeartbeatAck(2, (), (), ()), 6.1)
    assert ev.Redial() in script.pass_time(11.2)


def asked(script: Script, outcome: ProbeOutcome, until: float) -> list[Any]:
    """Advance the time; every probe of the coordinator is answered at once."""
    effects: list[Any] = []
    while (due := script.machine.deadline()) is not None and due <= until:
        done = script.wake(due)
        effects += done
        for probe in (effect for effect in done if isinstance(effect, ev.Probe)):
            assert (probe.link_address, probe.incarnation) == ("h0:5000", 1000)
            script.take(ev.ProbeAnswered(probe.tag, outcome, "seen"))
    return effects


def waiting_and_told_of_the_host() -> Script:
    script = registering()
    script.hear(HeartbeatAck(0, (2, 3), (), (), host=MEMBERS[:1]))
    return script


@pytest.mark.parametrize("stage", [waiting_and_told_of_the_host, formed, merging, committing])
def test_an_overloaded_coordinator_is_waited_for_while_the_job_comes_up(stage: Any) -> None:
    script = stage()
    error = failure(asked(script, ProbeOutcome.ALIVE, 60.0))
    assert isinstance(error, RendezvousTimeoutError)
    assert script.now == 30.0


@pytest.mark.parametrize("outcome", [ProbeOutcome.SILENT, ProbeOutcome.REPLACED])
def test_a_coordinator_that_does_not_answer_is_lost_after_the_timeout(outcome: ProbeOutcome) -> None:
    for stage in (waiting_and_told_of_the_host, committing, up):
        script = stage()
        error = failure(asked(script, outcome, 60.0))
        assert isinstance(error, CoordinatorLostError)
        assert "node-0" in str(error)
        assert script.now == 11.0


def test_a_coordinator_that_is_starved_and_answers_is_not_lost_when_the_job_is_up() -> None:
    script = up()
    assert not any(isinstance(effect, ev.Failed) for effect in asked(script, ProbeOutcome.ALIVE, 60.0))


def test_a_session_that_is_taken_up_again_is_a_sign_of_life_while_the_job_comes_up() -> None:
    script = waiting(2, 3)
    script.pass_time(9.0)
    script.take(ev.Reconnected(), 9.0)
    assert not any(isinstance(effect, ev.Failed) for effect in script.pass_time(19.9))
    assert isinstance(failure(script.pass_time(20.0)), CoordinatorLostError)


def test_a_registration_that_nobody_answers_is_made_anew_ever_more_rarely() -> None:
    script = registering()
    dials: list[float] = []
    effects: list[Any] = []
    while (due := script.machine.deadline()) is not None:
        effects = script.wake(due)
        if any(isinstance(effect, ev.Connect) for effect in effects):
            dials.append(script.now)
            assert script.take(ev.SessionLost("it was ended here")) == []
            (again,) = sent(script.take(ev.Connected(script.tags[ev.Connect], "h1:5000")))
            assert isinstance(again, Register)
            assert again.attempt == 1 + len(dials)
            assert "did not answer the registration within" in script.machine.progress(script.now).waiting_for
    assert dials == [7.5, 22.5]
    assert isinstance(failure(effects), RendezvousTimeoutError)


def test_the_client_that_hosts_the_coordinator_does_not_dial_itself() -> None:
    machine = PeerMachine(dataclasses.replace(CONFIG, client_id=0), 0.0)
    machine.handle(ev.Begin(), 0.0)
    connect = ev.Connected(1, "h0:5000")
    machine.handle(connect, 0.0)
    machine.handle(ev.Received(HeartbeatAck(0, (), (), ())), 0.0)
    assert isinstance(failure(machine.handle(ev.SessionLost("it was ended here"), 1.0)), CoordinatorLostError)


def test_the_client_that_hosts_the_coordinator_does_not_lose_itself_while_the_job_comes_up() -> None:
    machine = PeerMachine(dataclasses.replace(CONFIG, client_id=0), 0.0)
    machine.handle(ev.Begin(), 0.0)
    machine.handle(ev.Connected(1, "h0:5000"), 0.0)
    machine.handle(ev.Received(HeartbeatAck(0, (2, 2), (), ())), 0.0)
    effects: list[Any] = []
    while (due := machine.deadline()) is not None:
        effects = machine.wake(due)
    assert isinstance(failure(effects), RendezvousTimeoutError)


def test_a_silent_coordinator_is_lost_after_the_timeout() -> None:
    script = up()
    script.hear(HeartbeatAck(1, (), (), ()), 1.0)
    error = failure(script.pass_time(20.0))
    assert isinstance(error, CoordinatorLostError)
    assert error.cause == "no heartbeat for 10.0 s"
    assert script.now == 12.0


def test_a_client_that_loses_the_coordinator_says_goodbye_all_the_same() -> None:
    script = up()
    script.hear(HeartbeatAck(1, (), (), ()), 1.0)
    (goodbye,) = of_kind(Goodbye, script.pass_time(20.0))
    assert (goodbye.error, goodbye.cause) == ("CoordinatorLostError", "no heartbeat for 10.0 s")
