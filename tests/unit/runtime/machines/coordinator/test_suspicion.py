"""Suspects of the coordinator, and the bound on concurrent probes."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from bringup.runtime.machines.coordinator.suspicion import Suspicions
from bringup.transport.ports import ProbeOutcome

MANY = 1000


def calls_of(action: Callable[[], object]) -> int:
    """Return how many functions are called in it, each turn of a generator being one."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    former = sys.getprofile()
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(former)
    return calls


def suspicious_of(number: int) -> Suspicions:
    suspicions = Suspicions()
    for client_id in range(number):
        suspicions.session_broke(client_id, "it broke", 0.0)
    return suspicions


@pytest.mark.parametrize(
    "look", [Suspicions.deadline, lambda s: s.doubtful(0.0), lambda s: s.probes(-1.0), lambda s: s.session_resumed(7)]
)
def test_an_event_costs_the_same_however_many_are_suspected(look: Callable[[Suspicions], object]) -> None:
    suspicions = suspicious_of(MANY)
    assert calls_of(lambda: look(suspicions)) < 100


def test_so_many_are_asked_at_once_and_the_next_as_one_has_answered() -> None:
    suspicions = suspicious_of(MANY)
    asked = suspicions.probes(0.0)
    assert len(asked) == 64
    assert suspicions.probes(1.0) == []
    assert suspicions.deadline() is None
    suspicions.answered(asked[0][0], ProbeOutcome.SILENT, "no answer", 1.0, has_slept=False)
    assert suspicions.deadline() == 0.0
    ((_, client_id),) = suspicions.probes(1.0)
    assert client_id == 64


def test_in_the_end_all_are_asked_and_asked_again() -> None:
    suspicions = suspicious_of(MANY)
    counts = dict.fromkeys(range(MANY), 0)
    now = 0.0
    while min(counts.values()) < 2:
        for tag, client_id in suspicions.probes(now):
            counts[client_id] += 1
            suspicions.answered(tag, ProbeOutcome.ALIVE, "it answers", now, has_slept=False)
        due = suspicions.deadline()
        assert due is not None
        now = max(now, due)
    assert max(counts.values()) == 2


def test_who_comes_back_is_not_asked_any_more_and_may_be_suspected_again() -> None:
    suspicions = suspicious_of(1)
    ((tag, _),) = suspicions.probes(0.0)
    suspicions.session_resumed(0)
    suspicions.answered(tag, ProbeOutcome.REFUSED, "it refuses", 0.1, has_slept=False)
    assert not suspicions.dead
    assert suspicions.deadline() is None
    suspicions.session_broke(0, "it broke again", 0.2)
    assert [client_id for _, client_id in suspicions.probes(0.2)] == [0]


def test_after_a_sleep_of_the_judge_a_proof_waits_for_what_others_have_said() -> None:
    dues = []
    for has_slept in (False, True):
        suspicions = suspicious_of(1)
        ((tag, _),) = suspicions.probes(0.0)
        suspicions.answered(tag, ProbeOutcome.REFUSED, "it refuses", 1.0, has_slept=has_slept)
        dues.append(suspicions.deadline())
    assert dues == [1.02, 1.25]
