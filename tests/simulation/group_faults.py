"""What befalls the groups of a large job, drawn from one seed: whole groups, several neighbours, leaders, watchers."""

from __future__ import annotations

import random
from collections.abc import Iterator

from bringup.runtime.machines.groups import Groups

from . import faults
from .faults import Fault
from .network import EVER

_SIZES = (0, 0, 2, 3, 4, 7)
_SHARES = (0.3, 0.8, 1.3, 2.0)
"""Of the time-out, for which a fault lasts."""


def draw_group_size(rng: random.Random, num_clients: int) -> int:
    """Return the clients of a group, about; 0 for one group of all."""
    size = rng.choice(_SIZES)
    return size if num_clients >= 2 * size else 0


class GroupFaults:
    """Draws the faults of one job with several groups, while it is up.

    Args:
        rng: decides everything.
        groups: of the job.
        timeout: `heartbeat_timeout`.
    """

    def __init__(self, rng: random.Random, groups: Groups, timeout: float) -> None:
        self._rng = rng
        self._groups = groups
        self._timeout = timeout

    def draw(self) -> Iterator[tuple[float, Fault]]:
        """Yield faults of one kind, each with its time in seconds after the job has come up."""
        rng = self._rng
        kinds = (
            self._neighbours,
            self._cut_group,
            self._halves,
            self._cut_one,
            self._leader,
            self._watcher_first,
            self._starve,
        )
        begin = rng.uniform(0.0, self._timeout)
        for after, fault in rng.choice(kinds)():
            yield begin + after, fault

    def _neighbours(self) -> Iterator[tuple[float, Fault]]:
        """Several neighbours die or stop at once."""
        group = self._group()
        count = self._rng.randint(1, len(group))
        clients = tuple(group[(self._rng.randrange(len(group)) + k) % len(group)] for k in range(count))
        if self._rng.random() < 0.3:
            yield 0.0, faults.Crash(clients, self._rng.random() < 0.3, self._rng.random() < 0.3)
        else:
            yield 0.0, faults.Stop(clients, self._seconds())

    def _cut_group(self) -> Iterator[tuple[float, Fault]]:
        """A group is cut off: from all others, or from the coordinator alone."""
        group = tuple(client for client in self._group() if client != 0)
        others = tuple(c for c in range(self._groups.num_clients) if c not in group)
        others = self._rng.choice([others, (0,)])
        yield 0.0, faults.CutBetween(group, others, self._rng.random() < 0.2, self._seconds())

    def _halves(self) -> Iterator[tuple[float, Fault]]:
        """Two halves of the job are cut apart, most often amid a group."""
        n = self._groups.num_clients
        middle = n // 2 + self._rng.choice([-1, 0, 1])
        yield 0.0, faults.CutBetween(tuple(range(middle)), tuple(range(middle, n)), False, self._seconds())

    def _cut_one(self) -> Iterator[tuple[float, Fault]]:
        """A client is cut off from the coordinator, though its group hears it."""
        way = self._rng.choice(["both ways", "to it", "from it"])
        yield 0.0, faults.CutOff(self._rng.randrange(1, self._groups.num_clients), way, self._seconds())

    def _leader(self) -> Iterator[tuple[float, Fault]]:
        """A leader is stopped, or cut off from the coordinator, though the clients of its group hear it."""
        leader = self._rng.choice(self._groups.leaders)
        if leader == 0 or self._rng.random() < 0.5:
            yield 0.0, faults.Stop((leader,), self._seconds())
        else:
            yield 0.0, faults.CutOff(leader, self._rng.choice(["both ways", "to it", "from it"]), self._seconds())

    def _watcher_first(self) -> Iterator[tuple[float, Fault]]:
        """Whoever would miss a client is gone, or stopped, just before that client stops."""
        client = self._rng.choice(self._group())
        watcher = self._rng.choice(self._groups.neighbours_of(client)[:2])
        first: Fault = faults.Crash((watcher,), False, True)
        if self._rng.random() < 0.7:
            first = faults.Stop((watcher,), self._seconds())
        yield 0.0, first
        yield self._rng.uniform(0.0, 0.5), faults.Stop((client,), self._seconds())

    def _starve(self) -> Iterator[tuple[float, Fault]]:
        """The coordinator is starved for longer than a client may be silent."""
        lag = self._timeout * self._rng.choice([0.4, 1.2, 2.0])
        yield 0.0, faults.Starve(lag, self._timeout * self._rng.choice([1.0, 3.0]))

    def _group(self) -> range:
        place = self._groups.place_of(self._rng.choice(self._groups.leaders))
        return range(place.first, place.last + 1)

    def _seconds(self) -> float:
        share = self._rng.choice(_SHARES)
        return EVER if self._rng.random() < 0.4 else share * self._timeout
