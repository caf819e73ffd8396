"""The schedules of the collectives. Pure.

Every collective is gathered and then spread. Gathering brings a value once around each group's ring, from its leader on
and back to it, and the groups' values once around the leaders' ring, from client 0 on and back to it; each client on
the way adds its own. Spreading hands client 0's result on along the same links. With groups of about the square root of
the job, that is about four such roots of hops; a small job is one group. Every value is reduced in one order, in one
place: all clients get the same bits.

Large arrays of one group take the schedule of chunks instead: reduce-scatter, then all-gather. Each of the `size`
chunks travels once around the ring to be summed and once to be handed out, so every client sends and receives 2 (size -
1) / size of the array whatever the size of the ring, and every chunk, too, is reduced in one order only.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from ..wire.messages import GroupPlace


class RingOf(enum.Enum):
    """The rings of a job: each client is in that of its group, and each leader in that of the leaders."""

    GROUP = enum.auto()
    LEADERS = enum.auto()


def rings_of(client_id: int, place: GroupPlace) -> tuple[RingOf, ...]:
    """Return the rings that a client is in, with others."""
    group = () if place.first == place.last else (RingOf.GROUP,)
    leaders = (RingOf.LEADERS,) if client_id == place.first and place.count > 1 else ()
    return group + leaders


@dataclass(frozen=True, slots=True)
class Hop:
    """A client's part in bringing a value on.

    Attributes:
        receive: from which left neighbour a value comes first, if any does.
        add: whether it is added to this client's, before it, or replaces it.
        send: to which right neighbours this client's value then goes.
    """

    receive: RingOf | None
    add: bool
    send: tuple[RingOf, ...]


Lane = tuple[Hop, ...]
"""Hops one after the other; of a value in segments, all for one before those for the next."""


_BEGIN = {of: Hop(None, False, (of,)) for of in RingOf}
"""The first client of a ring sends its value around it."""

_ADD = {of: Hop(of, True, (of,)) for of in RingOf}
"""Any other adds its own to the value that comes, and sends the sum on."""

_END = {of: Hop(of, False, ()) for of in RingOf}
"""The sum comes back to the first."""


def gathering(client_id: int, place: GroupPlace) -> tuple[Lane, ...]:
    """Return the lanes of a client where a value is gathered.

    A value in one piece takes them one after the other. One in segments takes them at once: whoever sent all before it
    takes the first one back would wait for its neighbours to take it in, and these for it.
    """
    if client_id != place.first:
        return ((_ADD[RingOf.GROUP],),)
    has_others = place.first != place.last
    begin: tuple[Lane, ...] = ((_BEGIN[RingOf.GROUP],),) if has_others else ()
    end: Lane = (_END[RingOf.GROUP],) if has_others else ()
    if place.count == 1:
        return (*begin, end)
    if place.index > 0:
        return (*begin, (*end, _ADD[RingOf.LEADERS]))
    return (*begin, (*end, _BEGIN[RingOf.LEADERS]), (_END[RingOf.LEADERS],))


def spreading(client_id: int, place: GroupPlace) -> Hop:
    """Return the hop of a client where client 0's value is spread."""
    to_group = () if client_id == place.last else (RingOf.GROUP,)
    if client_id != place.first:
        return Hop(RingOf.GROUP, False, to_group)
    # The leaders' way is the longer one: it goes first.
    to_leaders = () if place.index == place.count - 1 else (RingOf.LEADERS,)
    return Hop(RingOf.LEADERS if client_id > 0 else None, False, to_leaders + to_group)


@dataclass(frozen=True, slots=True)
class Exchange:
    """In one step, chunk `send` goes to the right while chunk `receive` comes from the left.

    `reduce` says whether what comes is added to what is there, or replaces it.
    """

    send: int
    receive: int
    reduce: bool


def chunk_bounds(length: int, size: int) -> list[tuple[int, int]]:
    """Return start and end of the `size` chunks of `length` elements: as equal as can be, the longer ones first."""
    short, longer = divmod(length, size)
    starts = [index * short + min(index, longer) for index in range(size + 1)]
    return list(itertools.pairwise(starts))


def steps(rank: int, size: int) -> Iterator[Exchange]:
    """Yield the steps of client `rank` in a ring of `size`."""
    for turn in range(size - 1):
        yield Exchange((rank - turn) % size, (rank - turn - 1) % size, reduce=True)
    for turn in range(size - 1):
        yield Exchange((rank + 1 - turn) % size, (rank - turn) % size, reduce=False)
