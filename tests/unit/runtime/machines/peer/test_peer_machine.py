"""The bring-up of one client, one event at a time."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from bringup.errors import (
    BringupError,
    RegistrationRefusedError,
    TopologyError,
)
from bringup.runtime.machines.peer import events as ev
from bringup.runtime.machines.phases import Phase
from bringup.transport.wire.messages import (
    Commit,
    Goodbye,
    LinkDelayed,
    Ready,
    Refused,
    Register,
)

from .....lib.peer_scripts import (
    DEVICES,
    FORMED,
    MEMBERS,
    ROSTER,
    STAGES,
    TABLE,
    Script,
    begun,
    committing,
    failure,
    formed,
    leaving,
    merging,
    registering,
    sent,
    up,
    waiting,
)


def test_search_and_devices_begin_at_once() -> None:
    assert [type(effect) for effect in Script().take(ev.Begin())] == [ev.Connect, ev.StartBackend]


def test_it_registers_as_soon_as_it_is_connected() -> None:
    script = begun()
    (message,) = sent(script.take(ev.Connected(script.tags[ev.Connect], "h1:5000")))
    assert isinstance(message, Register)
    assert (message.client_id, message.incarnation, message.address) == (1, 1001, "h1:9000")
    assert (message.link_address, message.pid, message.device_type) == ("h1:5000", 77, "SIM")


def test_it_links_with_both_neighbours_once_the_job_has_formed() -> None:
    (effect,) = waiting().hear(FORMED)
    assert isinstance(effect, ev.ConnectRing)
    assert (effect.neighbours, effect.epoch) == ((MEMBERS[0], MEMBERS[2]), 1)


@pytest.mark.parametrize("are_devices_first", [False, True])
def test_it_merges_once_it_has_its_links_and_its_devices(are_devices_first: bool) -> None:
    script = formed()
    linked, started = (
        ev.RingConnected(script.tags[ev.ConnectRing]),
        ev.BackendStarted(script.tags[ev.StartBackend], DEVICES),
    )
    one, other = (started, linked) if are_devices_first else (linked, started)
    assert script.take(one) == []
    (merge,) = script.take(other)
    assert merge == ev.Merge(script.tags[ev.Merge], DEVICES)


def test_client_0_hands_out_the_roster_that_it_was_given() -> None:
    script = waiting()
    script.hear(replace(FORMED, roster=ROSTER.data))
    script.take(ev.BackendStarted(script.tags[ev.StartBackend], DEVICES))
    (merge,) = script.take(ev.RingConnected(script.tags[ev.ConnectRing]))
    assert merge.roster == ROSTER.data


def test_devices_that_are_up_before_the_job_has_formed_are_kept() -> None:
    script = waiting()
    assert script.take(ev.BackendStarted(script.tags[ev.StartBackend], DEVICES)) == []
    script.hear(FORMED)
    assert [type(e) for e in script.take(ev.RingConnected(script.tags[ev.ConnectRing]))] == [ev.Merge]


def test_it_reports_both_digests_and_its_phases() -> None:
    script = merging()
    (report,) = sent(script.take(ev.Merged(script.tags[ev.Merge], TABLE, ROSTER)))
    assert isinstance(report, Ready)
    assert report.roster_digest == ROSTER.digest
    assert report.digest == b"digest"
    assert {span.name for span in report.spans} >= {"rendezvous", "devices", "ring", "merge"}


def test_it_is_up_when_it_hears_the_commit_and_not_before() -> None:
    for stage in STAGES[:5]:
        assert stage().hear(Commit(())) == []
    (effect,) = committing().hear(Commit(()))
    assert effect == ev.Up("ab" * 16, 1, ROSTER, TABLE, ())


@pytest.mark.parametrize(
    ("stage", "phase"),
    [
        (begun, Phase.CONNECT),
        (waiting, Phase.RENDEZVOUS),
        (formed, Phase.DEVICES),
        (merging, Phase.MERGE),
        (committing, Phase.COMMIT),
        (up, Phase.READY),
        (leaving, Phase.LEAVING),
    ],
)
def test_the_phase_it_shows(stage: Any, phase: Phase) -> None:
    assert stage().machine.phase is phase


def test_results_with_an_old_tag_are_dropped() -> None:
    script = merging()
    stale = 1
    for event in (
        ev.Connected(stale, "h"),
        ev.RingConnected(stale),
        ev.BackendStarted(stale, ()),
        ev.BackendFailed(stale, BringupError("old")),
        ev.Merged(stale, TABLE, ROSTER),
        ev.MergeFailed(stale, BringupError("old")),
    ):
        assert script.take(event) == []
    tag = script.tags[ev.Merge]
    assert script.take(ev.Merged(tag, TABLE, ROSTER))
    assert script.take(ev.Merged(tag, TABLE, ROSTER)) == [], "a result counts once"


def test_a_merge_that_fails_is_told() -> None:
    script = merging()
    goodbye, failed = script.take(ev.MergeFailed(script.tags[ev.Merge], TopologyError("core id 5 twice")))
    assert goodbye.message == Goodbye(Phase.MERGE, "TopologyError", "core id 5 twice")
    assert isinstance(failed.error, TopologyError)


def test_a_refusal_is_final() -> None:
    error = failure(registering().hear(Refused("num_clients", "4", "5", "Look at the jobs.")))
    assert isinstance(error, RegistrationRefusedError)
    assert (error.field, error.ours, error.theirs) == ("num_clients", "4", "5")


def test_a_link_that_cannot_be_opened_yet_is_waited_for_and_named() -> None:
    script = formed()
    assert sent(script.take(ev.LinkDelayed(2, "no answer", False))) == [LinkDelayed(2, "no answer", False)]
    assert "(no link to client 2 yet: no answer)" in script.machine.progress(0.0).waiting_for
    script.take(ev.RingConnected(script.tags[ev.ConnectRing]))
    assert "no link" not in script.machine.progress(0.0).waiting_for


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        (begun, "client 0 (h0:9000)"),
        (lambda: waiting(2, 3), "client 2 (h2:9000), client 3 (h3:9000)"),
        (merging, "in phase rendezvous"),
        (up, ""),
    ],
)
def test_progress_says_whom_it_waits_for(stage: Any, words: str) -> None:
    assert words in stage().machine.progress(1.0).waiting_for
