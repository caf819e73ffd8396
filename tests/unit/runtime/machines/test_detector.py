"""The failure detector: judgement of silence."""

from __future__ import annotations

import pytest

from bringup.runtime.machines.detector import Detector, Lag

TIMEOUT, INTERVAL = 10.0, 1.0


def listened(until: float, *heard: tuple[int, float], sleeps: tuple[float, float] | None = None) -> Detector:
    """Return a detector that has been awake every interval up to `until`, but not between `sleeps`."""
    detector = Detector(TIMEOUT, INTERVAL)
    moments = sorted({float(second) for second in range(int(until) + 1)} | {when for _, when in heard})
    for moment in moments:
        if sleeps is None or not sleeps[0] < moment < sleeps[1]:
            detector.awake(moment)
        for client_id, when in heard:
            if when == moment:
                detector.heard(client_id, moment)
    return detector


def test_nobody_is_silent_before_the_timeout() -> None:
    """It counts from when the next heartbeat was due: who heard one and fell silent at once is not accused early."""
    detector = listened(11.0, (1, 0.5))
    assert detector.silent(11.4) == []
    assert detector.silent(11.5) == [(1, 10.0)]


def test_who_may_have_fallen_silent_with_the_first_goes_with_it() -> None:
    detector = listened(11.0, (1, 0.0), (2, 0.9), (3, 1.1))
    assert [client_id for client_id, _ in detector.silent(11.0)] == [1, 2]


def test_the_most_overdue_comes_first() -> None:
    detector = listened(20.0, (1, 2.0), (2, 1.0), (3, 18.0), (1, 3.0))
    assert detector.silent(20.0) == [(2, 18.0), (1, 16.0)]
    assert detector.overdue(20.0, 1.5, 64) == [(2, 19.0), (1, 17.0), (3, 2.0)]
    assert detector.overdue(20.0, 1.5, 2) == [(2, 19.0), (1, 17.0)]
    assert detector.overdue(20.0, 18.0, 64) == [(2, 19.0)]


def test_who_is_forgotten_is_not_judged() -> None:
    detector = listened(20.0, (1, 1.0))
    detector.forget(1)
    detector.forget(2)
    assert detector.silent(20.0) == []
    assert detector.deadline() is None


@pytest.mark.parametrize("length", [2.5, 20.0, 3600.0])
def test_a_judge_that_slept_blames_nobody_until_it_has_listened_for_a_full_timeout(length: float) -> None:
    detector = listened(4.0, (1, 4.0))
    woke = 4.0 + length
    for second in range(10):
        detector.awake(woke + second)
        assert detector.silent(woke + second) == []
    detector.awake(woke + 10.0)
    assert [client_id for client_id, _ in detector.silent(woke + 10.0)] == [1]


def test_a_judge_that_is_a_little_late_still_judges() -> None:
    detector = listened(10.0, (1, 0.0))
    detector.awake(11.9)
    assert detector.silent(11.9) == [(1, 10.9)]


def test_it_asks_to_be_woken_when_silence_becomes_death_and_every_interval_until_then() -> None:
    detector = listened(3.0, (1, 2.0))
    assert detector.deadline() == 4.0
    detector = listened(12.0, (1, 2.0))
    detector.awake(12.5)
    assert detector.deadline() == 13.0


@pytest.mark.parametrize("interval", [0.1, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("timeout", [0.35, 1.1, 10.0])
def test_it_judges_when_it_asked_to_be_woken_for_that_and_not_a_rounding_later(timeout: float, interval: float) -> None:
    for tenth in range(1, 200):
        detector = Detector(timeout, interval)
        detector.awake(tenth / 10)
        detector.heard(1, tenth / 10)
        while (due := detector.deadline()) is not None and not detector.silent(due):
            assert due > (detector._last_awake or 0.0), "it is woken in vain, again and again"
            detector.awake(due)


def test_it_sleeps_while_there_is_nobody_to_judge() -> None:
    assert listened(3.0).deadline() is None


def test_a_sign_of_life_that_is_told_late_counts_from_when_it_was_given() -> None:
    detector = listened(11.0, (1, 0.5), (2, 0.5), (3, 0.5))
    detector.all_heard([1, 2, 4], 5.0)
    detector.heard(2, 1.0)
    assert detector.overdue(11.5, 1.5, 9) == [(3, 11.0), (1, 6.5), (2, 6.5)]
    assert detector.silent(11.5) == [(3, 10.0)]


def test_who_is_late_is_told_although_nobody_is_looked_for() -> None:
    """Between two looks at all of them, too; and whoever is heard meanwhile is not late any more."""
    detector = listened(4.0, (1, 2.0), (2, 2.45), (3, 3.0))
    assert detector.overdue(4.0, 1.5, 9) == [(1, 2.0), (2, pytest.approx(1.55))]
    detector.heard(1, 4.02)
    assert detector.overdue(4.05, 1.5, 9) == [(2, pytest.approx(1.6))]
    assert [client_id for client_id, _ in detector.overdue(4.55, 1.5, 9)] == [2, 3]


def test_after_a_change_of_the_timeout_all_have_it_once() -> None:
    detector = listened(9.0, (1, 0.0))
    detector.judge_by(3.0, INTERVAL, 9.0)
    for second in range(10, 13):
        assert detector.silent(second - 0.1) == []
        detector.awake(float(second))
    assert detector.silent(12.0) == [(1, 11.0)]
    assert detector.slept(12.0) == 0.0


# Lag.


def test_a_machine_that_is_woken_late_reads_for_a_moment_and_then_judges() -> None:
    lag = Lag()
    lag.woken(due=1.0, now=1.05)
    assert not lag.is_reading(1.05), "loops are late by a little"
    lag.woken(due=2.0, now=12.0)
    assert lag.is_reading(12.99)
    assert not lag.is_reading(13.0), "for no more than a second"
    assert lag.after(12.5) == 13.0
    assert lag.after(14.0) == 14.0


def test_a_machine_that_is_always_late_judges_every_other_time() -> None:
    lag = Lag()
    reads = []
    now, due = 0.0, 1.0
    for _ in range(4):
        now += 3.0
        lag.woken(due=lag.after(due), now=now)
        reads.append(lag.is_reading(now))
        if not lag.is_reading(now):
            due = now + 1.0
    assert reads == [True, False, True, False]


def test_a_machine_that_is_stopped_again_before_it_was_due_reads_again() -> None:
    lag = Lag()
    lag.woken(due=lag.after(1.0), now=3.0)
    assert lag.is_reading(3.2)
    lag.woken(due=lag.after(4.0), now=6.0)
    assert lag.is_reading(6.0)
