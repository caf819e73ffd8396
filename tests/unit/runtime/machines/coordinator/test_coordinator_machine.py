"""The coordinator's decisions while a job forms and comes up."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from msgspec.structs import replace

from bringup.runtime.machines.coordinator import events as ev
from bringup.runtime.machines.coordinator.machine import CoordinatorMachine
from bringup.runtime.machines.coordinator.members import welcome
from bringup.runtime.machines.roster import Roster
from bringup.transport.wire.messages import (
    PROTOCOL_VERSION,
    Behind,
    Commit,
    Formed,
    Goodbye,
    GroupPlace,
    Heartbeat,
    HeartbeatAck,
    Refused,
    Span,
)

from .....lib.coordinator_scripts import (
    ALL,
    BEAT,
    CONFIG,
    ROSTER,
    N,
    answers,
    is_closed,
    machine_with,
    ready,
    register,
    running,
    say,
    verdict,
)


def test_a_registration_is_answered_at_once_and_the_first_heartbeat_with_who_is_missing() -> None:
    machine = CoordinatorMachine(CONFIG)
    assert say(machine, 1, register(1)) == [ev.SendTo((101,), HeartbeatAck(0, (), (), ()))]
    (ack,) = answers(say(machine, 1, BEAT), HeartbeatAck)
    assert ack.missing == (0, 0, 2, 2)
    say(machine, 2, register(2))
    (ack,) = answers(say(machine, 1, BEAT), HeartbeatAck)
    assert ack.missing == (0, 0)


def test_each_client_is_told_at_first_where_client_0_is() -> None:
    machine, own = CoordinatorMachine(CONFIG), register(0)
    machine.welcome = welcome(own)
    (ack,) = answers(say(machine, 1, register(1)), HeartbeatAck)
    (host,) = ack.host
    assert (host.client_id, host.link_address, host.incarnation) == (0, own.link_address, own.incarnation)
    (ack,) = answers(say(machine, 1, BEAT), HeartbeatAck)
    assert ack.host == ()


def test_the_last_registration_forms_the_job_for_all() -> None:
    machine = machine_with(2, 0)
    effects = say(machine, 1, register(1))
    formed = {effect.sessions: effect.message for effect in effects if isinstance(effect.message, Formed)}
    assert sorted(formed) == [(session,) for session in ALL]
    for client_id, session in enumerate(ALL):
        message = formed[session,]
        assert (message.job_id, message.epoch, message.place) == ("ab" * 16, 1, GroupPlace(0, 1, 0, N - 1))
        assert [m.client_id for m in message.neighbours] == [(client_id - 1) % N, (client_id + 1) % N]
        assert bool(message.roster) == (client_id == 0)
    assert [(m.client_id, m.incarnation, m.link_address) for m in Roster(formed[ALL[0],].roster)] == [
        (i, 1000 + i, f"h{i}:5000") for i in range(N)
    ]


@pytest.mark.parametrize(
    ("other", "field", "yours", "ours"),
    [
        ({"protocol_version": 99}, "protocol_version", "99", str(PROTOCOL_VERSION)),
        ({"job_name": "ps"}, "job_name", "'ps'", "'worker'"),
        ({"num_clients": 4}, "num_clients", "4", "3"),
        ({"client_id": 3}, "client_id", "3", "0 to 2"),
        ({"jobs_digest": "00"}, "jobs", "00", "h0:9000,h1:9000,h2:9000"),
        ({"client_id": -1}, "client_id", "-1", "0 to 2"),
        ({"client_id": 0, "pid": 77}, "client_id", "process 77", "process 0 on host node-0"),
        ({"device_type": "CPU"}, "device_type", "CPU", "SIM (client 0)"),
        ({"heartbeat_interval": 10.0}, "heartbeat_interval", "10", "heartbeat_timeout=10"),
    ],
)
def test_who_does_not_fit_is_refused_with_both_sides_values(
    other: dict[str, Any], field: str, yours: str, ours: str
) -> None:
    machine = machine_with(0)
    answer, close = machine.handle(ev.MessageReceived(500, register(1, **other)), 0.0)
    assert isinstance(answer, ev.SendTo)
    assert isinstance(answer.message, Refused)
    assert (answer.sessions, close) == ((500,), ev.CloseSession(500))
    assert answer.message.field == field
    assert yours in answer.message.yours
    assert ours in answer.message.ours
    assert answers(say(machine, 1, register(1)), HeartbeatAck), "the rightful client was shut out"


@pytest.mark.parametrize("other", [{"job_name": "j" * 900_000}, {"client_id": 0, "hostname": "h" * 900_000}])
def test_what_a_stranger_says_of_itself_is_cut_before_it_is_logged(other: dict[str, Any]) -> None:
    machine = machine_with(0)
    (refused,) = answers(list(machine.handle(ev.MessageReceived(500, register(1, **other)), 0.0)), Refused)
    assert 100 < len(refused.yours) < 2000


def test_a_restarted_client_is_refused_by_its_incarnation() -> None:
    machine = running()
    effects = machine.handle(ev.MessageReceived(500, register(1, incarnation=5)), 0.0)
    (refused,) = answers(list(effects), Refused)
    assert (refused.field, f"{5:016x}" in refused.yours) == ("incarnation", True)


def test_a_stranger_that_does_not_register_is_shown_the_door() -> None:
    assert machine_with(0).handle(ev.MessageReceived(500, BEAT), 0.0) == [ev.CloseSession(500)]


def test_equal_digests_commit_and_tell_the_slowest() -> None:
    machine = machine_with(*range(N))
    spans = [Span("ring", 0.0, duration, client_id) for client_id, duration in enumerate([1.0, 3.0, 2.0])]
    for client_id in (2, 0):
        assert say(machine, client_id, ready(spans=(spans[client_id],))) == []
    effects = say(machine, 1, ready(spans=(spans[1],)))
    (commit,) = answers(effects, Commit)
    assert commit.spans == (spans[1],)
    assert sorted(effects[-1].sessions) == list(ALL)


def test_devices_that_end_a_job_are_a_verdict_of_their_own() -> None:
    found = verdict(say(machine_with(*range(N)), 1, Goodbye("ready", "DeviceFailedError", "ECC errors")))
    assert (found.error, found.client_id, found.phase, found.cause) == ("DeviceFailedError", 1, "ready", "ECC errors")


def test_different_digests_fail_for_all_and_name_the_odd_one() -> None:
    machine = machine_with(*range(N))
    say(machine, 0, ready())
    say(machine, 1, ready(b"other"))
    found = verdict(say(machine, 2, ready()))
    assert (found.error, found.client_id) == ("TopologyError", 1)
    assert "by clients 0, 2; " in found.cause
    assert is_closed(machine)


def test_a_client_with_another_roster_is_named_as_soon_as_it_says_so() -> None:
    machine = machine_with(*range(N))
    say(machine, 0, ready())
    found = verdict(say(machine, 2, ready(roster_digest=b"\x01\x02")))
    assert (found.error, found.client_id) == ("TopologyError", 2)
    assert "client 2 (node-2, h2:9000) holds another list of clients" in found.cause
    assert f"0102 there, and {ROSTER.digest.hex()} on client 0" in found.cause
    assert is_closed(machine)


def test_a_client_without_a_roster_is_named() -> None:
    found = verdict(say(machine_with(*range(N)), 1, ready(roster_digest=b"")))
    assert (found.client_id, ": none there, and " in found.cause) == (1, True)


def test_a_heartbeat_is_answered_with_news_once() -> None:
    machine = running()
    say(machine, 1, Heartbeat(7, "ready", False, "too hot"))
    (first,) = answers(say(machine, 0, Heartbeat(8, "ready", True, "")), HeartbeatAck)
    assert [(u.client_id, u.healthy, u.health) for u in first.updates if u.client_id == 1] == [(1, False, "too hot")]
    (again,) = answers(say(machine, 0, Heartbeat(9, "ready", True, "")), HeartbeatAck)
    assert (again.sequence, again.updates, again.news) == (9, first.updates, first.news)
    (after,) = answers(say(machine, 0, Heartbeat(10, "ready", True, "", seen=first.news)), HeartbeatAck)
    assert (after.sequence, after.updates, after.news) == (10, (), first.news)


def test_answers_say_who_is_missing_then_who_is_furthest_behind_then_neither() -> None:
    machine = machine_with(1)
    (ack,) = answers(say(machine, 1, Heartbeat(1, "rendezvous", True, "")), HeartbeatAck)
    assert (ack.missing, ack.num_missing, ack.behind) == ((0, 0, 2, 2), 2, ())
    for client_id in (0, 2):
        say(machine, client_id, register(client_id))
    say(machine, 1, Heartbeat(2, "ring", True, ""))
    (ack,) = answers(say(machine, 0, Heartbeat(1, "devices", True, "")), HeartbeatAck)
    assert (ack.missing, ack.num_missing, ack.behind) == ((), 0, (Behind("rendezvous", (2, 2), 1),))
    (ack,) = answers(say(machine, 2, Heartbeat(1, "devices", True, "")), HeartbeatAck)
    assert (ack.behind, ack.updates) == ((Behind("devices", (0, 0, 2, 2), 2),), ())
    for client_id in range(N):
        say(machine, client_id, ready())
    (ack,) = answers(say(machine, 2, BEAT), HeartbeatAck)
    assert (ack.missing, ack.behind) == ((), ())


def test_the_leaders_of_groups_are_told_when_to_begin_the_next_wave() -> None:
    machine = CoordinatorMachine(dataclasses.replace(CONFIG, num_clients=6, group_size=3, addresses=None))
    for client_id in range(6):
        say(machine, client_id, register(client_id, num_clients=6))
    told = {client_id: answers(say(machine, client_id, BEAT, 7.75), HeartbeatAck) for client_id in range(6)}
    assert {client_id: ack.wave_in for client_id, [ack] in told.items()} == {0: 0.25, 3: 0.25, 1: 0, 2: 0, 4: 0, 5: 0}


def test_a_client_that_had_no_answer_may_register_again_on_another_connection() -> None:
    machine = machine_with(*range(N))
    close, ack, formed = machine.handle(ev.MessageReceived(501, register(1)), 1.0)
    assert (close, ack) == (ev.CloseSession(101), ev.SendTo((501,), HeartbeatAck(0, (), (), ())))
    assert isinstance(formed, ev.SendTo)
    assert isinstance(formed.message, Formed)
    assert machine.handle(ev.SessionEnded(101, "it was ended here"), 1.0) == []
    (answer,) = machine.handle(ev.MessageReceived(501, BEAT), 1.0)
    assert isinstance(answer, ev.SendTo)
    assert answer.sessions == (501,)


def test_a_registration_that_arrives_after_a_later_one_changes_nothing() -> None:
    machine = machine_with(0, 2)
    machine.handle(ev.MessageReceived(501, register(1, attempt=2)), 1.0)
    assert machine.handle(ev.MessageReceived(101, register(1, attempt=1)), 2.0) == [ev.CloseSession(101)]
    assert machine.handle(ev.SessionEnded(101, "it broke"), 2.0) == []
    (answer,) = machine.handle(ev.MessageReceived(501, BEAT), 2.0)
    assert answer.sessions == (501,)


def test_a_stranger_that_registers_without_an_address_to_link_with_is_refused() -> None:
    machine = CoordinatorMachine(CONFIG)
    (refused,) = answers(say(machine, 1, register(1, link_address="garbage")), Refused)
    assert refused.field == "link_address"


def test_a_session_registers_once() -> None:
    machine = machine_with(0)
    assert say(machine, 0, register(1)) == [ev.CloseSession(100)]


def test_it_tells_the_services_who_is_who_and_where() -> None:
    machine = running()
    assert machine.is_member(1, 1001)
    assert not machine.is_member(1, 1002)
    assert not machine.is_member(9, 1009)
    say(machine, 1, replace(BEAT, step=7, step_age=0.0))
    assert machine.whereabouts(1) == "h1:9000, in phase ready, at step 7"
    assert not machine.dead()
