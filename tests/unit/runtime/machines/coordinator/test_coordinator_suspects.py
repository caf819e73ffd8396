"""Suspects of the coordinator: broken sessions and links, probes, and several deaths at once."""

from __future__ import annotations

import dataclasses

from bringup.runtime.machines.coordinator import events as ev
from bringup.runtime.machines.coordinator.machine import CoordinatorMachine
from bringup.transport.ports import ProbeOutcome
from bringup.transport.wire.messages import (
    Goodbye,
    Heartbeat,
    HeartbeatAck,
    Leave,
    LinkDelayed,
    Suspect,
    Verdict,
)

from .....lib.coordinator_scripts import (
    BEAT,
    CONFIG,
    N,
    answers,
    end,
    is_closed,
    judged,
    listen,
    machine_with,
    register,
    resume,
    running,
    say,
    verdict,
)


def test_a_broken_session_is_evidence_and_a_refused_probe_is_proof() -> None:
    machine = running()
    (probe,) = end(machine, 1)
    assert probe == ev.Probe(probe.tag, "h1:5000", 1001)
    assert not is_closed(machine)
    assert machine.handle(ev.ProbeAnswered(probe.tag, ProbeOutcome.REFUSED, "h1:5000 refuses"), 0.1) == []
    found = verdict(judged(machine, 0.2))
    assert found.client_id == 1
    assert found.cause.startswith("process died (h1:5000 refuses; its connection")


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


def test_a_suspect_that_has_not_registered_is_ignored() -> None:
    machine = machine_with(0)
    assert say(machine, 0, Suspect(2, "made up")) == []


def test_a_suspect_who_turns_out_to_be_leaving_is_suspected_no_more() -> None:
    machine = running()
    (probe,) = say(machine, 0, Suspect(1, "reset"), 1.0)
    machine.handle(ev.ProbeAnswered(probe.tag, ProbeOutcome.REFUSED, "refused"), 1.0)
    say(machine, 1, Leave(30.0), 1.01)
    assert not [effect for effect in machine.wake(2.0) if isinstance(effect, ev.SendTo) and verdict_of(effect)]


def verdict_of(effect: ev.SendTo) -> Verdict | None:
    return effect.message if isinstance(effect.message, Verdict) else None
