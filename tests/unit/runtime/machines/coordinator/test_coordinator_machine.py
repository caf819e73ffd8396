"""The coordinator's decisions, one event at a time. Session number and client id are told apart by a hundred."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from msgspec.structs import replace

from bringup.runtime.machines.coordinator import events as ev
from bringup.runtime.machines.coordinator.config import CoordinatorConfig
from bringup.runtime.machines.coordinator.machine import CoordinatorMachine
from bringup.runtime.machines.coordinator.members import info_of, welcome
from bringup.runtime.machines.coordinator.stragglers import Stragglers
from bringup.runtime.machines.roster import Roster
from bringup.transport.ports import ProbeOutcome
from bringup.transport.wire.messages import (
    PROTOCOL_VERSION,
    Behind,
    ClientMessage,
    Commit,
    Dismissed,
    Formed,
    Goodbye,
    GroupPlace,
    Heartbeat,
    HeartbeatAck,
    Leave,
    Leaver,
    Leaving,
    LinkDelayed,
    Message,
    PreemptionNotice,
    Ready,
    Refused,
    Register,
    Span,
    Step,
    StepQuery,
    StepReply,
    Suspect,
    SyncPoint,
    Verdict,
)

N = 3
CONFIG = CoordinatorConfig(
    num_clients=N,
    job_name="worker",
    job_id="ab" * 16,
    heartbeat_interval=1.0,
    heartbeat_timeout=10.0,
    addresses=("h0:9000", "h1:9000", "h2:9000"),
)
ALL = tuple(range(100, 100 + N))
BEAT = Heartbeat(1, "ready", True, "")


def register(number: int, **other: Any) -> Register:
    base = Register(
        client_id=number,
        num_clients=N,
        job_name="worker",
        protocol_version=PROTOCOL_VERSION,
        package_version="0",
        incarnation=1000 + number,
        address=f"h{number}:9000",
        hostname=f"node-{number}",
        pid=number,
        link_address=f"h{number}:5000",
        device_type="SIM",
        heartbeat_interval=1.0,
    )
    return replace(base, **other)


def ready(digest: bytes = b"same", **other: Any) -> Ready:
    return replace(Ready(digest, (), ROSTER.digest), **other)


ROSTER = Roster.of(info_of(register(client_id)) for client_id in range(N))


def say(machine: CoordinatorMachine, client_id: int, message: ClientMessage, now: float = 0.0) -> list[Any]:
    return list(machine.handle(ev.MessageReceived(100 + client_id, message), now))


def end(machine: CoordinatorMachine, client_id: int, now: float = 0.0) -> list[Any]:
    return list(machine.handle(ev.SessionEnded(100 + client_id, "it broke"), now))


def answers(effects: list[Any], kind: type[Message]) -> list[Any]:
    """Return the messages of one kind among the effects."""
    return [effect.message for effect in effects if isinstance(effect, ev.SendTo) and isinstance(effect.message, kind)]


def verdict(effects: list[Any]) -> Verdict:
    """Return the one verdict among the effects."""
    (found,) = answers(effects, Verdict)
    assert isinstance(found, Verdict)
    return found


def is_closed(machine: CoordinatorMachine) -> bool:
    """Whether it has nothing to wait for: before its end it always listens to somebody."""
    return machine.deadline() is None


def judged(machine: CoordinatorMachine, until: float) -> list[Any]:
    """Wake the machine whenever it asks for it, while the clients beat; returns what it then says."""
    effects: list[Any] = []
    while (due := machine.deadline()) is not None and due <= until:
        effects += machine.wake(due)
    return effects


def machine_with(*clients: int) -> CoordinatorMachine:
    machine = CoordinatorMachine(CONFIG)
    for client_id in clients:
        say(machine, client_id, register(client_id))
    return machine


def running() -> CoordinatorMachine:
    machine = machine_with(*range(N))
    for client_id in range(N):
        say(machine, client_id, ready())
    return machine


def listen(machine: CoordinatorMachine, until: int, *, silent: int) -> list[Any]:
    """Send a heartbeat of all but one client every second; returns the effects that fell due."""
    due: list[Any] = []
    for second in range(1, until + 1):
        due += machine.wake(float(second))
        for client_id in set(range(N)) - {silent}:
            say(machine, client_id, BEAT, float(second))
    return due


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


def test_a_late_heartbeat_is_told_to_the_others() -> None:
    machine = running()
    listen(machine, 3, silent=2)
    (ack,) = answers(say(machine, 0, BEAT, 3.0), HeartbeatAck)
    assert [(late.client_id, late.age) for late in ack.overdue] == [(2, 3.0)]


def test_the_leaders_of_groups_are_told_when_to_begin_the_next_wave() -> None:
    machine = CoordinatorMachine(dataclasses.replace(CONFIG, num_clients=6, group_size=3, addresses=None))
    for client_id in range(6):
        say(machine, client_id, register(client_id, num_clients=6))
    told = {client_id: answers(say(machine, client_id, BEAT, 7.75), HeartbeatAck) for client_id in range(6)}
    assert {client_id: ack.wave_in for client_id, [ack] in told.items()} == {0: 0.25, 3: 0.25, 1: 0, 2: 0, 4: 0, 5: 0}


def test_silence_is_judged_later_while_a_large_job_comes_up() -> None:
    many = 64
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


def test_a_broken_session_is_evidence_and_a_refused_probe_is_proof() -> None:
    machine = running()
    (probe,) = end(machine, 1)
    assert probe == ev.Probe(probe.tag, "h1:5000", 1001)
    assert not is_closed(machine)
    assert machine.handle(ev.ProbeAnswered(probe.tag, ProbeOutcome.REFUSED, "h1:5000 refuses"), 0.1) == []
    found = verdict(judged(machine, 0.2))
    assert found.client_id == 1
    assert found.cause.startswith("process died (h1:5000 refuses; its connection")


def resume(machine: CoordinatorMachine, client_id: int, now: float) -> list[Any]:
    return list(machine.handle(ev.SessionResumed(100 + client_id), now))


def test_a_suspect_that_lives_is_asked_again_until_it_comes_back() -> None:
    machine = running()
    (probe,) = end(machine, 1, 1.0)
    for moment, outcome in ((1.1, ProbeOutcome.ALIVE), (1.4, ProbeOutcome.SILENT)):
        machine.handle(ev.ProbeAnswered(probe.tag, outcome, "seen"), moment)
        (probe,) = (effect for effect in judged(machine, moment + 0.3) if isinstance(effect, ev.Probe))
    assert resume(machine, 1, 2.0) == []
    machine.handle(ev.ProbeAnswered(probe.tag, ProbeOutcome.REFUSED, "an old answer"), 2.1)
    (ack,) = answers(say(machine, 0, BEAT, 2.2), HeartbeatAck)
    assert listen(machine, 30, silent=99) == []
    assert [(news.client_id, news.reconnects) for news in ack.updates if news.reconnects] == [(1, 1)]


def test_a_suspect_that_dies_before_it_comes_back_is_found_by_the_next_probe() -> None:
    machine = running()
    (probe,) = end(machine, 1, 1.0)
    machine.handle(ev.ProbeAnswered(probe.tag, ProbeOutcome.ALIVE, "seen"), 1.1)
    (probe,) = (effect for effect in judged(machine, 1.4) if isinstance(effect, ev.Probe))
    machine.handle(ev.ProbeAnswered(probe.tag, ProbeOutcome.REFUSED, "refused"), 1.5)
    assert verdict(judged(machine, 2.0)).cause.startswith("process died (refused")


def test_a_suspect_that_does_not_come_back_is_given_up_after_the_timeout_and_no_earlier() -> None:
    machine = running()
    end(machine, 1, 1.0)
    due = listen(machine, 11, silent=1)
    found = verdict(due)
    assert (found.client_id, found.also) == (1, ())
    assert found.cause == "no heartbeat for 10.0 s (its connection to the coordinator ended: it broke)"


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


def test_who_is_away_when_the_job_fails_is_waited_for_and_told() -> None:
    machine = running()
    end(machine, 1)
    found = say(machine, 2, Goodbye("ready", "ValueError", "a bug"))
    assert 101 in found[0].sessions
    assert not machine.has_told_all
    resume(machine, 1, 0.5)
    assert machine.has_told_all


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


def test_a_replaced_process_has_died() -> None:
    machine = running()
    (probe,) = end(machine, 1)
    machine.handle(ev.ProbeAnswered(probe.tag, ProbeOutcome.REPLACED, "another"), 0.1)
    assert verdict(judged(machine, 0.2)).cause.startswith("process died")


def test_clients_that_die_together_are_named_together() -> None:
    machine = CoordinatorMachine(dataclasses.replace(CONFIG, num_clients=4))
    for client_id in range(4):
        say(machine, client_id, register(client_id, num_clients=4))
    for probe in [*end(machine, 2), *end(machine, 1)]:
        machine.handle(ev.ProbeAnswered(probe.tag, ProbeOutcome.REFUSED, "refused"), 0.1)
    found = verdict(judged(machine, 0.2))
    assert (found.error, found.client_id, found.also) == ("PeerFailedError", 2, (1, 1))


def test_all_others_that_die_at_once_are_named_with_their_causes() -> None:
    machine = running()
    for probe in [*end(machine, 2), *end(machine, 1)]:
        machine.handle(ev.ProbeAnswered(probe.tag, ProbeOutcome.REFUSED, "refused"), 0.1)
    found = verdict(judged(machine, 0.2))
    assert (found.error, found.client_id, found.also) == ("PeerFailedError", 2, (1, 1))
    assert found.cause.startswith("process died (refused")


def test_a_coordinator_that_all_others_have_given_up_blames_itself_and_tells_their_causes() -> None:
    machine = running()
    listen(machine, 5, silent=99)
    say(machine, 1, Goodbye("ready", "CoordinatorLostError", "no heartbeat for 10.0 s"), 5.1)
    (probe,) = end(machine, 2, 5.2)
    machine.handle(ev.ProbeAnswered(probe.tag, ProbeOutcome.ALIVE, "it answers"), 5.2)
    say(machine, 2, Goodbye("ready", "CoordinatorLostError", "no heartbeat for 10.0 s"), 5.3)
    found = verdict(judged(machine, 6.0))
    assert (found.error, found.client_id) == ("CoordinatorLostError", 0)
    assert "clients 1-2: it lost the coordinator: no heartbeat for 10.0 s" in found.cause


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


def test_a_patience_that_ends_as_the_job_comes_up_fails_a_job_that_is_up() -> None:
    found = verdict(say(running(), 1, Goodbye("commit", "RendezvousTimeoutError", "I waited"), 1.0))
    assert (found.error, found.client_id) == ("PeerFailedError", 1)
    assert "RendezvousTimeoutError: its initialization_timeout had passed when the job came up" in found.cause


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


def test_a_link_that_breaks_between_the_living_is_explained_by_a_death_elsewhere() -> None:
    machine = running()
    (doubtful,) = say(machine, 0, Suspect(2, "closed"))
    machine.handle(ev.ProbeAnswered(doubtful.tag, ProbeOutcome.ALIVE, "it answers"), 0.1)
    (probe,) = end(machine, 1, 0.2)
    machine.handle(ev.ProbeAnswered(probe.tag, ProbeOutcome.REFUSED, "refused"), 0.3)
    found = verdict(judged(machine, 0.5))
    assert (found.client_id, found.also) == (1, ())


def test_a_link_that_nothing_explains_ends_the_job_soon() -> None:
    machine = running()
    (doubtful,) = say(machine, 0, Suspect(2, "closed"))
    machine.handle(ev.ProbeAnswered(doubtful.tag, ProbeOutcome.ALIVE, "it answers"), 0.1)
    found = verdict(judged(machine, 5.0))
    assert (found.client_id, "its ring link with client 0 broke: closed" in found.cause) == (2, True)


def test_a_link_that_is_refused_ends_nothing_where_its_far_end_lives() -> None:
    machine = running()
    (probe,) = say(machine, 0, LinkDelayed(2, "host-2:9000 refuses", True))
    machine.handle(ev.ProbeAnswered(probe.tag, ProbeOutcome.ALIVE, "it answers"), 0.1)
    assert machine.wake(5.0) == []
    (probe,) = say(machine, 0, LinkDelayed(2, "host-2:9000 refuses", True), 5.0)
    machine.handle(ev.ProbeAnswered(probe.tag, ProbeOutcome.REFUSED, "it refuses"), 5.1)
    found = verdict(judged(machine, 5.5))
    assert found.client_id == 2
    assert "process died (it refuses; client 0 cannot open its ring link: host-2:9000 refuses)" in found.cause


def test_a_link_that_gets_no_answer_is_named_when_the_patience_ends() -> None:
    machine = machine_with(*range(N))
    assert say(machine, 0, LinkDelayed(1, "host-1:9000: no answer", False)) == []
    assert say(machine, 0, LinkDelayed(99, "nonsense", True)) == []
    say(machine, 0, Heartbeat(1, "ring", True, ""))
    found = verdict(say(machine, 2, Goodbye("ring", "RendezvousTimeoutError", "")))
    assert found.cause == (
        "the patience of client 2 ended first; client 0: no link to client 1 yet: host-1:9000: no answer"
    )


def test_a_broken_link_has_its_far_end_probed_once() -> None:
    machine = running()
    (probe,) = say(machine, 0, Suspect(1, "reset"))
    assert isinstance(probe, ev.Probe)
    assert probe.incarnation == 1001
    assert say(machine, 2, Suspect(1, "reset")) == []
    assert say(machine, 2, Suspect(99, "nonsense")) == []


def test_an_answer_to_no_question_is_dropped() -> None:
    machine = running()
    assert machine.handle(ev.ProbeAnswered((1, 999), ProbeOutcome.REFUSED, ""), 0.0) == []
    assert not is_closed(machine)


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


def test_a_stranger_that_registers_without_an_address_to_link_with_is_refused() -> None:
    machine = CoordinatorMachine(CONFIG)
    (refused,) = answers(say(machine, 1, register(1, link_address="garbage")), Refused)
    assert refused.field == "link_address"


def test_a_suspect_that_has_not_registered_is_ignored() -> None:
    machine = machine_with(0)
    assert say(machine, 0, Suspect(2, "made up")) == []


def test_a_session_registers_once() -> None:
    machine = machine_with(0)
    assert say(machine, 0, register(1)) == [ev.CloseSession(100)]


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


def test_it_tells_the_services_who_is_who_and_where() -> None:
    machine = running()
    assert machine.is_member(1, 1001)
    assert not machine.is_member(1, 1002)
    assert not machine.is_member(9, 1009)
    say(machine, 1, replace(BEAT, step=7, step_age=0.0))
    assert machine.whereabouts(1) == "h1:9000, in phase ready, at step 7"
    assert not machine.dead()


def test_a_client_that_has_said_that_it_leaves_may_end_before_the_others_have_met() -> None:
    machine = running()
    say(machine, 1, Leave(30.0), 1.0)
    assert say(machine, 0, Suspect(1, "reset"), 1.0) == []
    end(machine, 1)
    assert not machine.wake(5.0)
    say(machine, 0, Leave(30.0), 5.0)
    assert answers(say(machine, 2, Leave(30.0), 5.0), Dismissed) == [Dismissed(())]


def test_a_suspect_who_turns_out_to_be_leaving_is_suspected_no_more() -> None:
    machine = running()
    (probe,) = say(machine, 0, Suspect(1, "reset"), 1.0)
    machine.handle(ev.ProbeAnswered(probe.tag, ProbeOutcome.REFUSED, "refused"), 1.0)
    say(machine, 1, Leave(30.0), 1.01)
    assert not [effect for effect in machine.wake(2.0) if isinstance(effect, ev.SendTo) and verdict_of(effect)]


def verdict_of(effect: ev.SendTo) -> Verdict | None:
    return effect.message if isinstance(effect.message, Verdict) else None
