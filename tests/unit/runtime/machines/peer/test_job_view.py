"""One client's view of the others: what it waits for, and how a failure shows in it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from bringup.errors import PeerFailedError, RendezvousTimeoutError
from bringup.runtime.machines.peer.job_view import ClientState, JobView
from bringup.runtime.machines.phases import Phase
from bringup.transport.wire.messages import (
    Beat,
    Behind,
    Formed,
    GroupPlace,
    HeartbeatAck,
    MemberInfo,
    MemberUpdate,
    Overdue,
    Step,
    Verdict,
)

from .....lib.peer_configs import peer_config

N = 4
CONFIG = peer_config(N)
MEMBERS = tuple(MemberInfo(i, f"h{i}:9000", f"node-{i}", i, 1000 + i, f"h{i}:5000") for i in range(N))
FORMED = Formed("ab" * 16, 1, GroupPlace(0, 1, 0, N - 1), (MEMBERS[0], MEMBERS[2]))


def ack(*updates: MemberUpdate, behind: Behind | None = None, **fields: Any) -> HeartbeatAck:
    return replace(HeartbeatAck(1, (), (), updates), behind=() if behind is None else (behind,), **fields)


def formed() -> JobView:
    view = JobView(CONFIG, 0.0)
    view.form(FORMED)
    return view


def test_it_waits_for_the_coordinator_then_for_the_missing_then_for_those_furthest_behind() -> None:
    view = JobView(CONFIG, 0.0)
    view.dial_reason = "connection refused"
    assert view.waiting_for(Phase.CONNECT) == "client 0 (h0:9000): connection refused"
    view.acknowledge(ack(missing=(2, 3), num_missing=2), 1.0)
    view.dial_reason = ""
    assert view.waiting_for(Phase.RENDEZVOUS) == "clients 2-3"
    view.form(FORMED)
    assert view.waiting_for(Phase.RING) == "clients 0, 2-3 in phase rendezvous"
    view.acknowledge(ack(behind=Behind("rendezvous", (3, 3), 1)), 2.0)
    assert view.waiting_for(Phase.RING) == "client 3 in phase rendezvous"
    view.acknowledge(ack(behind=Behind("ring", (0, 3), 4)), 3.0)
    assert view.waiting_for(Phase.DEVICES) == "the SIM devices of this client"


def test_an_answer_to_no_heartbeat_takes_back_nothing_that_is_known() -> None:
    view = formed()
    view.acknowledge(ack(overdue=(Overdue(2, 3.0),), behind=Behind("ring", (3, 3), 1)), 1.0)
    view.acknowledge(HeartbeatAck(0, (), (), ()), 2.0)
    assert view.age_of(2, 2.0) == 4.0
    assert view.waiting_for(Phase.MERGE) == "client 3 in phase ring"


def test_its_own_phase_is_newer_than_what_the_coordinator_counted() -> None:
    view = formed()
    view.acknowledge(ack(behind=Behind("devices", (1, 2), 2)), 1.0)
    assert view.waiting_for(Phase.MERGE) == "client 2 in phase devices"
    view.acknowledge(ack(behind=Behind("devices", (1, 1), 1)), 2.0)
    assert view.waiting_for(Phase.MERGE) == "client 1 in phase merge"
    view.acknowledge(ack(behind=Behind("merge", (2, 2), 1)), 3.0)
    assert view.waiting_for(Phase.MERGE) == "clients 1-2 in phase merge"


def test_of_very_many_it_knows_the_first_and_their_number() -> None:
    view = JobView(peer_config(1000), 0.0)
    view.acknowledge(ack(missing=(2, 2, 4, 5), num_missing=40), 1.0)
    assert view.waiting_for(Phase.RENDEZVOUS) == "clients 2, 4-5 and 37 more"
    error = view.timed_out(Phase.RENDEZVOUS)
    assert isinstance(error, RendezvousTimeoutError)
    assert (list(error.missing), list(error.present)) == ([2, 4, 5], [0, 1, 3])
    assert "40 of 1000 clients did not come" in str(error)
    assert "clients 2, 4-5 and 37 more. Present: clients 0-1, 3 and 957 more. " in str(error)
    view.form(replace(FORMED, place=GroupPlace(0, 1, 0, 999)))
    view.acknowledge(ack(behind=Behind("devices", (2, 2, 4, 5), 40)), 2.0)
    assert view.waiting_for(Phase.RING) == "clients 2, 4-5 and 37 more in phase devices"
    assert "40 of 1000 clients were not ready" in str(view.timed_out(Phase.RING))


def test_it_counts_itself_once_where_not_all_are_named() -> None:
    view = JobView(peer_config(1000, client_id=900), 0.0)
    view.form(replace(FORMED, place=GroupPlace(0, 1, 0, 999)))
    view.acknowledge(ack(behind=Behind("merge", (2, 2, 4, 5), 40)), 1.0)
    assert view.waiting_for(Phase.MERGE) == "clients 2, 4-5, 900 and 36 more in phase merge"
    assert "40 of 1000 clients were not ready" in str(view.timed_out(Phase.MERGE))
    view.acknowledge(ack(behind=Behind("merge", (2, 2, 901, 901), 40)), 2.0)
    assert view.waiting_for(Phase.MERGE) == "clients 2, 900-901 and 38 more in phase merge", "it was not counted"


def test_what_asks_for_a_heartbeat_is_no_news() -> None:
    view = formed()
    late, behind = (Overdue(3, 2.0),), Behind("devices", (3, 3), 1)
    view.acknowledge(ack(behind=behind, overdue=late), 1.0)
    view.acknowledge(HeartbeatAck(0, (), (), ()), 5.0)
    assert view.age_of(3, 5.0) == 6.0
    assert view.waiting_for(Phase.RING) == "client 3 in phase devices"


def test_a_wave_tells_who_is_furthest_behind() -> None:
    leader, member = formed(), formed()
    leader.acknowledge(ack(behind=Behind("devices", (3, 3), 1)), 1.0)
    told = leader.tell(Beat(1, 0.0, 0.0, answered_age=0.5), 1.5)
    assert member.told_by(told, 1.5)
    assert member.waiting_for(Phase.RING) == "client 3 in phase devices"
    leader.acknowledge(ack(), 2.0)
    member.told_by(leader.tell(Beat(2, 0.0, 0.0, answered_age=0.25), 2.5), 2.5)
    assert member.waiting_for(Phase.RING) == "clients 0, 2-3 in phase rendezvous"


def test_ages_and_steps_count_from_when_the_coordinator_told_them() -> None:
    view = formed()
    view.acknowledge(ack(steps=(Step(2, 41, 0.5),)), 10.0)
    assert view.step_of(2, 12.0) == (41, 2.5)
    assert (view.age_of(2, 12.0), view.age_of(1, 12.0)) == (2.0, 0.0)


def test_after_the_commit_a_client_of_which_nothing_is_known_is_ready_and_well() -> None:
    view = formed()
    view.acknowledge(ack(MemberUpdate(3, False, "hot"), MemberUpdate(2, True, "", 1)), 1.0)
    view.commit()
    assert view.state_of(0) == ClientState(Phase.READY, True, "")
    assert view.state_of(3) == ClientState(Phase.READY, False, "hot")
    assert view.state_of(2) == ClientState(Phase.READY, True, "", 1)


def test_a_failure_shows_at_all_clients_that_the_verdict_names() -> None:
    view = formed()
    view.commit()
    verdict = Verdict("PeerFailedError", 2, "h2:9000", "node-2", "ready", "process died", (), (3, 3))
    error = view.of_verdict(verdict)
    assert isinstance(error, PeerFailedError)
    view.end(error)
    assert [view.state_of(i).phase for i in range(N)] == [Phase.READY, Phase.READY, Phase.FAILED, Phase.FAILED]
    assert [view.state_of(i).health for i in (2, 3)] == ["process died", "it failed with client 2"]


def test_in_a_job_that_ended_in_order_all_are_closed() -> None:
    view = formed()
    view.end(None)
    assert [view.state_of(i) for i in range(N)] == [ClientState(Phase.CLOSED, True, "")] * N
