"""Clients that leave the job: announced to all, a few at a time, and let go once all have come to leave."""

from __future__ import annotations

from collections.abc import Mapping

from ....transport.wire.messages import Leave, Leaver, Leaving

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
        self._unannounced: dict[int, int] = {}
        self._announcement_due = 0.0
        self._announced: list[Leaving] = []
        self._num_told: dict[int, int] = {}
        self._dismissal_due: float | None = None

    def add(self, client_id: int, leave: Leave, now: float) -> None:
        """Take in that a client leaves. The most impatient of all decides how long they wait for the others."""
        self._unannounced[client_id] = leave.collectives
        due = now + leave.timeout
        self._dismissal_due = due if self._dismissal_due is None else min(self._dismissal_due, due)

    def dismissal_is_due(self, now: float) -> bool:
        """Return whether those that leave are to wait no longer for the others."""
        return self._dismissal_due is not None and now >= self._dismissal_due

    def announce(self, now: float) -> list[Leaving]:
        """Return the announcement to all that is due, if one is."""
        if not self._unannounced or now < self._announcement_due:
            return []
        self._announcement_due = now + self._pause
        announced, self._unannounced = self._unannounced, {}
        self._announced.append(Leaving(_runs(announced)))
        return self._announced[-1:]

    def untold(self, client_id: int) -> list[Leaving]:
        """Return the announcements that a client has not been told by this, which may have reached it otherwise."""
        num_told = self._num_told.get(client_id, 0)
        self._num_told[client_id] = len(self._announced)
        return self._announced[num_told:]

    def deadline(self) -> float | None:
        """Return when to wake this next."""
        dues = [self._announcement_due] if self._unannounced else []
        return min([*dues, *([] if self._dismissal_due is None else [self._dismissal_due])], default=None)


def _runs(collectives: Mapping[int, int]) -> tuple[Leaver, ...]:
    runs: list[Leaver] = []
    for client_id, count in sorted(collectives.items()):
        last = runs[-1] if runs else None
        if last is not None and (last.last, last.collectives) == (client_id - 1, count):
            runs[-1] = Leaver(last.first, client_id, count)
        else:
            runs.append(Leaver(client_id, client_id, count))
    return tuple(runs)
