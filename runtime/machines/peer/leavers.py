"""The clients that leave the job, as the coordinator and the neighbour in the group tell one client (pure)."""

from __future__ import annotations

from collections.abc import Iterable

from ....transport.wire.messages import Leaving
from ..id_ranges import leaver_ids, pack_ids
from . import events as ev


class Leavers:
    """Those that are known to be leaving. What the user is to hear of them waits until the job is up for this client.

    A neighbour's message may overtake the commit.
    """

    def __init__(self) -> None:
        self._ids: frozenset[int] = frozenset()
        self._untold: list[ev.OthersLeave] = []

    def __contains__(self, client_id: int) -> bool:
        return client_id in self._ids

    def packed(self) -> tuple[int, ...]:
        """Return them as pairs of first and last id."""
        return pack_ids(self._ids)

    def add(self, message: Leaving) -> bool:
        """Take in an announcement; returns whether it is news: it comes around the group, and both ways."""
        ids = frozenset(leaver_ids(message.leavers))
        if ids <= self._ids:
            return False
        self._ids |= ids
        self._untold.append(ev.OthersLeave(message.leavers))
        return True

    def take_untold(self) -> list[ev.OthersLeave]:
        """Return what the user has not been told, who is told by this."""
        untold, self._untold = self._untold, []
        return untold

    def ended(self, leavers: Iterable[int]) -> None:
        """Note that the job has ended in order, and who has left it."""
        self._ids = frozenset(leavers)
