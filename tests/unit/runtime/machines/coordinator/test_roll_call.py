"""The count of whom a job waits for: of very many only the first are told, and their number."""

from __future__ import annotations

from bringup.runtime.machines.coordinator.roll_call import RollCall
from bringup.runtime.machines.phases import Phase
from bringup.transport.wire.messages import Behind

from .test_members import members_with, register


def test_a_small_job_counts_each_time() -> None:
    members = members_with(0, 2)
    calls = RollCall(members, 4)
    assert calls.missing(0.0) == ((1, 1, 3, 3), 2)
    for client_id in (1, 3):
        members.add(register(client_id), 100 + client_id)
        members.note(members[client_id], Phase.RING, True, "")
    assert calls.missing(0.0) == ((), 0)
    assert calls.behind(0.0) == (Behind("rendezvous", (0, 0, 2, 2), 2),)


def test_a_job_of_a_thousand_counts_every_quarter_of_a_second_and_tells_the_first() -> None:
    members = members_with(*range(0, 1000, 2), num_clients=1000)
    calls = RollCall(members, 1000)
    ids, number = calls.missing(0.0)
    assert (ids[:4], len(ids), number) == ((1, 1, 3, 3), 2 * 64, 500)
    for client_id in range(1, 1000, 2):
        members.add(register(client_id, 1000), 100 + client_id)
        members.note(members[client_id], Phase.RING, True, "")
    assert calls.missing(0.2) == (ids, number)
    assert calls.missing(0.3) == ((), 0)
    ((phase, ids, number),) = [(each.phase, each.ids, each.num_clients) for each in calls.behind(0.3)]
    assert (phase, ids[:4], len(ids), number) == ("rendezvous", (0, 0, 2, 2), 2 * 64, 500)
    members.commit()
    assert calls.behind(0.5)[0].num_clients == 500
    assert calls.behind(0.6) == (Behind("ready", (0, 999), 1000),)
