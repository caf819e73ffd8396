"""The shutdown of one client, and what is known of all once the job is over."""

from __future__ import annotations

from bringup.errors import (
    CoordinatorLostError,
    PeerFailedError,
)
from bringup.runtime.machines.peer import events as ev
from bringup.runtime.machines.peer.job_view import ClientState
from bringup.runtime.machines.phases import Phase
from bringup.transport.wire.messages import (
    Commit,
    Dismissed,
    HeartbeatAck,
    Leave,
    Leaver,
    Leaving,
    MemberUpdate,
    Suspect,
    Verdict,
)

from .....lib.peer_scripts import N, Script, committing, failure, leaving, sent, up


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


def test_a_shutdown_that_nobody_answers_ends_by_itself() -> None:
    script = leaving()
    for second in range(1, 10):
        script.hear(HeartbeatAck(second, (), (), ()), float(second) / 2)
    error = failure(script.pass_time(20.0))
    assert isinstance(error, CoordinatorLostError)
    assert script.now == 6.0


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
