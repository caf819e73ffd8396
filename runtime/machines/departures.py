"""Clients that are leaving: what is said of them to all, and to whoever would wait for them in vain."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from ...errors import PeerFailedError
from ...transport.wire.messages import Leaver, Leaving, MemberInfo
from .id_ranges import name_ids
from .phases import Phase

_PAUSE, _PAUSE_PER_CLIENT = 0.01, 1e-4
_NAMES_MAX = 1024


class Departures:
    """The coordinator's part: the first that leaves is told to all at once, those that follow soon are told together.

    Where thousands leave one after the other, to tell each at once would cost the square of their number.

    Args:
        num_clients: the number of clients in the job.
    """

    def __init__(self, num_clients: int) -> None:
        self._pause = _PAUSE + _PAUSE_PER_CLIENT * num_clients
        self._untold: dict[int, int] = {}
        self._due = 0.0

    def add(self, client_id: int, collectives: int, now: float) -> list[Leaving]:
        """Take in that a client, which has called so many collectives, leaves; returns what to send to all."""
        self._untold[client_id] = collectives
        return self.wake(now)

    def wake(self, now: float) -> list[Leaving]:
        """Return what to send to all by now."""
        if not self._untold or now < self._due:
            return []
        self._due = now + self._pause
        told, self._untold = self._untold, {}
        return [Leaving(_runs(told))]

    def deadline(self) -> float | None:
        """Return when to wake this next."""
        return self._due if self._untold else None


def ids_of(leavers: Iterable[Leaver]) -> Iterator[int]:
    """Yield the clients that a message names."""
    for leaver in leavers:
        yield from range(leaver.first, leaver.last + 1)


def _runs(collectives: Mapping[int, int]) -> tuple[Leaver, ...]:
    runs: list[Leaver] = []
    for client_id, count in sorted(collectives.items()):
        last = runs[-1] if runs else None
        if last is not None and (last.last, last.collectives) == (client_id - 1, count):
            runs[-1] = Leaver(last.first, client_id, count)
        else:
            runs.append(Leaver(client_id, client_id, count))
    return tuple(runs)


class RoundCounts:
    """How many rounds of each barrier have ended, of the names that were used last; for texts."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._has_forgotten = False

    def count(self, name: str) -> None:
        """Note that a round has ended."""
        counts = self._counts
        counts[name] = counts.pop(name, 0) + 1
        if len(counts) > _NAMES_MAX:
            del counts[next(iter(counts))]
            self._has_forgotten = True

    def ended(self, name: str) -> int | None:
        """Return how many rounds of a barrier have ended, or `None` where that is not known any more."""
        return self._counts.get(name, None if self._has_forgotten else 0)


def round_without(what: str, leaver: str, waiting: Collection[int], ended: int | None) -> str:
    """Return why a round of a barrier fails.

    Args:
        what: the barrier.
        leaver: who is leaving, and has not come.
        waiting: who has come.
        ended: how many of its rounds have ended, where that is known.
    """
    after = f" after round {ended}" if ended else ""
    here = "for it" if ended is None else f"in round {ended + 1}"
    return (
        f"{what}: {leaver} is leaving the job (shutdown){after}; {_wait(waiting)} {here}. Let every client come to it "
        "as often as the others before it shuts down."
    )


def collective_without(leaver: MemberInfo, collectives: int, client_id: int, number: int) -> PeerFailedError:
    """Return the error of a collective to which a client does not come.

    Args:
        leaver: who is leaving.
        collectives: how many its program has called.
        client_id: whose call this is.
        number: which of its program's collectives that is.
    """
    leaves = "is leaving the job (shutdown)" + (f" after collective {collectives}" if collectives else "")
    waits = f"client {client_id} waits in collective {number}"
    return PeerFailedError(
        f"client {leaver.client_id} ({leaver.hostname}, {leaver.address}) {leaves}; {waits}. Let every client call "
        "as many as the others before it shuts down.",
        client_id=leaver.client_id,
        address=leaver.address,
        host=leaver.hostname,
        phase=Phase.LEAVING,
        cause=f"it {leaves}, and {waits}",
    )


def _wait(client_ids: Collection[int]) -> str:
    return f"{name_ids(client_ids)} {'wait' if len(client_ids) > 1 else 'waits'}"
