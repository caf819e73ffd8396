"""One client's decisions, one event at a time."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from bringup.devices.base import LocalDevice
from bringup.errors import (
    BringupError,
    CoordinatorLostError,
    DeviceFailedError,
    DeviceInitializationError,
    PeerFailedError,
    RegistrationRefusedError,
    RendezvousTimeoutError,
    TopologyError,
)
from bringup.runtime.machines.core_table import CoreTable
from bringup.runtime.machines.device_kinds import DeviceKinds
from bringup.runtime.machines.peer import events as ev
from bringup.runtime.machines.peer.job_view import ClientState
from bringup.runtime.machines.peer.machine import PeerMachine
from bringup.runtime.machines.phases import Phase
from bringup.runtime.machines.roster import Roster
from bringup.transport.ports import ProbeOutcome
from bringup.transport.wire.messages import (
    ClientMessage,
    Commit,
    CoordinatorMessage,
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
    MemberInfo,
    MemberUpdate,
    Overdue,
    Ready,
    Refused,
    Register,
    Suspect,
    Verdict,
)

from .....lib.peer_configs import peer_config

N = 4
CONFIG = peer_config(N, addresses=tuple(f"h{client_id}:9000" for client_id in range(N)))
MEMBERS = tuple(MemberInfo(i, f"h{i}:9000", f"node-{i}", i, 1000 + i, f"h{i}:5000") for i in range(N))
FORMED = Formed("ab" * 16, 1, GroupPlace(0, 1, 0, N - 1), (MEMBERS[0], MEMBERS[2]))
ROSTER = Roster.of(MEMBERS)
DEVICES = (LocalDevice("SIM", 3), LocalDevice("SIM", 1), LocalDevice("odd", 2))
TABLE = CoreTable(
    np.ones(N, np.int32), np.arange(N, dtype=np.int32), None, b"digest", DeviceKinds(b"", (), np.zeros(0, int))
)
VERDICT = Verdict("PeerFailedError", 2, "h2:9000", "node-2", "merge", "process died", (), ())


class Script:
    """A peer machine and what it asked for, with the tags by effect."""

    def __init__(self) -> None:
        self.machine = PeerMachine(CONFIG, 0.0)
        self.now = 0.0
        self.tags: dict[type, ev.Tag] = {}

    def take(self, event: ev.PeerEvent, now: float | None = None) -> list[Any]:
        self.now = self.now if now is None else now
        return self._kept(self.machine.handle(event, self.now))

    def hear(self, message: CoordinatorMessage, now: float | None = None) -> list[Any]:
        return self.take(ev.Received(message), now)

    def wake(self, now: float) -> list[Any]:
        self.now = now
        return self._kept(self.machine.wake(now))

    def pass_time(self, until: float) -> list[Any]:
        """Wake the machine whenever it asks for it."""
        effects: list[Any] = []
        while (due := self.machine.deadline()) is not None and due <= until:
            effects += self.wake(due)
        return effects

    def _kept(self, effects: list[Any]) -> list[Any]:
        for effect in effects:
            if (tag := getattr(effect, "tag", None)) is not None:
                self.tags[type(effect)] = tag
        return effects


def begun() -> Script:
    script = Script()
    script.take(ev.Begin())
    return script


def registering() -> Script:
    script = begun()
    script.take(ev.Connected(script.tags[ev.Connect], "h1:5000"))
    return script


def waiting(*missing: int) -> Script:
    script = registering()
    script.hear(HeartbeatAck(0, (), (), ()))
    if missing:
        script.hear(HeartbeatAck(1, missing, (), ()))
    return script


def linked() -> Script:
    script = formed()
    script.take(ev.RingConnected(script.tags[ev.ConnectRing]))
    return script


def formed() -> Script:
    script = waiting()
    script.hear(FORMED)
    return script


def merging() -> Script:
    script = linked()
    script.take(ev.BackendStarted(script.tags[ev.StartBackend], DEVICES))
    return script


def committing() -> Script:
    script = merging()
    script.take(ev.Merged(script.tags[ev.Merge], TABLE, ROSTER))
    return script


def up() -> Script:
    script = committing()
    script.hear(Commit(()))
    return script


def leaving() -> Script:
    script = up()
    script.take(ev.LeaveRequested())
    return script


STAGES = [begun, registering, waiting, formed, merging, committing, up, leaving]


def sent(effects: list[Any]) -> list[ClientMessage]:
    return [effect.message for effect in effects if isinstance(effect, ev.Send)]


def of_kind(kind: type, effects: list[Any]) -> list[Any]:
    return [message for message in sent(effects) if isinstance(message, kind)]


def failure(effects: list[Any]) -> BaseException:
    """Return what the machine failed with, which must be the last that it asks for."""
    assert isinstance(effects[-1], ev.Failed)
    return effects[-1].error


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


@pytest.mark.parametrize("stage", STAGES[1:])
def test_a_verdict_ends_it_wherever_it_is(stage: Any) -> None:
    script = stage()
    effects = script.hear(VERDICT)
    error = failure(effects)
    assert isinstance(error, PeerFailedError)
    assert (error.client_id, error.phase, error.cause) == (2, "merge", "process died")
    assert sent(effects) == [], "everybody has heard it already"


@pytest.mark.parametrize("stage", STAGES)
def test_after_its_end_it_asks_for_nothing(stage: Any) -> None:
    script = stage()
    script.take(ev.Abort(KeyboardInterrupt()))
    assert script.machine.phase is Phase.CLOSED
    assert script.machine.deadline() is None
    assert script.hear(VERDICT) == []
    assert script.take(ev.LeaveRequested()) == []
    assert script.wake(1e6) == []


@pytest.mark.parametrize("stage", STAGES[1:])
def test_a_client_that_gives_up_says_goodbye(stage: Any) -> None:
    goodbye, failed = stage().take(ev.Abort(KeyboardInterrupt("by hand")))
    assert isinstance(goodbye.message, Goodbye)
    assert (goodbye.message.error, goodbye.message.cause) == ("KeyboardInterrupt", "by hand")
    assert isinstance(failed.error, KeyboardInterrupt)


def test_a_backend_that_fails_is_told_with_its_cause() -> None:
    script = formed()
    error = DeviceInitializationError("no driver", client_id=1, cause="no driver")
    goodbye, failed = script.take(ev.BackendFailed(script.tags[ev.StartBackend], error))
    assert goodbye.message == Goodbye(Phase.DEVICES, "DeviceInitializationError", "no driver")
    assert failed.error is error


def test_a_backend_that_fails_before_it_is_connected_is_told_once_it_is() -> None:
    script = begun()
    error = DeviceInitializationError("no driver")
    assert script.take(ev.BackendFailed(script.tags[ev.StartBackend], error), 0.1) == []
    effects = script.take(ev.Connected(script.tags[ev.Connect], "h1:5000"), 0.5)
    assert [type(message) for message in sent(effects)] == [Register, Goodbye]
    assert failure(effects) is error


def test_a_backend_that_fails_does_not_wait_long_for_a_coordinator() -> None:
    script = begun()
    error = DeviceInitializationError("no driver")
    script.take(ev.BackendFailed(script.tags[ev.StartBackend], error), 1.0)
    assert failure(script.pass_time(30.0)) is error
    assert script.now <= 5.0


def test_a_merge_that_fails_is_told() -> None:
    script = merging()
    goodbye, failed = script.take(ev.MergeFailed(script.tags[ev.Merge], TopologyError("core id 5 twice")))
    assert goodbye.message == Goodbye(Phase.MERGE, "TopologyError", "core id 5 twice")
    assert isinstance(failed.error, TopologyError)


def test_a_refusal_is_final() -> None:
    error = failure(registering().hear(Refused("num_clients", "4", "5", "Look at the jobs.")))
    assert isinstance(error, RegistrationRefusedError)
    assert (error.field, error.ours, error.theirs) == ("num_clients", "4", "5")


@pytest.mark.parametrize("stage", [formed, merging, committing, up])
def test_a_broken_link_is_reported_once_and_the_coordinator_decides(stage: Any) -> None:
    script = stage()
    assert sent(script.take(ev.LinkBroken(2, "reset"))) == [Suspect(2, "reset")]
    assert script.take(ev.LinkBroken(0, "reset")) == []
    assert script.machine.phase is not Phase.CLOSED


def test_a_link_that_cannot_be_opened_yet_is_waited_for_and_named() -> None:
    script = formed()
    assert sent(script.take(ev.LinkDelayed(2, "no answer", False))) == [LinkDelayed(2, "no answer", False)]
    assert "(no link to client 2 yet: no answer)" in script.machine.progress(0.0).waiting_for
    script.take(ev.RingConnected(script.tags[ev.ConnectRing]))
    assert "no link" not in script.machine.progress(0.0).waiting_for


@pytest.mark.parametrize("stage", [waiting, leaving])
def test_a_link_that_nobody_needs_may_break(stage: Any) -> None:
    assert stage().take(ev.LinkBroken(2, "reset")) == []


def test_a_broken_link_that_nobody_explains_ends_the_job() -> None:
    script = up()
    script.take(ev.LinkBroken(2, "reset"), 1.0)
    for second in range(2, 14):
        script.hear(HeartbeatAck(second, (), (), ()), float(second))
    error = failure(script.pass_time(14.5))
    assert isinstance(error, PeerFailedError)
    assert error.client_id == 2


def test_nobody_there_at_the_deadline() -> None:
    script = begun()
    script.take(ev.DialFailed("connection refused"))
    error = failure(script.pass_time(60.0))
    assert isinstance(error, RendezvousTimeoutError)
    assert error.missing == {0: "h0:9000"}
    assert "connection refused" in str(error)
    assert script.now == 30.0


def test_a_coordinator_that_does_not_answer_at_the_deadline() -> None:
    """It did not listen at first; that is not the reason any more."""
    script = begun()
    script.take(ev.DialFailed("connection refused"))
    script.take(ev.Connected(script.tags[ev.Connect], "h1:5000"), 29.0)
    error = failure(script.pass_time(60.0))
    assert isinstance(error, RendezvousTimeoutError)
    assert "it has not answered the registration yet" in str(error)


def test_a_coordinator_that_has_answered_is_no_longer_said_to_refuse() -> None:
    script = begun()
    script.take(ev.DialFailed("connection refused"))
    script.take(ev.Connected(script.tags[ev.Connect], "h1:5000"))
    script.hear(HeartbeatAck(0, (), (), ()))
    script.hear(HeartbeatAck(1, (2, 2), (), ()))
    assert script.machine.progress(1.0).waiting_for == "client 2 (h2:9000)"


def test_the_missing_at_the_deadline_are_those_of_the_last_answer() -> None:
    script = waiting(0, 0)
    for second in range(1, 31):
        script.hear(HeartbeatAck(second, (2, 3), (), ()), second - 0.5)
    effects = script.pass_time(60.0)
    error = failure(effects)
    assert isinstance(error, RendezvousTimeoutError)
    assert error.missing == {2: "h2:9000", 3: "h3:9000"}
    assert error.present == {0: "h0:9000", 1: "h1:9000"}
    assert isinstance(sent(effects)[-1], Goodbye)


def test_a_client_that_slept_over_its_deadline_hears_first_what_had_come_before() -> None:
    script = committing()
    assert not any(isinstance(effect, ev.Failed) for effect in script.wake(33.0))
    (came_up,) = script.hear(Commit(()), 33.1)
    assert isinstance(came_up, ev.Up)


def test_a_client_that_slept_over_its_deadline_gives_up_soon_where_nothing_came() -> None:
    script = committing()
    script.wake(33.0)
    assert isinstance(failure(script.pass_time(34.0)), RendezvousTimeoutError)


def test_a_departure_that_overtakes_the_commit_is_told_after_it() -> None:
    script, leavers = committing(), (Leaver(2, 2, 4),)
    assert not any(isinstance(effect, ev.OthersLeave) for effect in script.take(ev.Watched(Leaving(leavers))))
    came_up, others = script.hear(Commit(()))
    assert isinstance(came_up, ev.Up)
    assert others == ev.OthersLeave(leavers)
    assert script.take(ev.Watched(Leaving(leavers))) == []


def test_a_leaver_waits_for_its_own_end_whatever_those_that_stay_are_told() -> None:
    script = up()
    script.take(ev.LeaveRequested())
    verdict = Verdict("PeerFailedError", 1, "h1:9000", "node-1", "leaving", "it shut down", (), ())
    assert not any(isinstance(effect, ev.Failed) for effect in script.take(ev.Watched(verdict)))
    assert isinstance(script.hear(Dismissed(()))[-1], ev.Left)


def test_a_client_that_slept_writes_only_once_it_has_read() -> None:
    script = formed()
    effects = script.wake(9.0)
    effects += script.take(ev.LinkDelayed(2, "refused", True), 9.01)
    effects += script.take(ev.LinkBroken(0, "reset"), 9.02)
    assert effects == []
    verdict = Verdict("PeerFailedError", 2, "h2:9000", "node-2", "ring", "killed", (), ())
    assert [type(effect) for effect in script.hear(verdict, 9.03)] == [ev.Failed]


def test_a_client_that_slept_reports_what_it_saw_where_nothing_explains_it() -> None:
    script = formed()
    script.wake(9.0)
    script.take(ev.LinkDelayed(2, "refused", True), 9.01)
    script.take(ev.LinkBroken(0, "reset"), 9.02)
    reports = sent(script.pass_time(10.5))
    assert reports[:2] == [LinkDelayed(2, "refused", True), Suspect(0, "reset")]
    assert any(isinstance(message, Heartbeat) for message in reports)


def test_fresh_news_are_asked_for_just_before_the_deadline() -> None:
    script = waiting(2, 3)
    for second in range(30):
        script.pass_time(second + 0.2)
        script.hear(HeartbeatAck(second, (2, 3), (), ()), second + 0.2)
    effects = script.pass_time(29.9)
    assert script.now >= 29.75
    assert any(isinstance(message, Heartbeat) for message in sent(effects))


def test_others_patience_may_end_first() -> None:
    verdict = Verdict("RendezvousTimeoutError", 0, "", "", "rendezvous", "the patience of client 0", (3, 3), ())
    error = failure(waiting().hear(verdict))
    assert isinstance(error, RendezvousTimeoutError)
    assert error.missing == {3: "h3:9000"}
    assert "the patience of client 0" in str(error)


def test_a_shutdown_waits_to_be_dismissed() -> None:
    script = up()
    assert sent(script.take(ev.LeaveRequested(7))) == [Leave(5.0, 7)]
    assert script.take(ev.LeaveRequested()) == []
    assert script.hear(Dismissed(())) == [ev.Left(())]
    assert script.machine.deadline() is None


def test_who_leaves_is_known() -> None:
    script = up()
    leavers = (Leaver(2, 3, 7),)
    assert script.hear(Leaving(leavers)) == [ev.OthersLeave(leavers)]
    script.hear(Leaving((Leaver(0, 0, 6),)))
    assert script.machine.leavers == (0, 0, 2, 3)


def test_who_does_not_come_to_a_shutdown_is_named() -> None:
    script = leaving()
    script.hear(HeartbeatAck(1, (), (), (MemberUpdate(2, True, ""),)), 1.0)
    [left] = script.hear(Dismissed((2, 3)), 5.0)
    assert isinstance(left, ev.Left)
    assert left.missing == (2, 3)
    assert isinstance(left.error, PeerFailedError)
    assert (left.error.client_id, left.error.phase) == (2, "ready")
    assert "without client 2 (h2:9000), client 3 (h3:9000)" in str(left.error)
    assert "client 2 (node-2, h2:9000) is in phase ready" in str(left.error)


# What is known of all once the job is over.


READY = ClientState(Phase.READY, True, "")


def members(script: Script) -> list[ClientState]:
    return [script.machine.state_of(client_id) for client_id in range(N)]


def test_after_a_failure_it_is_known_who_failed_and_the_own_phase_is_kept() -> None:
    script = up()
    verdict = Verdict("PeerFailedError", 2, "h2:9000", "node-2", "ready", "process died", (), (3, 3))
    script.hear(verdict)
    died, with_it = (ClientState(Phase.FAILED, False, why) for why in ("process died", "it failed with client 2"))
    assert members(script) == [READY, READY, died, with_it]


def test_a_coordinator_that_is_lost_has_failed() -> None:
    script = up()
    script.take(ev.SessionLost("it broke"))
    script.take(ev.CoordinatorGone("its port refuses"))
    lost = ClientState(Phase.FAILED, False, "process died (its port refuses; it broke)")
    assert members(script) == [lost, READY, READY, READY]


def test_a_client_that_gives_up_has_failed_itself() -> None:
    script = up()
    script.take(ev.Abort(ZeroDivisionError("step 12")))
    assert members(script) == [READY, ClientState(Phase.FAILED, False, "ZeroDivisionError: step 12"), READY, READY]


def test_who_is_said_to_leave_is_leaving() -> None:
    script = up()
    script.hear(Leaving((Leaver(2, 3, 5),)))
    assert members(script) == [READY, READY, *[ClientState(Phase.LEAVING, True, "")] * 2]


def test_after_all_have_left_none_is_ready() -> None:
    script = leaving()
    script.hear(HeartbeatAck(1, (), (), (MemberUpdate(2, False, "cold"),)), 1.0)
    script.hear(Dismissed(()), 2.0)
    assert members(script) == [ClientState(Phase.CLOSED, True, "")] * N


def test_the_next_heartbeat_says_which_changes_are_known() -> None:
    script = up()
    script.hear(HeartbeatAck(3, (), (), (MemberUpdate(3, False, "cold"),), news=5), 1.0)
    script.hear(HeartbeatAck(4, (), (), (), news=0), 1.0)
    (beat,) = of_kind(Heartbeat, script.take(ev.HealthChanged(True, "well")))
    assert beat.seen == 5


def test_a_shutdown_that_nobody_answers_ends_by_itself() -> None:
    script = leaving()
    for second in range(1, 10):
        script.hear(HeartbeatAck(second, (), (), ()), float(second) / 2)
    error = failure(script.pass_time(20.0))
    assert isinstance(error, CoordinatorLostError)
    assert script.now == 6.0


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


def test_the_link_of_a_client_that_leaves_may_break_before_or_after_the_news() -> None:
    script = up()
    script.hear(Leaving((Leaver(2, 2, 0),)), 1.0)
    assert script.take(ev.LinkBroken(2, "reset"), 1.0) == []
    script = up()
    assert sent(script.take(ev.LinkBroken(2, "reset"), 1.0)) == [Suspect(2, "reset")]
    script.hear(Leaving((Leaver(2, 2, 0),)), 1.1)
    for second in range(2, 30):
        script.hear(HeartbeatAck(second, (), (), ()), float(second))
        script.machine.wake(float(second))
    assert script.machine.phase is Phase.READY
