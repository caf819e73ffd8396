"""Groups: a large job's clients, divided so that no round of messages takes as many hops as the job has clients.

A group holds clients with consecutive ids, as launchers number the clients of one host. Its first client leads it. The
clients of a group form a ring, and so do the leaders. A small job is one group.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from ...transport.wire.messages import GroupPlace

GROUPS_FROM = 128
"""Clients from which on a job is divided.

With 75 us for a client to take a message and pass it on, and as much for a network, the merge of n clients takes 3 n of
150 us in one ring: 60 ms for 128, and 10 ms in groups, which they notice in a bring-up of some 0.2 s. Of 64 clients it
saves 20 ms. On one machine of two processors the merge of 64 takes 40 ms and 30, that of 128 clients 90 and 50, that of
512 340 and 250. Watched through groups, 128 idle clients take 1.8 % of client 0's processor instead of 3.7 %.
"""

GROUP_SIZE_MIN = 2
"""Clients of the smallest group: a ring."""

_SHIFT_SHARE = 4
"""A boundary moves by up to this part of a group, to lie between two hosts."""


def group_size_of(num_clients: int) -> int:
    """Return the size of the groups of a job, about: `sqrt(num_clients)`, where hops are fewest; 0 for no division."""
    return math.isqrt(num_clients) if num_clients >= GROUPS_FROM else 0


class Groups:
    """The division of a job.

    Args:
        num_clients: the number of clients in the job.
        size: the clients of a group, about; 0 for one group of all.
        hostnames: of all clients, by client id; a boundary close to one between two hosts is moved there.

    Attributes:
        leaders: the first client of each group, ascending.
    """

    def __init__(self, num_clients: int, size: int = 0, hostnames: Sequence[str] = ()) -> None:
        size = max(size, GROUP_SIZE_MIN) if size else num_clients
        count = max(num_clients // size, 1)
        starts = (index * num_clients // count for index in range(1, count))
        self.num_clients = num_clients
        self.leaders = (
            0,
            *(_shifted(start, size // _SHIFT_SHARE, hostnames) if hostnames else start for start in starts),
        )

    def place_of(self, client_id: int) -> GroupPlace:
        """Return the group of a client."""
        count = len(self.leaders)
        index = bisect_right(self.leaders, client_id) - 1
        end = self.leaders[index + 1] if index + 1 < count else self.num_clients
        return GroupPlace(index, count, self.leaders[index], end - 1)

    def neighbours_of(self, client_id: int) -> tuple[int, ...]:
        """Return the left and the right neighbour of a client, and those of a leader among several leaders.

        In a group of one client both are the client itself.
        """
        place = self.place_of(client_id)
        left = client_id - 1 if client_id > place.first else place.last
        right = client_id + 1 if client_id < place.last else place.first
        if place.count == 1 or client_id != place.first:
            return left, right
        leaders, index = self.leaders, place.index
        return left, right, leaders[index - 1], leaders[(index + 1) % place.count]


def _shifted(start: int, shift_max: int, hostnames: Sequence[str]) -> int:
    for shift in range(shift_max + 1):
        for moved in (start - shift, start + shift):
            if hostnames[moved] != hostnames[moved - 1]:
                return moved
    return start
