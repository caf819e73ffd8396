"""The watch of a peer over its coordinator: when to dial again, when to ask its process, when it is lost."""

from __future__ import annotations

import dataclasses

from bringup.runtime.machines.peer.coordinator_watch import CoordinatorWatch

from .....lib.peer_configs import peer_config

CONFIG = peer_config(2)


def heard(at: float) -> CoordinatorWatch:
    watch = CoordinatorWatch(CONFIG, 0.0)
    watch.awake(at)
    watch.heard(at)
    return watch


def test_another_connection_is_dialled_well_before_silence_is_death() -> None:
    watch = heard(1.0)
    assert watch.redial_due() is None, "nothing is unanswered"
    watch.sent(2.0)
    watch.sent(3.0)
    assert watch.redial_due() == 6.0
    watch.resumed(6.0, is_sign_of_life=False)
    watch.sent(7.0)
    assert (watch.redial_due(), watch.reconnects) == (11.0, 1)


def test_a_process_that_answers_is_dialled_as_early_and_given_more_time_to_open_the_session() -> None:
    watch = heard(1.0)
    watch.sent(2.0)
    assert watch.ask_due() == 3.5
    watch.answered(4.0, is_alive=True)
    assert watch.ask_due() == 6.5
    assert watch.redial_due() == 6.0
    assert watch.redials() == 20.0
    watch.heard(7.0)
    watch.sent(8.0)
    assert watch.redial_due() == 12.0
    assert watch.redials() is None, "it is not slow any more"


def test_a_process_that_answers_is_not_lost_when_the_job_is_up_either() -> None:
    """The next connection has no more time than usual: others are open, so that it is slow for a while only."""
    watch = heard(1.0)
    watch.up(1.0)
    for second in range(2, 30):
        watch.awake(float(second))
        watch.answered(float(second), is_alive=True)
        assert watch.silence(second) == ""
    assert watch.redials() is None


def test_heartbeats_are_paced_while_a_large_job_comes_up() -> None:
    watch = CoordinatorWatch(peer_config(10_000), 0.0)
    assert watch.interval == 40.0
    watch.awake(0.0)
    watch.heard(0.0)
    assert all(watch.awake(second) or not watch.silence(second) for second in range(100))
    watch.up(100.0)
    assert watch.interval == 1.0
    assert all(watch.awake(second) or not watch.silence(second) for second in range(100, 110))
    watch.awake(110.0)
    assert watch.silence(110.0), "all have the shorter time-out once"


def test_silence_is_told_with_the_broken_connection() -> None:
    watch = heard(1.0)
    watch.lost = "the connection broke"
    for second in range(2, 13):
        watch.awake(float(second))
    assert watch.silence(11.9) == ""
    assert watch.silence(12.0) == "no heartbeat for 10.0 s (the connection broke)"
    assert watch.death("refused") == "process died (refused; the connection broke)"


def test_a_question_shows_that_the_coordinator_lives_and_not_that_it_hears_this_client() -> None:
    watch = CoordinatorWatch(CONFIG, 0.0)
    for second in range(30):
        watch.awake(float(second))
        watch.heard(float(second), is_question=second > 0)
        watch.sent(float(second))
        assert watch.silence(float(second)) == ""
    assert watch.redial_due() == 5.0
    watch.told(0.0, 0.0, 29.0)
    assert watch.is_doubted
    watch.heard(29.0, is_question=True)
    assert watch.is_doubted, "its own connection is broken one way"
    watch.heard(29.0)
    assert not watch.is_doubted


def test_a_registration_that_is_not_answered_waits_ever_longer() -> None:
    watch = CoordinatorWatch(CONFIG, 0.0)
    watch.registers(1.0)
    assert watch.registration_due() == 8.5, "a quarter of the time to come up"
    assert watch.registers_anew() == "it did not answer the registration within 7.5 s"
    watch.registers(9.0)
    assert watch.registration_due() == 24.0
    watch = CoordinatorWatch(dataclasses.replace(CONFIG, initialization_timeout=300.0), 0.0)
    watch.registers(1.0)
    assert watch.registration_due() == 11.0
