"""Client ids and kinds of devices as ranges, for texts and messages: a slice of 100,000 cores has few of either."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence

from ...transport.wire.messages import KindRun, Leaver

COORDINATOR = 0
"""The client that hosts the coordinator."""

_RANGES_SHOWN_MAX = 16
"""Of a set in a text: it stays one line that a person reads."""


def pack_ids(ids: Iterable[int]) -> tuple[int, ...]:
    """Return `ids` as pairs of first and last id of each run, one after the other: `[1, 3, 4, 5]` is `(1, 1, 3, 5)`."""
    packed: list[int] = []
    for client_id in sorted(ids):
        if packed and packed[-1] == client_id - 1:
            packed[-1] = client_id
        else:
            packed += (client_id, client_id)
    return tuple(packed)


def unpack_ids(packed: Sequence[int]) -> Iterator[int]:
    """Yield the ids of a result of `pack_ids`."""
    for first, last in zip(packed[::2], packed[1::2], strict=True):
        yield from range(first, last + 1)


def pack_some(ids: Collection[int], most: int) -> tuple[int, ...]:
    """Return the first of `ids`, packed: at `most` so many runs.

    A message to all has only so many, in whatever way its ids are scattered, and their number in all: otherwise its
    bytes, for all clients, would be the square of their number.
    """
    return pack_ids(ids)[: 2 * most]


def format_ids(ids: Iterable[int], more: int = 0) -> str:
    """Return `ids`, and how many `more` there are, for a text, at most one line: `3`, `1, 4-7 and 2 more`."""
    packed = pack_ids(ids)
    pairs = list(zip(packed[::2], packed[1::2], strict=True))
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in pairs[:_RANGES_SHOWN_MAX]]
    hidden = more + sum(last - first + 1 for first, last in pairs[_RANGES_SHOWN_MAX:])
    return ", ".join(shown) + (f" and {hidden} more" if hidden else "")


def name_ids(ids: Iterable[int], more: int = 0) -> str:
    """Return clients, and how many `more` there are, for a text: `client 3`, `clients 1, 4-7 and 2 more`."""
    chosen = set(ids)
    return f"client{'s' * (len(chosen) + more != 1)} {format_ids(chosen, more)}"


def leaver_ids(leavers: Iterable[Leaver]) -> Iterator[int]:
    """Yield the clients that a message about leavers names."""
    for leaver in leavers:
        yield from range(leaver.first, leaver.last + 1)


def runs_of(kinds: Iterable[str]) -> tuple[KindRun, ...]:
    """Return `kinds`, in their order, as runs."""
    return tuple(KindRun(kind, sum(1 for _ in run)) for kind, run in itertools.groupby(kinds))


def join_runs(parts: Iterable[Iterable[KindRun]]) -> tuple[KindRun, ...]:
    """Return the runs of all `parts`, one after the other, as runs."""
    groups = itertools.groupby(itertools.chain.from_iterable(parts), key=lambda run: run.kind)
    return tuple(KindRun(kind, sum(run.count for run in group)) for kind, group in groups)


class IdRuns:
    """A set of ids, kept as runs: a change costs their number at most, and so does to read it as ranges.

    Args:
        packed: the ids that it begins with, as from `pack_ids`.
    """

    def __init__(self, packed: Sequence[int] = ()) -> None:
        # The first id of each run, and the first one after it.
        self._bounds = [bound + place % 2 for place, bound in enumerate(packed)]
        self._size = sum(self._bounds[1::2]) - sum(self._bounds[::2])

    def __len__(self) -> int:
        return self._size

    def __contains__(self, client_id: int) -> bool:
        return bisect_right(self._bounds, client_id) % 2 == 1

    def packed(self) -> tuple[int, ...]:
        """Return the ids as pairs of first and last id of each run."""
        return tuple(bound - place % 2 for place, bound in enumerate(self._bounds))

    def add(self, client_id: int) -> None:
        """Add an id. Idempotent."""
        if client_id not in self:
            self._flip(client_id, 1)

    def discard(self, client_id: int) -> None:
        """Remove an id, if it is there."""
        if client_id in self:
            self._flip(client_id, -1)

    def within(self, packed: Sequence[int]) -> IdRuns:
        """Return the ids of this set that are in `packed`, too."""
        pairs: list[int] = []
        for first, last in zip(packed[::2], packed[1::2], strict=True):
            start, end = bisect_right(self._bounds, first), bisect_left(self._bounds, last + 1)
            inner = self._bounds[start:end]
            bounds = [*([first] if start % 2 else []), *inner, *([last + 1] if end % 2 else [])]
            pairs += [bound - place % 2 for place, bound in enumerate(bounds)]
        return IdRuns(pairs)

    def _flip(self, client_id: int, by: int) -> None:
        for bound in (client_id, client_id + 1):
            place = bisect_left(self._bounds, bound)
            if self._bounds[place : place + 1] == [bound]:
                del self._bounds[place]
            else:
                self._bounds.insert(place, bound)
        self._size += by
