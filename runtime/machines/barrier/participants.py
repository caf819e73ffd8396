"""The participants of a barrier, by the arguments of one caller: ranges of client ids, never written out."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from ..id_ranges import name_ids, unpack_ids


@dataclass(frozen=True, slots=True)
class Participants:
    """The set of clients that one caller passed.

    `packed` is the set as the caller gave it. `pairs` holds the first and last id of each run of those that the job
    has, in order; `stranger` is an id that the job does not have. Costs the number of runs, not of clients.
    """

    packed: tuple[int, ...]
    pairs: tuple[int, ...]
    num_clients: int
    stranger: int | None = None

    def __contains__(self, client_id: int) -> bool:
        place = bisect_right(self.pairs, client_id)
        return place % 2 == 1 or (place > 0 and self.pairs[place - 1] == client_id)

    def __len__(self) -> int:
        return sum(self.pairs[1::2]) - sum(self.pairs[::2]) + len(self.pairs) // 2

    def __iter__(self) -> Iterator[int]:
        return unpack_ids(self.pairs)

    def __str__(self) -> str:
        if self.stranger is None:
            size = len(self)
            return f"all {size} clients" if size == self.num_clients else name_ids(self)
        known = f"{name_ids(self)} and " if self.pairs else ""
        return f"{known}client {self.stranger}, which is not in this job of {self.num_clients} clients"


def read_participants(packed: tuple[int, ...], num_clients: int) -> Participants | str:
    """Return the set in `packed`, or the fault where it is malformed.

    Args:
        packed: pairs of first and last id, in any order; empty for all of the job.
        num_clients: the number of clients in the job.
    """
    if packed in ((), (0, num_clients - 1)):
        return Participants(packed, (0, num_clients - 1), num_clients)
    if len(packed) % 2:
        return f"its client_ids are {len(packed)} numbers, which are no pairs of first and last id"
    runs = sorted(zip(packed[::2], packed[1::2], strict=True))
    pairs: list[int] = []
    stranger: int | None = None
    end: int | None = None
    for first, last in runs:
        if first > last:
            return f"its client_ids hold a run from {first} to {last}, which ends before it begins"
        if end is not None and first <= end:
            return f"its client_ids name client {first} twice"
        end = last
        if stranger is None and (first < 0 or last >= num_clients):
            stranger = first if first < 0 else max(first, num_clients)
        first, last = max(first, 0), min(last, num_clients - 1)
        if pairs and pairs[-1] == first - 1 and first <= last:
            pairs[-1] = last
        elif first <= last:
            pairs += (first, last)
    return Participants(packed, tuple(pairs), num_clients, stranger)
