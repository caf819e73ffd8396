"""The end of a job by the coordinator: goodbyes, departures, and clients that come late."""

from __future__ import annotations

import dataclasses

import pytest

from bringup.runtime.machines.coordinator import events as ev
from bringup.runtime.machines.coordinator.machine import CoordinatorMachine
from bringup.transport.wire.messages import (
    Dismissed,
    Goodbye,
    HeartbeatAck,
    Leave,
    Leaver,
    Leaving,
    PreemptionNotice,
    StepQuery,
    StepReply,
    Suspect,
    SyncPoint,
)

from .....lib.coordinator_scripts import (
    ALL,
    BEAT,
    CONFIG,
    N,
    answers,
    end,
    is_closed,
    machine_with,
    register,
    resume,
    running,
    say,
    verdict,
)


@pytest.mark.parametrize("clients", [range(N), range(N - 1)], ids=["formed", "forming"])
def test_a_goodbye_is_a_verdict_for_all_with_its_cause(clients: range) -> None:
    machine = machine_with(*clients)
    effects = say(machine, 1, Goodbye("devices", "DeviceInitializationError", "no driver"))
    found = verdict(effects)
    assert (found.client_id, found.phase, found.address) == (1, "devices", "h1:9000")
    assert found.cause == "DeviceInitializationError: no driver"
    assert sorted(effects[0].sessions) == [100 + client_id for client_id in clients]


def test_a_timeout_of_one_is_a_timeout_of_all() -> None:
    found = verdict(say(machine_with(0, 2), 2, Goodbye("rendezvous", "RendezvousTimeoutError", "I waited")))
    assert (found.error, found.missing, found.num_missing) == ("RendezvousTimeoutError", (1, 1), 1)


def test_who_is_away_when_the_job_fails_is_waited_for_and_told() -> None:
    machine = running()
    end(machine, 1)
    found = say(machine, 2, Goodbye("ready", "ValueError", "a bug"))
    assert 101 in found[0].sessions
    assert not machine.has_told_all
    resume(machine, 1, 0.5)
    assert machine.has_told_all


def test_a_patience_that_ends_as_the_job_comes_up_fails_a_job_that_is_up() -> None:
    found = verdict(say(running(), 1, Goodbye("commit", "RendezvousTimeoutError", "I waited"), 1.0))
    assert (found.error, found.client_id) == ("PeerFailedError", 1)
    assert "RendezvousTimeoutError: its initialization_timeout had passed when the job came up" in found.cause


def test_after_the_end_who_is_new_is_told_why_and_the_rest_is_sent_away() -> None:
    machine = machine_with(0, 1)
    say(machine, 1, Goodbye("devices", "ValueError", "a bug"))
    effects = say(machine, 2, register(2))
    assert (verdict(effects).client_id, effects[-1]) == (1, ev.CloseSession(102))
    assert say(machine, 0, BEAT) == []
    assert machine.handle(ev.MessageReceived(500, register(0)), 0.0) == [ev.CloseSession(500)]
    assert end(machine, 0) == []
    assert machine.wake(1000.0) == []


def test_all_leave_together() -> None:
    machine = running()
    departed, news = say(machine, 0, Leave(30.0, 7))
    assert (departed, news.message) == (ev.Departed(0), Leaving((Leaver(0, 0, 7),)))
    assert sorted(news.sessions) == list(ALL)
    assert say(machine, 0, Leave(30.0, 7)) == []
    assert say(machine, 1, Leave(30.0)) == [ev.Departed(1)]
    assert end(machine, 1) == [], "who wants to leave may go"
    (dismissal,) = say(machine, 2, Leave(30.0))
    assert dismissal.message == Dismissed(())
    assert is_closed(machine)


def test_those_who_leave_after_the_first_are_told_together() -> None:
    machine = running()
    say(machine, 0, Leave(30.0, 7))
    assert say(machine, 1, Leave(30.0, 7), 0.001) == [ev.Departed(1)]
    due = machine.deadline()
    assert due is not None
    assert 0.001 < due < 0.1
    assert [answer.message for answer in machine.wake(due)] == [Leaving((Leaver(1, 1, 7),))]


def test_who_does_not_leave_in_time_is_named_and_told() -> None:
    machine = running()
    say(machine, 0, Leave(0.5))
    say(machine, 2, Leave(30.0))
    machine.wake(0.1)
    assert machine.deadline() == 0.5
    dismissal, news = machine.wake(0.5)
    assert dismissal == ev.SendTo((100, 102), Dismissed((1, 1), 1))
    assert isinstance(news, ev.SendTo)
    assert (news.sessions, verdict([news]).client_id) == ((101,), 0)
    assert "it shut down" in verdict([news]).cause


def test_a_notice_of_preemption_lets_all_agree_on_a_step() -> None:
    machine = running()
    assert answers(say(machine, 1, PreemptionNotice(1, 0.0, "SIGTERM")), StepQuery) == [StepQuery(1)]
    assert say(machine, 0, StepReply(1, 7)) == say(machine, 1, StepReply(1, 9)) == []
    (answer,) = say(machine, 2, StepReply(1, 8))
    assert isinstance(answer, ev.SendTo)
    assert isinstance(answer.message, SyncPoint)
    assert (sorted(answer.sessions), answer.message.step) == (list(ALL), 10)


def test_a_client_that_is_leaving_holds_nobody_who_agrees_on_a_step() -> None:
    machine = running()
    say(machine, 1, Leave(30.0), 1.0)
    assert answers(say(machine, 0, PreemptionNotice(0, 0.0, "it received SIGTERM"), 1.0), StepQuery) == [StepQuery(1)]
    assert say(machine, 0, StepReply(1, 4), 2.0) == []
    (point,) = answers(say(machine, 2, StepReply(1, 5), 2.0), SyncPoint)
    assert point.step == 6


def test_a_client_that_has_said_that_it_leaves_may_end_before_the_others_have_met() -> None:
    machine = running()
    say(machine, 1, Leave(30.0), 1.0)
    assert say(machine, 0, Suspect(1, "reset"), 1.0) == []
    end(machine, 1)
    assert not machine.wake(5.0)
    say(machine, 0, Leave(30.0), 5.0)
    assert answers(say(machine, 2, Leave(30.0), 5.0), Dismissed) == [Dismissed(())]


def test_the_group_of_a_leader_that_leaves_and_has_gone_is_asked_at_once() -> None:
    machine = CoordinatorMachine(dataclasses.replace(CONFIG, num_clients=6, group_size=3, addresses=None))
    for client_id in range(6):
        say(machine, client_id, register(client_id, num_clients=6))
    say(machine, 3, Leave(30.0), 1.0)
    end(machine, 3, 1.0)
    [asked] = [effect for effect in machine.wake(1.0) if isinstance(effect, ev.SendTo)]
    assert asked == ev.SendTo((104, 105), HeartbeatAck(0, (), (), ()))
