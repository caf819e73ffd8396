"""Barriers by name: the rounds of each, the clients that have come, and the end of a round.

Theory of operation. A name can be used again and again. A client's call belongs to the oldest round of the name that
the client takes part in and has not come to: where all name the same set, its n-th call belongs to round n, and a slow
client and a fast one never meet in the wrong round. The first to come to a round opens it, and says for all who takes
part and until when::

    open -> released    all have come
         -> failed      its deadline has passed, or somebody came with another set of clients

A call ends with its round, and everybody in a round gets the same. Who comes to a failed round later is told that
failure at once, and has come to it. Whoever takes part in an open round can only come to that one, so there is at most
one for a name, beside failed ones to which somebody has not come yet.

A call that is cancelled is withdrawn: that client has not come, and its next call belongs to the same round. A round
that nobody is left in was never opened. Where a cancel meets a round that has ended, the call has counted: the others
were released, and no later call of this client may hold or release them in its place. `cancel` tells which it was. A
round has ended once its deadline has passed, whether or not `expire` was called since.

A client that is leaving the job comes to no more rounds: those that it has not come to fail at once, and so do later
calls that name it. Where it has come, and waits there, its round goes on.

A `timeout` of 0 means not to wait: whoever opens a round with it ends it for all, as with any deadline; whoever comes
later is refused alone, and has not come. Any other timeout of those who come later is not looked at.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from ....errors import ConfigurationError
from ....transport.wire.services import Done, EnterBarrier, Refusal, ServiceReply
from ..id_ranges import IdRuns, pack_ids, unpack_ids
from .failures import Failure, KeptFailures, RoundCounts, departure, mismatch, shown, time_out
from .participants import Participants, read_participants

Replies = list[tuple[int, ServiceReply]]
"""Sessions, and what to answer in them."""


@dataclass(frozen=True, slots=True)
class RoundStatus:
    """An open round: the clients that came and those that are missing, as ranges; it fails at `deadline`, or never."""

    name: str
    came: tuple[int, ...]
    missing: tuple[int, ...]
    deadline: float | None


@dataclass(slots=True, eq=False)
class _Round:
    name: str
    participants: Participants
    opener: int
    timeout: float
    deadline: float
    size: int
    waiting: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The session and the ticket of each client's call."""
    is_over: bool = False

    def missing(self) -> list[int]:
        return [client_id for client_id in self.participants if client_id not in self.waiting]


class _Deadlines:
    """The open rounds by deadline; rounds that are over are removed once they are the majority."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, _Round]] = []
        self._sequence = 0
        self._over = 0

    def add(self, this_round: _Round) -> None:
        if this_round.deadline < math.inf:
            self._sequence += 1
            heapq.heappush(self._heap, (this_round.deadline, self._sequence, this_round))

    def first(self) -> _Round | None:
        while self._heap and self._heap[0][2].is_over:
            heapq.heappop(self._heap)
            self._over -= 1
        return self._heap[0][2] if self._heap else None

    def ended(self, this_round: _Round) -> None:
        if this_round.deadline < math.inf:
            self._over += 1
            if 2 * self._over > len(self._heap):
                self._heap = [entry for entry in self._heap if not entry[2].is_over]
                heapq.heapify(self._heap)
                self._over = 0


class BarrierRounds:
    """All barriers of a job. See the module's theory of operation.

    Args:
        num_clients: the number of clients in the job.
        describe: tells where a client is, as "in phase ready, at step 41", or an empty text.
    """

    def __init__(self, num_clients: int, describe: Callable[[int], str]) -> None:
        self._num_clients = num_clients
        self._describe = describe
        self._rounds: dict[str, _Round] = {}
        self._calls: dict[int, dict[int, tuple[_Round, int]]] = {}
        self._deadlines = _Deadlines()
        self._kept = KeptFailures()
        self._leavers = IdRuns()
        self._abandoned: dict[_Round, None] = {}  # those from which a leaver has withdrawn its call
        self._counts = RoundCounts()

    # Transitions.

    def enter(self, session: int, client_id: int, request: EnterBarrier, now: float) -> Replies:
        """Take in a call of client `client_id`, to be answered in `session`.

        Returns:
            `Done` or `Refusal` for every call that ends by this, each with its session; none while the round is open.
            A refusal is a `BarrierTimeoutError`, a `PeerFailedError` where one is leaving the job, a
            `CollectiveMismatchError` where the clients differ on who takes part, or a `ConfigurationError`, of this
            call alone, where its arguments are wrong or the client waits in this barrier already.
        """
        replies = self.expire(now)
        this_round = self._rounds.get(request.name)
        participants: Participants | str
        if this_round is not None and this_round.participants.packed == request.client_ids:
            participants = this_round.participants
        else:
            participants = read_participants(request.client_ids, self._num_clients)
        if isinstance(participants, str):
            return [*replies, self._refuse(session, client_id, request, f"{participants}: pass each client's id once")]
        if request.ticket in self._calls.get(session, ()):
            return [*replies, self._refuse(session, client_id, request, f"ticket {request.ticket} waits already")]
        if (failure := self._kept.take(request.name, client_id)) is not None:
            return [*replies, (session, failure.refusal(request.ticket))]
        if this_round is None:
            return replies + self._open(session, client_id, request, participants, now)
        if client_id in this_round.waiting:
            return [*replies, self._refuse(session, client_id, request, "it waits there already: one call at a time")]
        is_other = participants is not this_round.participants and participants.pairs != this_round.participants.pairs
        if is_other or participants.stranger is not None or client_id not in participants:
            return replies + self._disagree(this_round, session, client_id, request.ticket, participants)
        replies += self._join(this_round, session, client_id, request.ticket)
        if request.timeout == 0.0 and not this_round.is_over:
            replies.append((session, self._give_up(this_round, client_id, request.ticket)))
        return replies

    def cancel(self, session: int, ticket: int, now: float) -> bool:
        """Withdraw a call.

        Returns:
            Whether it was; `False` where its round has ended, so that it has counted.
        """
        this_round, client_id = self._calls.get(session, {}).get(ticket, (None, -1))
        if this_round is None or this_round.deadline <= now:
            return False
        self._withdraw(this_round, client_id)
        return True

    def close_session(self, session: int, now: float) -> None:
        """Withdraw all calls of a session that has ended; calls of the client's other sessions wait on."""
        for this_round, client_id in list(self._calls.get(session, {}).values()):
            if this_round.deadline > now:
                self._withdraw(this_round, client_id)

    def leave(self, client_id: int, now: float) -> Replies:
        """Take in that a client leaves the job, and fail the rounds to which it has not come."""
        replies = self.expire(now)
        self._leavers.add(client_id)
        held_up = [r for r in self._rounds.values() if client_id not in r.waiting and client_id in r.participants]
        for this_round in held_up:
            replies += self._fail_without(this_round)
        return replies + self.abandon()

    def abandon(self) -> Replies:
        """Fail the rounds from which a client has withdrawn its call that leaves."""
        replies: Replies = []
        abandoned, self._abandoned = self._abandoned, {}
        for this_round in abandoned:
            if not this_round.is_over:
                replies += self._fail_without(this_round)
        return replies

    def expire(self, now: float) -> Replies:
        """Fail the rounds whose deadline has passed."""
        replies: Replies = []
        while (this_round := self._deadlines.first()) is not None and this_round.deadline <= now:
            replies += self._time_out(this_round)
        return replies

    def deadline(self) -> float | None:
        """Return the earliest deadline of a round."""
        this_round = self._deadlines.first()
        return None if this_round is None else this_round.deadline

    # Facts.

    def status(self) -> list[RoundStatus]:
        """Return the open rounds."""
        return [
            RoundStatus(
                each.name,
                pack_ids(each.waiting),
                pack_ids(each.missing()),
                each.deadline if each.deadline < math.inf else None,
            )
            for each in self._rounds.values()
        ]

    # Steps.

    def _open(
        self, session: int, client_id: int, request: EnterBarrier, participants: Participants, now: float
    ) -> Replies:
        patience = request.timeout if 0.0 <= request.timeout < math.inf else math.inf
        this_round = _Round(request.name, participants, client_id, patience, now + patience, len(participants))
        if participants.stranger is not None or client_id not in participants:
            return self._disagree(this_round, session, client_id, request.ticket, participants)
        absent = self._leavers.within(participants.pairs)
        absent.discard(client_id)
        if absent:
            return [(session, self._without(request.name, absent.packed(), (client_id,)).refusal(request.ticket))]
        self._rounds[request.name] = this_round
        self._deadlines.add(this_round)
        replies = self._join(this_round, session, client_id, request.ticket)
        if not this_round.is_over and this_round.deadline <= now:
            return self._time_out(this_round)
        return replies

    def _join(self, this_round: _Round, session: int, client_id: int, ticket: int) -> Replies:
        this_round.waiting[client_id] = (session, ticket)
        self._calls.setdefault(session, {})[ticket] = (this_round, client_id)
        if len(this_round.waiting) < this_round.size:
            return []
        self._counts.count(this_round.name)
        return [(where, Done(each)) for where, each in self._end(this_round)]

    def _fail_without(self, this_round: _Round) -> Replies:
        leavers = unpack_ids(self._leavers.within(this_round.participants.pairs).packed())
        absent = pack_ids(each for each in leavers if each not in this_round.waiting)
        failure = self._without(this_round.name, absent, this_round.waiting)
        # It does not count: the leaver has come to none beyond those before it.
        return [(where, failure.refusal(ticket)) for where, ticket in self._end(this_round)]

    def _without(self, name: str, absent: tuple[int, ...], waiting: Collection[int]) -> Failure:
        return departure(name, absent, waiting, self._counts.ended(name), self._describe)

    def _give_up(self, this_round: _Round, client_id: int, ticket: int) -> Refusal:
        patience = f"by the call of client {client_id}, which does not wait (timeout=0)"
        missing = this_round.missing()
        self._withdraw(this_round, client_id)
        return time_out(this_round.name, missing, this_round.size, patience, self._describe).refusal(ticket)

    def _time_out(self, this_round: _Round) -> Replies:
        patience = f"within {this_round.timeout:g} s, the timeout of client {this_round.opener}, which came first"
        missing = this_round.missing()
        failure = time_out(this_round.name, missing, this_round.size, patience, self._describe)
        self._kept.keep(this_round.name, failure, missing)
        return self._fail(this_round, failure)

    def _disagree(
        self, this_round: _Round, session: int, client_id: int, ticket: int, participants: Participants
    ) -> Replies:
        """Fail the round for all that came, and for all of either set that come later."""
        failure = mismatch(this_round.name, this_round.waiting, this_round.participants, client_id, participants)
        came = {client_id, *this_round.waiting}
        self._kept.keep(this_round.name, failure, sorted({*this_round.participants, *participants} - came))
        return [*self._fail(this_round, failure), (session, failure.refusal(ticket))]

    def _fail(self, this_round: _Round, failure: Failure) -> Replies:
        self._counts.count(this_round.name)
        return [(where, failure.refusal(ticket)) for where, ticket in self._end(this_round)]

    def _refuse(self, session: int, client_id: int, request: EnterBarrier, why: str) -> tuple[int, Refusal]:
        text = f"barrier {shown(request.name)}: this call of client {client_id} is refused, as {why}"
        return session, Refusal(request.ticket, ConfigurationError.__name__, text)

    def _end(self, this_round: _Round) -> list[tuple[int, int]]:
        """Remove the round; returns the calls that waited in it."""
        this_round.is_over = True
        if self._rounds.get(this_round.name) is this_round:
            del self._rounds[this_round.name]
            self._deadlines.ended(this_round)
        ended = list(this_round.waiting.values())
        for session, ticket in ended:
            self._forget(session, ticket)
        return ended

    def _withdraw(self, this_round: _Round, client_id: int) -> None:
        self._forget(*this_round.waiting.pop(client_id))
        if not this_round.waiting:
            self._end(this_round)
        elif client_id in self._leavers:
            self._abandoned[this_round] = None

    def _forget(self, session: int, ticket: int) -> None:
        calls = self._calls[session]
        del calls[ticket]
        if not calls:
            del self._calls[session]
