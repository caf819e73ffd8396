"""Rings of a test, on one event loop, whose collectives are carried out as a peer does it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Sequence

from bringup.runtime.machines.groups import Groups
from bringup.transport.collectives.neighbours import Neighbours, RingBrokenError
from bringup.transport.collectives.ring import Ring
from bringup.transport.ports import Link
from bringup.transport.wire.messages import GroupPlace

from .places import Place, links_of


async def _serve(ring: Ring) -> None:
    try:
        await ring.run()
    except RingBrokenError as broken:
        ring.end(lambda broken=broken: RingBrokenError(broken.client_id, broken.cause))  # type: ignore[misc]


class WatchedRing(Ring):
    """A ring whose end a test can see, and whose links it can close.

    Attributes:
        has_ended: whether `end` was called.
    """

    has_ended = False

    def end(self, error: Callable[[], BaseException]) -> None:
        """See `Ring.end`."""
        self.has_ended = True
        super().end(error)

    def close(self) -> None:
        """End both links, as the end of the process does."""
        for neighbours in self._neighbours.values():
            neighbours.incoming.close()
            neighbours.outgoing.close()


def _made(client_id: int, place: GroupPlace, neighbours: Sequence[Neighbours]) -> WatchedRing:
    def end(error: BaseException) -> None:
        ring.end(lambda: RingBrokenError(client_id, f"a collective ended half-way: {error!r}"))

    ring = WatchedRing(client_id, place, neighbours, end)
    return ring


@contextlib.asynccontextmanager
async def _served(made: list[WatchedRing]) -> AsyncIterator[list[WatchedRing]]:
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(_serve(ring)) for ring in made]
        try:
            yield made
        finally:
            for task in running:
                task.cancel()


@contextlib.asynccontextmanager
async def served_ring(rank: int, size: int, incoming: Link, outgoing: Link) -> AsyncIterator[WatchedRing]:
    """Yield one client's ring; a broken one ends its calls with the `RingBrokenError`."""
    pair = Neighbours((rank - 1) % size, incoming, (rank + 1) % size, outgoing)
    async with _served([_made(rank, GroupPlace(0, 1, 0, size - 1), [pair])]) as group:
        yield group[0]


def groups_of(sizes: Sequence[int]) -> Groups:
    """Return the division of a job into groups of these sizes."""
    groups = Groups(sum(sizes))
    groups.leaders = (0, *itertools.accumulate(sizes[:-1]))
    return groups


@contextlib.asynccontextmanager
async def rings(place: Place, *sizes: int) -> AsyncIterator[list[WatchedRing]]:
    """Yield the rings of all clients of a job of groups of these sizes; a broken one ends its calls."""
    groups = groups_of(sizes)
    clients = range(sum(sizes))
    pairs = [_pairs(own, groups.neighbours_of(own)) for own in clients]
    async with links_of(place, pairs) as links:
        made = []
        for own in clients:
            sides = zip(pairs[own], links[own], strict=True)
            neighbours = [Neighbours(left, coming, right, going) for (left, right), (coming, going) in sides]
            made.append(_made(own, groups.place_of(own), neighbours))
        async with _served(made) as group:
            yield group


def _pairs(own: int, neighbours: tuple[int, ...]) -> list[tuple[int, int]]:
    return [pair for pair in zip(neighbours[::2], neighbours[1::2], strict=True) if pair != (own, own)]
