"""Clients that leave while others wait: who is told what, and which calls end by it."""

from __future__ import annotations

from typing import Any

import pytest

from bringup.errors import PeerFailedError
from bringup.runtime.client.service_client import ServiceClient, name_of_set
from bringup.runtime.machines.barrier.failures import RoundCounts
from bringup.runtime.machines.coordinator.departures import Departures
from bringup.runtime.machines.failure_errors import collective_without
from bringup.runtime.machines.service_machine import ServiceMachine
from bringup.transport.wire.messages import Leave, Leaver, Leaving, MemberInfo
from bringup.transport.wire.services import (
    CancelCall,
    Done,
    EnterBarrier,
    GetKey,
    Refusal,
    ServiceReply,
    ServiceRequest,
    SetKey,
    Value,
)

N = 3


class Job:
    """The services of a job; a client's session has its id, and tickets count."""

    def __init__(self, num_clients: int = N) -> None:
        self.services = ServiceMachine(num_clients, 2**20, lambda c: f"host-{c}, in phase ready", tuple)
        self.tickets = 0

    def call(self, client_id: int, make: Any, *arguments: Any) -> dict[int, ServiceReply]:
        self.tickets += 1
        request: ServiceRequest = make(self.tickets, *arguments)
        return by_client(self.services.handle(client_id, client_id, request, 0.0))

    def enter(self, client_id: int, name: str = "b", ids: tuple[int, ...] = ()) -> dict[int, ServiceReply]:
        return self.call(client_id, EnterBarrier, name, ids, -1.0)

    def leave(self, client_id: int) -> dict[int, ServiceReply]:
        return by_client(self.services.leave(client_id, 0.0))

    def meet(self, times: int) -> None:
        for _ in range(times):
            for client_id in range(N):
                self.enter(client_id)


def by_client(replies: list[tuple[int, ServiceReply]]) -> dict[int, ServiceReply]:
    assert len({session for session, _ in replies}) == len(replies)
    return dict(replies)


def text_of(replies: dict[int, ServiceReply], *client_ids: int) -> str:
    """Return what the calls of these clients, and no others, are told, that somebody leaves."""
    assert sorted(replies) == sorted(client_ids)
    refusals = [reply for reply in replies.values() if isinstance(reply, Refusal)]
    assert [refusal.error for refusal in refusals] == ["PeerFailedError"] * len(client_ids)
    (text,) = {refusal.text for refusal in refusals}
    return text


# Barriers.


def test_a_barrier_that_a_leaver_has_not_come_to_fails_at_once_and_says_in_which_round() -> None:
    job = Job()
    job.meet(7)
    job.enter(0)
    job.enter(2)
    text = text_of(job.leave(1), 0, 2)
    assert text.startswith(
        "barrier 'b': client 1 (host-1, in phase ready) is leaving the job (shutdown) after round 7; "
        "clients 0, 2 wait in round 8."
    )


def test_later_calls_that_name_a_leaver_fail_at_once() -> None:
    job = Job()
    job.meet(1)
    assert job.leave(1) == {}
    assert "after round 1; client 0 waits in round 2." in text_of(job.enter(0), 0)
    assert "client 1 (" in text_of(job.enter(2, "other", (1, 2)), 2)


def test_a_barrier_of_other_clients_is_not_touched() -> None:
    job = Job()
    job.enter(0, "of two", (0, 0, 2, 2))
    assert job.leave(1) == {}
    assert set(map(type, job.enter(2, "of two", (0, 0, 2, 2)).values())) == {Done}


def test_a_leaver_that_has_come_and_waits_is_waited_for_by_nobody() -> None:
    job = Job()
    job.enter(1)
    assert job.leave(1) == {}
    assert job.enter(0) == {}
    assert set(map(type, job.enter(2).values())) == {Done}


def test_a_leaver_that_withdraws_its_call_fails_the_round() -> None:
    job = Job()
    job.enter(1)
    job.enter(0)
    job.leave(1)
    replies = job.services.handle(1, 1, CancelCall(1), 0.0)
    assert "client 0 waits in round 1" in text_of(by_client(replies), 0)


def test_a_leaver_whose_session_ends_fails_the_round() -> None:
    job = Job()
    job.enter(1)
    job.enter(0)
    job.leave(1)
    assert "client 0 waits in round 1" in text_of(by_client(job.services.close_session(1, 0.0)), 0)


def test_a_live_block_is_called_so() -> None:
    job = Job()
    job.enter(0, name_of_set("live", range(N)))
    assert text_of(job.leave(1), 0).startswith("live(): client 1 (host-1")


def test_what_is_raised_names_the_leaver() -> None:
    job = Job()
    job.enter(0)
    (refusal,) = job.leave(2).values()
    assert isinstance(refusal, Refusal)
    error = ServiceClient(lambda _: None, lambda c: f"host-{c}:9000").refused(refusal)  # type: ignore[arg-type, return-value]
    assert isinstance(error, PeerFailedError)
    assert (error.client_id, error.address, error.phase) == (2, "host-2:9000", "leaving")
    assert error.cause == "it is leaving the job (shutdown)"


def test_rounds_are_counted_for_the_names_used_last() -> None:
    counts = RoundCounts()
    assert counts.ended("a") == 0
    counts.count("a")
    counts.count("a")
    assert (counts.ended("a"), counts.ended("b")) == (2, 0)
    for number in range(5000):
        counts.count(f"step {number}")
    assert (counts.ended("a"), counts.ended("step 4999")) == (None, 1)


# The key-value store.


def test_a_get_waits_on_for_any_who_is_left_and_no_longer() -> None:
    job = Job()
    job.call(0, GetKey, "k", True)
    assert job.leave(1) == {}
    assert "all other clients are leaving" in text_of(job.leave(2), 0)
    assert "key 'k' is not set" in text_of(job.call(0, GetKey, "k", True), 0)
    assert list(job.call(0, GetKey, "k", False).values()) == [Value(3, None)]


def test_a_get_of_a_leaver_is_answered_by_who_is_left() -> None:
    job = Job()
    job.call(1, GetKey, "k", True)
    job.leave(1)
    job.leave(2)
    assert job.call(0, SetKey, "k", b"1", False) == {0: Done(2), 1: Value(1, b"1")}


def test_a_get_of_a_client_that_is_alone_from_the_start_waits_for_its_own() -> None:
    job = Job(1)
    assert job.call(0, GetKey, "k", True) == {}


# What all are told.


def leave(departures: Departures, client_id: int, collectives: int, now: float) -> list[Leaving]:
    departures.add(client_id, Leave(5.0, collectives), now)
    return departures.announce(now)


def test_the_first_is_announced_at_once_and_those_that_follow_soon_together() -> None:
    departures = Departures(N)
    assert leave(departures, 4, 7, 0.0) == [Leaving((Leaver(4, 4, 7),))]
    assert departures.deadline() == 5.0
    for client_id in (9, 5, 6, 8):
        assert leave(departures, client_id, 7 if client_id < 9 else 8, 0.001) == []
    due = departures.deadline()
    assert due is not None
    assert due < 1.0
    assert departures.announce(due) == [Leaving((Leaver(5, 6, 7), Leaver(8, 8, 7), Leaver(9, 9, 8)))]
    assert departures.announce(due + 1) == []


def test_the_most_impatient_decides_how_long_leavers_wait_for_the_others() -> None:
    departures = Departures(N)
    for client_id, timeout, now in ((4, 5.0, 0.0), (5, 2.0, 1.0), (6, 60.0, 2.0)):
        departures.add(client_id, Leave(timeout), now)
    departures.announce(2.0)
    assert departures.deadline() == 3.0
    assert not departures.dismissal_is_due(2.9)
    assert departures.dismissal_is_due(3.0)


@pytest.mark.parametrize(("num_clients", "most"), [(2, 20), (5000, 4)])
def test_thousands_that_leave_one_after_the_other_are_told_in_few_messages(num_clients: int, most: int) -> None:
    departures = Departures(num_clients)
    told = [leave(departures, client_id, 0, client_id / num_clients) for client_id in range(num_clients)]
    assert sum(map(len, told)) <= most


def test_a_collective_says_whose_call_waits_for_whom() -> None:
    error = collective_without(MemberInfo(1, "h1:9000", "node-1", 7, 8, ""), 7, 0, 9)
    assert str(error).startswith(
        "client 1 (node-1, h1:9000) is leaving the job (shutdown) after collective 7; client 0 waits in collective 9."
    )
    assert (error.client_id, error.host, error.phase) == (1, "node-1", "leaving")
