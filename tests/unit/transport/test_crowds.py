"""Limits that grow with the number of clients."""

from __future__ import annotations

import random

import pytest

from bringup.runtime.machines.session.limits import REGISTRATION_TIMEOUT
from bringup.runtime.machines.session.table import SessionTable
from bringup.transport.attempts import Attempts, Goal, TroubleKind, retry_delay
from bringup.transport.crowds import crowd_timeout, visitors_max

HOST_CONNECTIONS_PER_SECOND = 500
"""Those that a busy host accepts: a free one takes four times as many."""


@pytest.mark.parametrize("num_clients", [2, 64, 1000, 10_000, 40_000])
def test_a_time_out_is_longer_than_its_crowd_takes(num_clients: int) -> None:
    assert crowd_timeout(5.0, num_clients) > 5.0 + num_clients / HOST_CONNECTIONS_PER_SECOND
    assert visitors_max(num_clients) > num_clients


def test_a_small_job_keeps_its_time_outs() -> None:
    assert crowd_timeout(5.0, 2) < 5.1
    assert crowd_timeout(5.0, 64) < 5.5


def attempts_of(num_clients: int, seconds: float) -> list[float]:
    """Return when the clients of a job poll a host where nobody listens."""
    rng, at = random.Random(7), []
    for _ in range(num_clients):
        now, attempts = 0.0, Attempts(Goal.COORDINATOR, 0.0, num_clients, rng.random())
        while now < seconds:
            at.append(now)
            delay = attempts.delay(TroubleKind.REFUSED, now)
            assert delay is not None
            now += delay
    return at


def test_a_crowd_does_not_occupy_a_host_that_is_to_start_the_coordinator() -> None:
    at = attempts_of(10_000, 3.0)
    for begin in (0.5, 1.0, 2.0):
        assert sum(begin <= now < begin + 0.5 for now in at) < 0.5 * 6_000


def test_the_clients_of_a_small_job_poll_as_one_client_does() -> None:
    attempts = Attempts(Goal.COORDINATOR, 0.0, 5, 1.0)
    for elapsed in (0.0, 0.01, 0.1, 1.0, 100.0):
        assert attempts.delay(TroubleKind.REFUSED, elapsed) == retry_delay(elapsed)


def test_a_table_of_a_large_job_waits_longer_for_registrations() -> None:
    table: SessionTable[int, int] = SessionTable(10, num_clients=10_000)
    table.connected(0.0)
    assert not table.wake(REGISTRATION_TIMEOUT)
    assert table.deadline() == crowd_timeout(REGISTRATION_TIMEOUT, 10_000)
