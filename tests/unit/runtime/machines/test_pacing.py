"""The pace of heartbeats while a job comes up."""

from __future__ import annotations

import pytest

from bringup.runtime.machines.pacing import pace, patience, until_next_wave


@pytest.mark.parametrize(
    ("num_clients", "interval", "timeout", "expected"),
    [
        (4, 0.05, 0.1, (0.05, 0.1)),
        (64, 1.0, 3.0, (1.0, 3.0)),
        (164, 1.0, 3.0, (1.0, 23.0)),
        (1_000, 1.0, 10.0, (4.0, 70.0)),
        (10_000, 1.0, 10.0, (40.0, 90.0)),
        (5_000, 30.0, 60.0, (30.0, 120.0)),
    ],
)
def test_the_pace_follows_the_number_of_clients_and_patience_the_pace(
    num_clients: int, interval: float, timeout: float, expected: tuple[float, float]
) -> None:
    assert (pace(num_clients, interval), patience(num_clients, interval, timeout)) == expected


@pytest.mark.parametrize(("now", "expected"), [(10.0, 0.5), (10.125, 0.375), (10.375, 0.125)])
def test_all_leaders_begin_waves_at_the_multiples_of_the_interval(now: float, expected: float) -> None:
    assert until_next_wave(now, 0.5) == expected
