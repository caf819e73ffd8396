"""The pace of heartbeats, by the size of the job: client 0 answers all that are sent to it (pure)."""

from __future__ import annotations

_SECONDS_PER_CLIENT = 0.004
"""Of client 0's loop for the heartbeats of one round, and for all else that it does for a client while it comes up."""

_PHASE_REPORT_DELAY = 0.25
"""Seconds that a new phase has to last before it is reported out of turn: those of a bring-up that gets on are shorter,
and each report takes client 0 a message in and one out while it has most to do."""

_PACES_OF_SILENCE = 2
"""Heartbeats that may fail to come before silence is judged."""

_STARVED_SECONDS_PER_CLIENT = 0.2
_STARVED_FROM = 64
_STARVED_SECONDS_MAX = 60.0
"""More of silence while a job comes up, for each client beyond some: where one machine runs all of them, as a job is
tried out, client 0 has as much of it as each interpreter that starts. Two processors take 0.2 s for one of these."""

_SECONDS_PER_TEST = 0.12
"""Between two heartbeats of all the clients whose groups report for them: less than 10 a second."""

_TIMEOUTS_PER_TEST = 2
"""At least between two such heartbeats of a client: whoever is silent is found out by other means."""

_MISSED_INTERVALS = 1.5
"""Heartbeat intervals in which a wave must have come: one is due by then, and half of one for its way."""


def pace(num_clients: int, interval: float) -> float:
    """Return the seconds between two heartbeats of one client while the job comes up; `interval` in a small job."""
    return max(interval, _SECONDS_PER_CLIENT * num_clients)


def phase_report_delay(num_clients: int) -> float:
    """Return the seconds that a new phase has to last before it is reported out of turn; a pace in a large job."""
    return max(_PHASE_REPORT_DELAY, _SECONDS_PER_CLIENT * num_clients)


def patience(num_clients: int, interval: float, timeout: float) -> float:
    """Return the seconds of silence that are judged while the job comes up; `timeout` in a small job.

    More than `timeout` in a large one, however short its pace: where hundreds of clients share a core, some are not run
    for as long.
    """
    seconds = pace(num_clients, interval)
    paces = _PACES_OF_SILENCE * seconds if seconds > interval else 0.0
    starved = _STARVED_SECONDS_PER_CLIENT * max(num_clients - _STARVED_FROM, 0)
    return timeout + max(paces, min(starved, _STARVED_SECONDS_MAX))


def test_period(num_clients: int, timeout: float) -> float:
    """Return the seconds between two heartbeats of a client whose group reports for it, which test its connection."""
    return max(_SECONDS_PER_TEST * num_clients, _TIMEOUTS_PER_TEST * timeout)


def until_next_wave(now: float, interval: float) -> float:
    """Return the seconds until all leaders begin waves, by the coordinator's clock: at the multiples of `interval`.

    Their reports come together then: a message that comes alone wakes gRPC's threads, and costs client 0 five times as
    much.
    """
    return interval - now % interval


def fallback_patience(interval: float, timeout: float) -> float:
    """Return the seconds without a whole wave after which a client of a group sends heartbeats itself.

    Early enough for several of these to come before silence is judged.
    """
    return max(_MISSED_INTERVALS * interval, timeout / 4)
