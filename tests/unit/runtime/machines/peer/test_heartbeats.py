"""The schedule of heartbeats."""

from __future__ import annotations

import pytest

from bringup.runtime.machines.peer.heartbeats import Heartbeats, revised
from bringup.runtime.machines.phases import Phase
from bringup.transport.wire.messages import GroupReport, Heartbeat, Leave


def begun() -> Heartbeats:
    heartbeats = Heartbeats(0.25)
    assert heartbeats.sent_at is None
    heartbeats.begin(0.0)
    assert heartbeats.sent_at == 0.0, "the registration is the first"
    return heartbeats


def test_a_report_that_has_waited_for_another_connection_is_left_out() -> None:
    """Its age is not what it says."""
    beat = Heartbeat(5, "ready", True, "", 41, 0.5, group=(GroupReport(0.25),))
    assert revised(beat) == Heartbeat(5, "ready", True, "", 41, 0.5)
    leave = Leave(5.0)
    assert revised(leave) is leave


def test_a_phase_that_lasts_is_reported_soon_and_one_that_does_not_is_not() -> None:
    heartbeats = begun()
    heartbeats.phase_changed(Phase.DEVICES, 0.3)
    soon = heartbeats.due(1.0, Phase.DEVICES, 0.0, None)
    assert soon == pytest.approx(0.55)
    assert heartbeats.due(1.0, Phase.CONNECT, 0.0, None) == 1.0, "it is over again"
    assert heartbeats.send(Phase.DEVICES, 0.55) == 1
    assert heartbeats.due(1.55, Phase.DEVICES, 0.55, None) == 1.55


@pytest.mark.parametrize("phase", [Phase.COMMIT, Phase.READY, Phase.LEAVING])
def test_a_phase_that_begins_with_a_message_is_not_reported_beside_it(phase: Phase) -> None:
    heartbeats = begun()
    heartbeats.phase_changed(Phase.MERGE, 0.3)
    heartbeats.phase_changed(phase, 0.4)
    assert heartbeats.due(1.0, phase, 0.0, None) == 1.0


def test_shortly_before_a_client_gives_up_it_asks_for_fresh_news_once() -> None:
    heartbeats = begun()
    assert heartbeats.due(1.0, Phase.CONNECT, 0.0, 0.9) == pytest.approx(0.65)
    assert heartbeats.due(1.0, Phase.CONNECT, 0.7, 0.9) == 1.0, "the news is fresh"
    heartbeats.send(Phase.CONNECT, 0.65)
    assert heartbeats.due(1.65, Phase.CONNECT, 0.0, 0.9) == 1.65, "it has asked"


def test_when_one_was_sent_that_was_answered_is_known() -> None:
    heartbeats = begun()
    assert heartbeats.answered_at is None
    numbers = [heartbeats.send(Phase.READY, float(second)) for second in (1, 2, 3)]
    heartbeats.answered(numbers[1])
    assert heartbeats.answered_at == 2.0
    heartbeats.answered(numbers[0])
    assert heartbeats.answered_at == 2.0
    assert heartbeats.sent_at == 3.0
