"""Clients that the coordinator hears through the leaders of their groups."""

from __future__ import annotations

from bringup.runtime.machines.coordinator.group_reports import GroupReports
from bringup.runtime.machines.detector import Detector
from bringup.runtime.machines.groups import Groups
from bringup.transport.wire.messages import GroupReport

N = 9
GROUPS = Groups(N, 3)
WHOLE = (GroupReport(0.0),)


def reports() -> tuple[GroupReports, Detector]:
    detector = Detector(10.0, 1.0)
    detector.awake(0.0)
    for client_id in range(N):
        detector.heard(client_id, 0.0)
    return GroupReports(GROUPS, detector, 0.0), detector


def test_a_report_counts_the_group_as_heard_when_the_wave_began() -> None:
    told, detector = reports()
    detector.forget(5)  # it has left
    told.take(3, (GroupReport(0.5),), 4.0)
    told.take(7, (GroupReport(0.5),), 4.0)
    ages = dict(detector.overdue(5.0, 0.0, N))
    assert ages == {0: 5.0, 1: 5.0, 2: 5.0, 3: 1.5, 4: 1.5, 6: 5.0, 7: 5.0, 8: 5.0}, "client 7 leads no group"


def test_a_group_whose_leader_is_silent_is_asked_once() -> None:
    told, detector = reports()
    assert told.deadline() == 1.25
    assert told.to_ask(1.25) == []
    for second in range(2, 5):
        detector.awake(float(second))
        for leader in (0, 6):
            told.take(leader, WHOLE, float(second))
    assert told.to_ask(4.9) == []
    detector.awake(5.0)
    assert told.to_ask(5.5) == [], "it looks now and then"
    assert told.to_ask(6.25) == [3, 4, 5]
    assert told.to_ask(7.5) == []
    for leader in (0, 3, 6):
        told.take(leader, WHOLE, 8.0)
    assert told.to_ask(9.0) == []
    for second in (7.0, 9.0, 11.0, 13.0):
        detector.awake(second)
    assert told.to_ask(13.5) == list(range(N)), "all are silent"


def test_a_client_is_asked_that_waits_for_a_wave_though_its_leader_is_heard() -> None:
    told, detector = reports()
    for second in range(1, 7):
        detector.awake(float(second))
        for client_id in (0, 1, 2, 3, 5, 6, 7, 8):
            detector.heard(client_id, float(second))
    assert told.to_ask(6.0) == [4]
    detector.heard(4, 6.0)
    assert told.to_ask(7.25) == []


def test_a_group_whose_leader_leaves_and_has_gone_is_asked_at_once_and_again() -> None:
    told, detector = reports()
    detector.awake(1.0)
    detector.forget(3)
    told.left(3, 1.0)
    assert told.deadline() == 1.0
    assert told.to_ask(1.0) == [4, 5]
    assert told.to_ask(2.25) == []
    for second in (2.0, 4.0, 6.0):
        detector.awake(second)
        for leader in (0, 6):
            told.take(leader, WHOLE, second)
    assert told.to_ask(6.0) == [4, 5]
    detector.heard(3, 7.0)
    told.take(3, WHOLE, 7.0)
    assert told.to_ask(11.5) == [0, 1, 2, 6, 7, 8], "it has come back, and the others are silent"


def test_a_client_that_leads_nobody_may_go() -> None:
    told, detector = reports()
    detector.forget(4)
    told.left(4, 1.0)
    assert told.deadline() == 1.25
    assert told.to_ask(1.25) == []


def test_a_coordinator_that_did_not_run_asks_nobody() -> None:
    told, detector = reports()
    detector.awake(60.0)
    assert told.to_ask(60.0) == []
    detector.awake(62.0)
    detector.awake(64.0)
    assert told.to_ask(64.9) == []


def test_leaders_are_told_of_an_end_first_and_whom_the_culprits_would_tell() -> None:
    told, _ = reports()
    assert told.told_first([4, 6]) == [0, 3, 6, 2, 3, 8]


def test_a_small_job_has_no_leaders() -> None:
    told = GroupReports(Groups(N), Detector(10.0, 1.0), 0.0)
    assert not told.are_used
    assert told.told_first([4]) == []
    assert told.clients_of(0) == range(0)
    assert told.to_ask(100.0) == []
    assert told.deadline() is None
