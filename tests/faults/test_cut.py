"""Links that swallow packets: forgiven where they heal within `heartbeat_timeout`, told to everybody where not."""

from __future__ import annotations

import time
from typing import Literal

import pytest

from bringup.testing.job import LocalJob

from .assertions import (
    FAST,
    INTERVAL,
    TIMEOUT,
    all_but,
    check_names,
    check_silent,
    check_works,
    failure_of,
    wait_until_all_are_heard,
)

NAMESPACES = True

PATIENT = {**FAST, "heartbeat_timeout": 3.0}
# Well below a half of that: TCP sends again after ever longer pauses, and may take as long again as the cut lasted.
CUT_SECONDS = 0.8

Direction = Literal["in", "out", "both"]
EVERY_WAY: tuple[Direction, ...] = ("both", "in", "out")


@pytest.mark.parametrize("victim", [0, 2])
def test_cut_for_less_than_the_timeout_is_forgiven(job: LocalJob, victim: int) -> None:
    """Calls that wait meanwhile go on, a collective that is in the middle of it too, and nobody is blamed."""
    job.initialize(**PATIENT)
    failed = job.call("wait_failed")
    for direction in EVERY_WAY:
        with job.cut(victim, direction=direction):
            reduced = job.call("all_reduce", array=[1] * 20_000)
            entered = job.call("barrier", all_but(victim), name="over the cut")
            time.sleep(CUT_SECONDS)  # the time that it lasts is what is tested
        entered += job.call("barrier", [victim], name="over the cut")
        assert [call.value() for call in entered] == [None] * 3
        assert [call.value() for call in reduced] == [[3] * 20_000] * 3
        wait_until_all_are_heard(job)
    check_works(job)
    assert [call.value() for call in job.call("shutdown")] == [None] * 3
    assert [call.value() for call in failed] == [None] * 3


@pytest.mark.parametrize("victim", [0, 2])
def test_cut_for_longer_than_the_timeout_is_told_to_everybody(job: LocalJob, victim: int) -> None:
    """And when the link is mended, the next job comes up."""
    for direction in EVERY_WAY:
        job.initialize(**FAST)
        survivors = all_but(victim)
        failed = job.call("wait_failed")
        entered = job.call("barrier", survivors, name="b")
        reduced = job.call("all_reduce", survivors, array=[1])
        for call in job.call("facts"):
            call.value()
        cut_at = time.monotonic()
        with job.cut(victim, direction=direction):
            for client_id in survivors:
                check_silent(failure_of(failed[client_id]), victim, cut_at)
            for call in (*entered, *reduced):
                check_silent(call.error(), victim, cut_at)
            # Who is cut off cannot know whether it is that, or the others have gone; but that it is over, no earlier.
            own = failure_of(failed[victim])
        assert own.error in ("CoordinatorLostError", "PeerFailedError"), (direction, own.text)
        assert "no heartbeat" in own.text
        assert own.at - cut_at >= TIMEOUT - INTERVAL
    job.initialize(device_type="SIM")
    check_works(job)


def test_a_link_that_comes_and_goes_is_forgiven(job: LocalJob) -> None:
    job.initialize(**PATIENT)
    for _ in range(3):
        with job.cut(2):
            time.sleep(CUT_SECONDS / 2)  # the time that it lasts is what is tested
        check_works(job)
        wait_until_all_are_heard(job)


@pytest.mark.parametrize("victim", [0, 2])
def test_cut_off_from_the_start_and_mended_in_time(job: LocalJob, victim: int) -> None:
    with job.cut(victim):
        calls = job.call("initialize", range(3), **FAST)
        phase = "rendezvous" if victim == 0 else "connect"
        job.clients[victim].call("reach", phases=[phase]).value()
        time.sleep(1.5 * TIMEOUT)  # silence before it has registered is nobody's failure
    for call in calls:
        call.value()
    check_works(job)


def test_cut_off_from_the_start_and_never_mended(job: LocalJob) -> None:
    with job.cut(2, direction="in"):
        began = time.monotonic()
        calls = job.call("initialize", range(3), device_type="SIM", initialization_timeout=1.0)
        for client_id, call in enumerate(calls):
            error = call.error()
            assert error.error == "RendezvousTimeoutError", error.text
            assert error.at - began >= 1.0
            missing = list(error.attributes["missing"])
            assert missing == ["2"] if client_id != 2 else "0" in missing, error.text


def test_cut_while_devices_come_up(job: LocalJob) -> None:
    job.start([1], BRINGUP_SIM_FAULT="1:slow:60")
    calls = job.call("initialize", range(3), **FAST)
    for client_id in range(3):
        job.clients[client_id].call("reach", phases=["devices"] if client_id == 1 else ["merge"]).value()
    cut_at = time.monotonic()
    with job.cut(2):
        for client_id in all_but(2):
            check_silent(calls[client_id].error(), 2, cut_at)
        check_names(calls[2].error(), 0)
    job.clients[1].kill()  # its devices would come up as slowly in other tests


def test_a_client_that_was_given_up_is_not_taken_back(job: LocalJob) -> None:
    """It was cut off and stopped, so that it knows nothing of that when it goes on, with its link mended."""
    job.initialize(**FAST)
    failed = job.call("wait_failed", all_but(2))
    with job.cut(2):
        job.clients[2].stop()
        for call in failed:
            check_names(failure_of(call), 2)
        entered = job.clients[2].call("barrier", name="late")
    job.clients[2].resume()
    assert entered.error().error in ("PeerFailedError", "CoordinatorLostError")
