"""The record of how long each phase took."""

from __future__ import annotations

import pytest

from bringup.runtime.machines.phases import Phase, Timeline, furthest_behind, slowest
from bringup.transport.wire.messages import Span


def test_phases_may_overlap_and_are_told_from_the_beginning_on() -> None:
    timeline = Timeline(3, 100.0)
    timeline.enter(Phase.RENDEZVOUS, 100.0)
    timeline.enter(Phase.DEVICES, 101.0)
    timeline.leave(Phase.DEVICES, 104.0)
    timeline.leave(Phase.RENDEZVOUS, 102.0)
    timeline.enter(Phase.RING, 105.0)
    assert timeline.spans() == (Span("rendezvous", 0.0, 2.0, 3), Span("devices", 1.0, 3.0, 3))
    assert timeline.elapsed(107.5) == 7.5


def test_a_phase_begins_once() -> None:
    timeline = Timeline(0, 0.0)
    timeline.enter(Phase.RING, 0.0)
    with pytest.raises(AssertionError):
        timeline.enter(Phase.RING, 1.0)


def test_the_slowest_client_of_each_phase_is_kept() -> None:
    spans = [Span("ring", 0, 1, 0), Span("merge", 1, 5, 0), Span("ring", 0, 3, 1), Span("merge", 3, 2, 1)]
    assert slowest(spans) == (Span("ring", 0, 3, 1), Span("merge", 1, 5, 0))
    assert slowest([]) == ()


@pytest.mark.parametrize(
    ("phases", "behind"),
    [
        ({0: "ready", 1: "merge", 2: "ring", 3: "ring"}, {2: "ring", 3: "ring"}),
        ({0: "commit", 1: "commit"}, {0: "commit", 1: "commit"}),
        ({0: "rendezvous", 1: "devices"}, {0: "rendezvous"}),
    ],
)
def test_those_that_are_furthest_behind_are_waited_for(phases: dict[int, str], behind: dict[int, str]) -> None:
    assert furthest_behind(phases) == behind


def test_phases_are_in_the_order_in_which_they_come() -> None:
    order = ["connect", "rendezvous", "devices", "ring", "merge", "commit", "ready", "leaving", "closed", "failed"]
    assert [str(phase) for phase in Phase] == order
