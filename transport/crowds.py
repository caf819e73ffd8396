"""Limits that grow with the job: all its clients may come to client 0 in one moment. Pure."""

from __future__ import annotations

_CLIENT_SECONDS = 0.005
"""For each client that may come first: ten times what accepting its connection takes, as the host may be busy. A
time-out that ends before a crowd is served throws away the work for it, and the next attempts are one more crowd: of
4,000 clients with a second each nobody was served within 100 s, and all within 3 s with 5 s each."""

_POLLS_PER_SECOND = 2_000.0
"""Of all clients together, at a host where nobody listens yet. The coordinator serves as many clients a second then, so
that nobody loses time by coming a little later. Where the clients share that host, a poll takes 0.3 ms of the cores
that have to start the coordinator."""

_VISITORS_MIN = 1024
"""Connections without a hello that a small job's client 0 keeps: strangers beyond them replace the oldest."""


def crowd_timeout(seconds: float, num_clients: int) -> float:
    """Return a time-out of `seconds` for one client's connection, where all clients of a job may come before it."""
    return seconds + _CLIENT_SECONDS * num_clients


def poll_delay(num_clients: int, jitter: float) -> float:
    """Return the fewest seconds between two attempts of one client; `jitter`, from 0 to 1, spreads the clients."""
    return (0.5 + jitter) * num_clients / _POLLS_PER_SECOND


def visitors_max(num_clients: int) -> int:
    """Return how many connections that have said nothing yet client 0 keeps at once."""
    return max(_VISITORS_MIN, 2 * num_clients)


def connections_max(num_clients: int) -> int:
    """Return how many connections the coordinator holds at once: each client may dial anew before the last is gone."""
    return 2 * num_clients + visitors_max(num_clients)
