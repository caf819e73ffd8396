"""Whom a job that comes up waits for, as its clients are told with the answers to their heartbeats."""

from __future__ import annotations

from ....transport.wire.messages import Behind
from ..id_ranges import pack_some
from .members import Members

_RUNS_MAX = 64
"""Of ids in one answer: a text shows fewer."""

_PAUSE_PER_CLIENT = 0.00025
"""Seconds for which one count serves all answers, for each client: it looks at all of them, and each of them asks."""

_COUNTED_ALWAYS = 64
"""Clients up to which it costs nothing."""


class RollCall:
    """Counts who is missing, then who is furthest behind; in a job of 1,000 up to a quarter of a second ago.

    Args:
        members: of the job.
        num_clients: the number of its clients.
    """

    def __init__(self, members: Members, num_clients: int) -> None:
        self._members = members
        self._pause = _PAUSE_PER_CLIENT * num_clients if num_clients > _COUNTED_ALWAYS else 0.0
        self._missing: tuple[tuple[int, ...], int] = (), 0
        self._behind: tuple[Behind, ...] = ()
        self._due = float("-inf")

    def missing(self, now: float) -> tuple[tuple[int, ...], int]:
        """Return the first of those that have not registered, as pairs of ids, and their number in all."""
        if self._is_due(now):
            missing = self._members.missing()
            self._missing = pack_some(missing, _RUNS_MAX), len(missing)
        return self._missing

    def behind(self, now: float) -> tuple[Behind, ...]:
        """Return those in the earliest phase, once all have registered."""
        if self._is_due(now) or not self._behind:
            phase, ids = self._members.behind()
            self._behind = (Behind(phase, pack_some(ids, _RUNS_MAX), len(ids)),)
        return self._behind

    def _is_due(self, now: float) -> bool:
        if now < self._due:
            return False
        self._due = now + self._pause
        return True
