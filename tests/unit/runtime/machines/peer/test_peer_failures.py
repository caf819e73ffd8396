"""The failures of one client, and of its bring-up: verdicts, goodbyes, broken links, deadlines."""

from __future__ import annotations

from typing import Any

import pytest

from bringup.errors import (
    AuthenticationError,
    DeviceInitializationError,
    PeerFailedError,
    RendezvousTimeoutError,
)
from bringup.runtime.machines.peer import events as ev
from bringup.runtime.machines.phases import Phase
from bringup.transport.wire.messages import (
    Commit,
    Goodbye,
    Heartbeat,
    HeartbeatAck,
    LinkDelayed,
    Register,
    Suspect,
    Verdict,
)

from .....lib.peer_scripts import (
    STAGES,
    VERDICT,
    begun,
    committing,
    failure,
    formed,
    leaving,
    merging,
    sent,
    up,
    waiting,
)


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


@pytest.mark.parametrize("stage", [formed, merging, committing, up])
def test_a_broken_link_is_reported_once_and_the_coordinator_decides(stage: Any) -> None:
    script = stage()
    assert sent(script.take(ev.LinkBroken(2, "reset"))) == [Suspect(2, "reset")]
    assert script.take(ev.LinkBroken(0, "reset")) == []
    assert script.machine.phase is not Phase.CLOSED


def test_neighbours_who_do_not_trust_each_other_end_the_job() -> None:
    script = formed()
    effects = script.take(ev.LinkUntrusted(2, "its certificate is refused"))
    [goodbye] = sent(effects)
    assert isinstance(goodbye, Goodbye)
    assert "AuthenticationError" in goodbye.error
    assert isinstance(failure(effects), AuthenticationError)
    assert str(failure(effects)) == "client 2 and this one do not trust each other: its certificate is refused"


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


def test_others_patience_may_end_first() -> None:
    verdict = Verdict("RendezvousTimeoutError", 0, "", "", "rendezvous", "the patience of client 0", (3, 3), ())
    error = failure(waiting().hear(verdict))
    assert isinstance(error, RendezvousTimeoutError)
    assert error.missing == {3: "h3:9000"}
    assert "the patience of client 0" in str(error)
