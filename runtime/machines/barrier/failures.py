"""Failures of barrier rounds: their texts, and the answers to clients that come to a failed round later."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from ....errors import BarrierTimeoutError, CollectiveMismatchError, PeerFailedError
from ....transport.wire.services import Refusal
from ..id_ranges import format_ids, name_ids, pack_ids
from .participants import Participants

LIVE_PREFIX = "bringup/live/"
"""The prefix of the names of barriers of `live()`."""

_COUNTED_NAMES_MAX = 1024
"""Names whose rounds are counted. A program that makes a new name for each step would fill memory; the count of an old
name is only missing from a text."""

_DESCRIBED_MAX = 8
"""Clients that a text describes one by one; the others are ranges."""

_NAME_SHOWN_MAX = 100
"""Characters of a barrier's name in a text."""

_ROUNDS_MAX = 16
"""Failed rounds kept for each name: a client that stays away for more gets the later texts, and as many of them."""

_BYTES_MAX = 16 << 20
"""For all failed rounds of a job: far more than a program needs that handles its failures, and no burden on a host."""

_BYTES_EACH, _BYTES_PER_CLIENT, _BYTES_PER_ID = 512, 96, 16
"""Estimates of what a failure, a client that has yet to hear of it, and a range of ids take; on the high side."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The cause of a failed round: `error` is the name of the public exception, `missing` are clients as ranges."""

    error: str
    text: str
    missing: tuple[int, ...] = ()

    def refusal(self, ticket: int) -> Refusal:
        """Return the answer to a call in the round."""
        return Refusal(ticket, self.error, self.text, self.missing)


def shown(name: str) -> str:
    """Return a barrier's name for a text."""
    return repr(name if len(name) <= _NAME_SHOWN_MAX else name[:_NAME_SHOWN_MAX] + "...")


def time_out(name: str, missing: Sequence[int], size: int, patience: str, describe: Callable[[int], str]) -> Failure:
    """Return the failure of a round of `size` clients to which `missing` did not come.

    Args:
        name: the barrier.
        missing: their ids, in order.
        size: how many take part.
        patience: how long was waited, and who said so.
        describe: where a client is, or an empty text.
    """
    places = ((client_id, describe(client_id)) for client_id in missing[:_DESCRIBED_MAX])
    named = ", ".join(
        f"client {client_id} ({place})" if place else f"client {client_id}" for client_id, place in places
    )
    rest = missing[_DESCRIBED_MAX:]
    more = f", and {len(rest)} more: {format_ids(rest)}" if rest else ""
    text = (
        f"barrier {shown(name)}: {size - len(missing)} of {size} clients came {patience}. Missing: {named}{more}. "
        "Find out what keeps them, or give the barrier a longer timeout."
    )
    return Failure(BarrierTimeoutError.__name__, text, pack_ids(missing))


def mismatch(
    name: str, came: Collection[int], theirs: Participants, caller: int, participants: Participants
) -> Failure:
    """Return the failure of a round where `caller` passed `participants`, and those that `came` before it `theirs`."""
    alone = "" if caller in participants else ", without itself"
    sayings = [f"client {caller} named {participants}{alone}"]
    if came:
        sayings.insert(0, f"client{'s' if len(came) > 1 else ''} {format_ids(came)} named {theirs}")
    text = (
        f"barrier {shown(name)}: its clients do not agree on who takes part: {'; '.join(sayings)}. This round has "
        "failed for all of them. Pass the same client_ids on every client of the barrier, itself among them."
    )
    return Failure(CollectiveMismatchError.__name__, text)


def departure(
    name: str, absent: tuple[int, ...], waiting: Collection[int], ended: int | None, describe: Callable[[int], str]
) -> Failure:
    """Return the failure of a round to which clients that are leaving have not come.

    Args:
        name: the barrier.
        absent: their ids, as ranges.
        waiting: who has come.
        ended: how many rounds of the name have ended, where that is known.
        describe: where a client is, or an empty text.
    """
    what = "live()" if name.startswith(LIVE_PREFIX) else f"barrier {shown(name)}"
    place = describe(absent[0])
    leaver = f"client {absent[0]}" + (f" ({place})" if place else "")
    text = round_without(what, leaver, waiting, ended)
    return Failure(PeerFailedError.__name__, text, absent)


@dataclass(slots=True)
class _Kept:
    failure: Failure
    owed: dict[int, int]
    """The number of calls that it answers, for each client."""

    def weight(self) -> int:
        fixed = _BYTES_EACH + len(self.failure.text) + _BYTES_PER_ID * len(self.failure.missing)
        return fixed + _BYTES_PER_CLIENT * len(self.owed)


@dataclass(slots=True)
class _Backlog:
    """The failed rounds of one name, oldest first."""

    rounds: list[_Kept]
    weight: int = 0

    def take(self, client_id: int) -> Failure | None:
        for kept in self.rounds:
            if client_id in kept.owed:
                kept.owed[client_id] -= 1
                if not kept.owed[client_id]:
                    del kept.owed[client_id]
                if not kept.owed:
                    self.rounds.remove(kept)
                return kept.failure
        return None

    def add(self, kept: _Kept) -> None:
        self.rounds.append(kept)
        if len(self.rounds) > _ROUNDS_MAX:
            oldest, heir = self.rounds.pop(0), self.rounds[0]
            for client_id, calls in oldest.owed.items():
                heir.owed[client_id] = heir.owed.get(client_id, 0) + calls


class KeptFailures:
    """The failed rounds to which some clients have not come yet; their calls are answered with the round's failure.

    Where a client stays away for many rounds of a name, the oldest are told as the one after them, but each call is
    counted. Where all of it takes more than `bytes_max`, the names whose last failure is oldest are forgotten, and who
    still comes to those rounds begins new ones.
    """

    def __init__(self, bytes_max: int = _BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._weight = 0
        self._backlogs: dict[str, _Backlog] = {}

    def __len__(self) -> int:
        return len(self._backlogs)

    @property
    def weight(self) -> int:
        """About how many bytes are kept."""
        return self._weight

    def keep(self, name: str, failure: Failure, pending: Iterable[int]) -> None:
        """Answer the next call of barrier `name` by each of `pending` with `failure`, after what they are owed."""
        owed = dict.fromkeys(pending, 1)
        if owed:
            backlog = self._backlogs.pop(name, None) or _Backlog([])
            backlog.add(_Kept(failure, owed))
            self._weigh(name, backlog)
            self._backlogs[name] = backlog
        while self._weight > self._bytes_max:
            self._weight -= self._backlogs.pop(next(iter(self._backlogs))).weight

    def take(self, name: str, client_id: int) -> Failure | None:
        """Return the failure that answers a call of barrier `name` by client `client_id`, if its round has failed."""
        backlog = self._backlogs.get(name)
        if backlog is None:
            return None
        failure = backlog.take(client_id)
        if not backlog.rounds:
            del self._backlogs[name]
            self._weight -= backlog.weight
        return failure

    def _weigh(self, name: str, backlog: _Backlog) -> None:
        weight = len(name) + sum(kept.weight() for kept in backlog.rounds)
        self._weight += weight - backlog.weight
        backlog.weight = weight


def round_without(what: str, leaver: str, waiting: Collection[int], ended: int | None) -> str:
    """Return the text of a round that fails because a client leaves.

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


def _wait(client_ids: Collection[int]) -> str:
    return f"{name_ids(client_ids)} {'wait' if len(client_ids) > 1 else 'waits'}"


class RoundCounts:
    """Counts of the rounds that have ended, for the barrier names used last; for texts."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._has_forgotten = False

    def count(self, name: str) -> None:
        """Count a round."""
        counts = self._counts
        counts[name] = counts.pop(name, 0) + 1
        if len(counts) > _COUNTED_NAMES_MAX:
            del counts[next(iter(counts))]
            self._has_forgotten = True

    def ended(self, name: str) -> int | None:
        """Return how many rounds of a barrier have ended, or `None` where that is not known any more."""
        return self._counts.get(name, None if self._has_forgotten else 0)
