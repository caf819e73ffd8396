"""The reports of groups on their clients, and the clients of which none tells."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from ....transport.wire.messages import GroupReport
from ..detector import Detector
from ..groups import Groups
from ..id_ranges import COORDINATOR

_PATIENCE_SHARE = 0.5
"""Of the time-out, for which a client may be unheard before it is asked: it answers well before that is judged. Where
its leader or a neighbour is dead or stopped, it has found out itself by then, unless its own time-out is longer."""

_LOOKS = 4
"""At all clients in that time."""


class GroupReports:
    """Who is heard through the leaders of groups.

    A group the leader of which cannot reach the coordinator, though it lives and begins waves, is silent as a whole:
    its clients believe that it reports for them. So are those of a leader that leaves and has lost its connection,
    whether it still lives or not; and a client that was given a longer time-out than the coordinator may wait too long
    for a wave that does not get around. They are asked for heartbeats of their own.

    Args:
        groups: the division of the job.
        detector: which judges silence.
        now: the time.
    """

    def __init__(self, groups: Groups, detector: Detector, now: float) -> None:
        self._groups = groups
        self._leaders = frozenset(groups.leaders) if len(groups.leaders) > 1 else frozenset()
        self._detector = detector
        self._look_due = now + self._patience / _LOOKS
        self._asked: dict[int, float] = {}

    @property
    def _patience(self) -> float:
        return _PATIENCE_SHARE * self._detector.timeout  # longer while a large job comes up

    @property
    def are_used(self) -> bool:
        """Whether there are several groups, so that their clients are heard through their leaders."""
        return bool(self._leaders)

    def told_first(self, culprits: Iterable[int]) -> list[int]:
        """Return the clients that are told of an end first: they tell the others, but for what the culprits would.

        Client 0 tells its neighbour only after it has told all clients as the coordinator.
        """
        if not self._leaders:
            return []
        beyond = (self._groups.neighbours_of(client_id)[0] for client_id in (COORDINATOR, *culprits))
        return [*self._groups.leaders, *beyond]

    def clients_of(self, leader: int) -> range:
        """Return the clients of the group that a client leads; none where it leads none of several."""
        if leader not in self._leaders:
            return range(0)
        place = self._groups.place_of(leader)
        return range(place.first, place.last + 1)

    def take(self, leader: int, reports: Iterable[GroupReport], now: float) -> None:
        """Take in what a leader reports: who was alive when the wave passed, which came around."""
        for report in reports:
            self._detector.all_heard(self.clients_of(leader), now - max(report.age, 0.0))

    def left(self, client_id: int, now: float) -> None:
        """Note that a client is not judged any more, as it leaves and has no connection: its group is asked at once."""
        if client_id in self._leaders:
            self._look_due = now

    def to_ask(self, now: float) -> list[int]:
        """Return the clients to be asked for heartbeats, again and again as long as they are silent."""
        if not self._leaders or now < self._look_due:
            return []
        self._look_due = now + self._patience / _LOOKS
        gone = [leader for leader in self._groups.leaders if not self._detector.judges(leader)]
        unheard = [*self._unheard(now), *(member for leader in gone for member in self.clients_of(leader)[1:])]
        self._asked = {client_id: self._asked.get(client_id, -math.inf) for client_id in unheard}
        due = [client_id for client_id, asked_at in self._asked.items() if now - asked_at >= self._patience]
        self._asked.update(dict.fromkeys(due, now))
        return due

    def _unheard(self, now: float) -> Iterator[int]:
        overdue = self._detector.overdue(now, self._patience, self._groups.num_clients)
        return (client_id for client_id, _ in overdue if self._detector.unheard(client_id, now) >= self._patience)

    def deadline(self) -> float | None:
        """Return when to look at the leaders next."""
        return self._look_due if self._leaders else None
