"""Members of a job: held once, and told to each client as changes."""

from __future__ import annotations

from bringup.runtime.machines.coordinator.members import Members
from bringup.runtime.machines.phases import Phase
from bringup.transport.wire.messages import PROTOCOL_VERSION, MemberUpdate, Register


def register(client_id: int, num_clients: int = 4) -> Register:
    return Register(
        client_id=client_id,
        num_clients=num_clients,
        job_name="worker",
        protocol_version=PROTOCOL_VERSION,
        package_version="0",
        incarnation=1000 + client_id,
        address=f"h{client_id}:9000",
        hostname=f"node-{client_id}",
        pid=client_id,
        link_address=f"h{client_id}:5000",
        device_type="SIM",
        heartbeat_interval=1.0,
    )


def members_with(*client_ids: int, num_clients: int = 4) -> Members:
    members = Members(num_clients)
    for client_id in client_ids:
        members.add(register(client_id, num_clients), 100 + client_id)
    return members


def changed(members: Members, seen: int) -> tuple[list[int], int]:
    updates, news = members.changes_after(seen)
    return [update.client_id for update in updates], news


def test_what_has_changed_is_the_health_and_the_reconnections() -> None:
    members = members_with(0, 1, 2, 3)
    members.note(members[0], Phase.RING, True, "")
    for client_id in (1, 2):
        members.note(members[client_id], Phase.RING, False, "too hot")
    assert changed(members, 0) == ([1, 2], 2)
    members.note(members[1], Phase.MERGE, False, "too hot")  # nothing new
    members.reconnect(members[2])
    assert changed(members, 2) == ([2], 3)
    assert changed(members, 0) == ([1, 2], 3)
    assert members.changes_after(0)[0] == (MemberUpdate(1, False, "too hot"), MemberUpdate(2, False, "too hot", 1))


def test_very_many_changes_come_in_several_answers() -> None:
    members = members_with(*range(100), num_clients=100)
    for client_id in range(100):
        members.reconnect(members[client_id])
    first, seen = changed(members, 0)
    rest, news = changed(members, seen)
    assert (first + rest, len(first), news) == (list(range(100)), 64, 100)


def test_all_clients_get_one_object_for_a_change() -> None:
    members = members_with(0, 1)
    members.note(members[1], Phase.RING, False, "too hot")
    ((one,), _), ((other,), _) = members.changes_after(0), members.changes_after(0)
    assert one is other


def test_with_the_commit_all_are_ready() -> None:
    members = members_with(0, 1, 2, 3)
    members.note(members[1], Phase.COMMIT, True, "")
    members.commit()
    assert {member.phase for member in members} == {Phase.READY}


def test_a_member_that_moves_to_another_session_is_found_there_only() -> None:
    members = members_with(0, 1)
    members[1].is_connected = False
    assert members.absent() == {1, 2, 3}
    members.move(members[1], 201)
    assert members.at(101) is None
    assert members.at(201) is members[1]
    assert members.sessions == (100, 201)
    assert members.absent() == {2, 3}


def test_the_missing_are_the_unregistered() -> None:
    members = members_with(0, 3)
    assert members.missing() == [1, 2]
    members.add(register(1), 101)
    assert members.missing() == [2]


def test_those_behind_are_in_the_earliest_phase() -> None:
    members = members_with(0, 3, 1, 2)
    for client_id in (0, 2):
        members.note(members[client_id], Phase.RING, True, "")
    assert members.behind() == (Phase.RENDEZVOUS, [1, 3])


def test_a_text_names_a_few_of_many_ring_links_in_trouble() -> None:
    members = members_with(*range(10), num_clients=10)
    for client_id in range(10):
        members.note(members[client_id], Phase.RING if client_id else Phase.READY, True, "")
        members[client_id].trouble = "no answer"
    assert members.link_trouble() == "; client 1: no answer; client 2: no answer; client 3: no answer"
