"""Strangers at every port of a job that works: they change nothing, cost next to nothing, and learn nothing."""

from __future__ import annotations

from ..fuzz.attacked_job import attack

GROWTH_MAX = 16.0
"""MiB of a client; one that kept something of each stranger would show in the runs of 10,000."""

LINES_MAX = 2
"""Of a client's log: one a minute at most."""


def test_strangers_at_every_port_disturb_nobody() -> None:
    toll = attack(3, 40, seed=1)
    assert toll.visits.total() == 40 * toll.ports
    assert toll.rounds
    assert max(toll.grown) < GROWTH_MAX
    assert all(len(lines) <= LINES_MAX for lines in toll.lines), toll.lines
