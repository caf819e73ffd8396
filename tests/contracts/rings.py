"""Rings of a test, on one event loop, whose collectives are carried out as a peer does it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable

from bringup.transport.collectives.ring import Ring, RingBrokenError
from bringup.transport.ports import Link

from .places import Place, ring_of_links


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
        for link in (self._incoming, self._outgoing):
            if link is not None:
                link.close()


def _made(rank: int, size: int, incoming: Link | None, outgoing: Link | None) -> WatchedRing:
    def end(error: BaseException) -> None:
        ring.end(lambda: RingBrokenError(rank, f"a collective ended half-way: {error!r}"))

    ring = WatchedRing(rank, size, incoming, outgoing, end)
    return ring


@contextlib.asynccontextmanager
async def served_ring(rank: int, size: int, incoming: Link | None, outgoing: Link | None) -> AsyncIterator[WatchedRing]:
    """Yield one client's ring; a broken one ends its calls with the `RingBrokenError`."""
    async with served_rings([(incoming, outgoing)], [rank], size) as group:
        yield group[0]


@contextlib.asynccontextmanager
async def served_rings(
    links: Iterable[tuple[Link | None, Link | None]], ranks: Iterable[int], size: int
) -> AsyncIterator[list[WatchedRing]]:
    """Yield the rings of some clients; a broken one ends its calls with the `RingBrokenError`."""
    group = [_made(rank, size, *pair) for rank, pair in zip(ranks, links, strict=True)]
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(_serve(ring)) for ring in group]
        try:
            yield group
        finally:
            for task in running:
                task.cancel()


@contextlib.asynccontextmanager
async def rings(place: Place, size: int) -> AsyncIterator[list[WatchedRing]]:
    """Yield the rings of all clients of a job."""
    if size == 1:
        async with served_ring(0, 1, None, None) as ring:
            yield [ring]
        return
    async with ring_of_links(place, size) as links, served_rings(links, range(size), size) as group:
        yield group
