"""Announcements of clients that leave the job, a few at a time."""

from __future__ import annotations

from collections.abc import Mapping

from ....transport.wire.messages import Leaver, Leaving

_PAUSE, _PAUSE_PER_CLIENT = 0.01, 1e-4
"""Seconds between two announcements, and seconds more for each client of the job: one goes to all clients."""


class Departures:
    """The first departure is announced at once, and those that follow soon are announced together.

    Where thousands of clients leave one after the other, one announcement each would cost the square of their number.

    Args:
        num_clients: the number of clients in the job.
    """

    def __init__(self, num_clients: int) -> None:
        self._pause = _PAUSE + _PAUSE_PER_CLIENT * num_clients
        self._untold: dict[int, int] = {}
        self._due = 0.0

    def add(self, client_id: int, collectives: int, now: float) -> list[Leaving]:
        """Take in that a client, which has called so many collectives, leaves; returns what to send to all."""
        self._untold[client_id] = collectives
        return self.wake(now)

    def wake(self, now: float) -> list[Leaving]:
        """Return what to send to all by now."""
        if not self._untold or now < self._due:
            return []
        self._due = now + self._pause
        told, self._untold = self._untold, {}
        return [Leaving(_runs(told))]

    def deadline(self) -> float | None:
        """Return when to wake this next."""
        return self._due if self._untold else None


def _runs(collectives: Mapping[int, int]) -> tuple[Leaver, ...]:
    runs: list[Leaver] = []
    for client_id, count in sorted(collectives.items()):
        last = runs[-1] if runs else None
        if last is not None and (last.last, last.collectives) == (client_id - 1, count):
            runs[-1] = Leaver(last.first, client_id, count)
        else:
            runs.append(Leaver(client_id, client_id, count))
    return tuple(runs)
