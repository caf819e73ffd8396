"""The pace of heartbeats while a job comes up: client 0 answers all of them itself then (pure)."""

from __future__ import annotations

_SECONDS_PER_CLIENT = 0.002
"""Of client 0's loop for the heartbeats of one round, and for all else that it does for a client while it comes up."""

_PACES_OF_SILENCE = 4
"""Heartbeats that may fail to come before silence is judged."""


def pace(num_clients: int, interval: float) -> float:
    """Return the seconds between two heartbeats of one client while the job comes up; `interval` in a small job."""
    return max(interval, _SECONDS_PER_CLIENT * num_clients)


def patience(num_clients: int, interval: float, timeout: float) -> float:
    """Return the seconds of silence that are judged while the job comes up; `timeout` in a small job."""
    seconds = pace(num_clients, interval)
    return timeout if seconds == interval else max(timeout, _PACES_OF_SILENCE * seconds)
