"""Clients of a job in groups whose packets are swallowed: a leader for a while, and a whole group for ever."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from bringup.testing.job import LocalJob

from .assertions import FAST, INTERVAL, TIMEOUT, check_works, failure_of, wait_until_all_are_heard

NAMESPACES = True
SIZE = 6
GROUPED: dict[str, Any] = {**FAST, "group_size": 3, "initialization_timeout": 35.0}
"""The leaders are 0 and 3."""

AGE_MAX = 3 * INTERVAL
"""See `test_groups`."""

CUT_SECONDS = 0.8
"""See `test_cut`."""


def test_a_leader_that_is_cut_off_for_less_than_the_timeout_is_forgiven(job: LocalJob) -> None:
    job.initialize(**{**GROUPED, "heartbeat_timeout": 3.0})
    failed = job.call("wait_failed")
    with job.cut(3):
        reduced = job.call("all_reduce", array=[1] * 20_000)
        time.sleep(CUT_SECONDS)  # the time that it lasts is what is tested
    assert [call.value() for call in reduced] == [[SIZE] * 20_000] * SIZE
    wait_until_all_are_heard(job, AGE_MAX)
    check_works(job)
    assert [call.value() for call in job.call("shutdown")] == [None] * SIZE
    assert [call.value() for call in failed] == [None] * SIZE


def test_a_whole_group_that_is_cut_off_is_told_to_the_others(job: LocalJob) -> None:
    job.initialize(**GROUPED)
    wait_until_all_are_heard(job, AGE_MAX)
    failed = job.call("wait_failed")
    for facts in job.call("facts"):
        facts.value()
    cut_at = time.monotonic()
    with contextlib.ExitStack() as cuts:
        for victim in (3, 4, 5):
            cuts.enter_context(job.cut(victim))
        failures = [failure_of(call) for call in failed]
    for client_id, failure in enumerate(failures):
        if client_id < 3:
            assert failure.error == "PeerFailedError", failure.text
            assert failure.attributes["client_id"] in (3, 4, 5), failure.text
        else:
            assert failure.error in ("CoordinatorLostError", "PeerFailedError"), failure.text
        assert "no heartbeat" in failure.text
        assert failure.at - cut_at >= TIMEOUT - 2 * INTERVAL, failure.text
