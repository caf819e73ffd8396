"""One client's view of the others: what it waits for, and how a failure shows in it."""

from __future__ import annotations

from bringup.errors import PeerFailedError
from bringup.runtime.machines.peer.job_view import JobView
from bringup.runtime.machines.phases import Phase
from bringup.transport.wire.messages import Formed, GroupPlace, HeartbeatAck, MemberInfo, MemberUpdate, Step, Verdict

from .....lib.peer_configs import peer_config

N = 4
CONFIG = peer_config(N)
MEMBERS = tuple(MemberInfo(i, f"h{i}:9000", f"node-{i}", i, 1000 + i, f"h{i}:5000") for i in range(N))
FORMED = Formed("ab" * 16, 1, GroupPlace(0, 1, 0, N - 1), (MEMBERS[0], MEMBERS[2]))


def ack(*updates: MemberUpdate, missing: tuple[int, ...] = (), steps: tuple[Step, ...] = ()) -> HeartbeatAck:
    return HeartbeatAck(1, missing, (), updates, steps)


def formed() -> JobView:
    view = JobView(CONFIG, 0.0)
    view.form(FORMED)
    return view


def test_it_waits_for_the_coordinator_then_for_the_missing_then_for_those_furthest_behind() -> None:
    view = JobView(CONFIG, 0.0)
    view.dial_reason = "connection refused"
    assert view.waiting_for(Phase.CONNECT) == "client 0 (h0:9000): connection refused"
    view.acknowledge(ack(missing=(2, 3)), 1.0)
    view.dial_reason = ""
    assert view.waiting_for(Phase.RENDEZVOUS) == "clients 2-3"
    view.form(FORMED)
    view.acknowledge(ack(*(MemberUpdate(i, Phase.RING, True, "") for i in (0, 2))), 2.0)
    assert view.waiting_for(Phase.RING) == "client 3 in phase rendezvous"
    view.acknowledge(ack(MemberUpdate(3, Phase.RING, True, "")), 3.0)
    assert view.waiting_for(Phase.DEVICES) == "the SIM devices of this client"


def test_ages_and_steps_count_from_when_the_coordinator_told_them() -> None:
    view = formed()
    view.acknowledge(ack(steps=(Step(2, 41, 0.5),)), 10.0)
    assert view.step_of(2, 12.0) == (41, 2.5)
    assert (view.age_of(2, 12.0), view.age_of(1, 12.0)) == (2.0, 0.0)


def test_after_the_commit_a_client_of_which_nothing_is_known_is_ready_and_well() -> None:
    view = formed()
    view.acknowledge(ack(*(MemberUpdate(i, Phase.COMMIT, i != 3, "", i == 2) for i in range(N))), 1.0)
    view.commit()
    assert view.update_of(0) is None
    unwell, back = view.update_of(3), view.update_of(2)
    assert unwell is not None
    assert back is not None
    assert (unwell.phase, unwell.healthy) == (Phase.READY, False)
    assert (back.phase, back.reconnects) == (Phase.READY, 1)


def test_a_failure_shows_at_all_clients_that_the_verdict_names() -> None:
    view = formed()
    verdict = Verdict("PeerFailedError", 2, "h2:9000", "node-2", "ready", "process died", (), (3, 3))
    error = view.of_verdict(verdict)
    assert isinstance(error, PeerFailedError)
    view.end(error)
    assert [view.update_of(i) is None for i in range(N)] == [True, True, False, False]
    first, other = view.update_of(2), view.update_of(3)
    assert first is not None
    assert other is not None
    assert (first.phase, first.health) == (Phase.FAILED, "process died")
    assert other.health == "it failed with client 2"


def test_in_a_job_that_ended_in_order_all_are_closed() -> None:
    view = formed()
    view.end(None)
    assert [view.update_of(i) for i in range(N)] == [MemberUpdate(i, Phase.CLOSED, True, "") for i in range(N)]
