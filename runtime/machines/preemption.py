"""Preemption: the clients agree on one step of their programs, at which all save, before one client is taken.

Theory of operation. A client that learns that it is to be taken tells the coordinator, which waits until `window`
seconds before that, and then asks all for their steps. A client that was asked tells the last step that its program
came to, and from then on holds back every call with a later step. When all have told theirs, the sync step is the
highest of them plus one. So no client is past it, and none gets past it before it knows of it: either all that come
to that step are told so, or there is no sync step::

    coordinator   idle -> asking -> idle         a step for all, or none, where a client has not told in time
    client        idle -> asked -> told -> idle

A program that has not come to any step when asked tells its first. That call is not held back, as the sync step comes
after every step that was told; neither are others like it.

Notices that come while all are being asked are met by the step that is being agreed on. Later ones begin again, unless
the client that sends one has a sync step ahead of it. Where nobody went on in between, that gives the same step again.
A client that is shutting down comes to no step any more: the others agree without it, and save without it.

Steps are counted by one, upwards: a program that skips the sync step is not told of it.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

from ...transport.wire.messages import PreemptionNotice, StepQuery, StepReply, SyncPoint
from .id_ranges import name_ids

WINDOW = 900.0
"""A client that is taken later than this, in seconds, need not save yet: jax's 15 minutes."""

ANSWER_TIMEOUT = 180.0
"""Seconds for all answers to a query: jax's 3 minutes."""

NO_STEP = -1
"""In a message: the program has come to no step, or there is no sync step."""


@dataclass(frozen=True, slots=True)
class PointAnswered:
    """An effect: call `ticket` of `reached_preemption_point` returns `is_reached`."""

    ticket: int
    is_reached: bool


@dataclass(frozen=True, slots=True, order=True)
class _Notice:
    start: float
    client_id: int
    due: float
    reason: str


@dataclass(slots=True)
class _Asking:
    notice: _Notice
    deadline: float
    untold: set[int]
    step: int = NO_STEP  # the highest that was told


ToAll = list[StepQuery | SyncPoint]
"""Messages that every client is to be sent."""


class PreemptionAgreement:
    """The coordinator's part. See the module's theory of operation.

    Args:
        num_clients: the number of clients in the job.
        window: how long before a client is taken the agreement begins, in seconds.
        answer_timeout: how long all have to tell their steps, in seconds; then there is no sync step.
    """

    def __init__(self, num_clients: int, *, window: float = WINDOW, answer_timeout: float = ANSWER_TIMEOUT) -> None:
        self._num_clients = num_clients
        self._window = window
        self._answer_timeout = answer_timeout
        self._notices: dict[int, _Notice] = {}
        self._by_start: list[_Notice] = []  # a heap, which also holds notices that were overtaken
        self._asking: _Asking | None = None
        self._number = 0
        self._leavers: set[int] = set()

    # Transitions.

    def announce(self, client_id: int, deadline_in: float, reason: str, now: float) -> ToAll:
        """Take in a notice: a client will be taken in `deadline_in` seconds: a negative number is now, infinity never.

        Returns:
            What to send to all clients.
        """
        if deadline_in == math.inf:
            return []
        due = now + max(0.0, deadline_in)
        notice = _Notice(due - self._window, client_id, due, reason)
        known = self._notices.get(client_id)
        if known is None or notice.due < known.due:
            self._notices[client_id] = notice
            heapq.heappush(self._by_start, notice)
        return self.wake(now)

    def replied(self, client_id: int, message: StepReply, now: float) -> ToAll:
        """Take in a client's step; an answer to an earlier agreement is dropped."""
        asking = self._asking
        if asking is None or message.number != self._number:
            return []
        asking.step = max(asking.step, message.step)
        return self._told(asking, client_id, now)

    def leaves(self, client_id: int, now: float) -> ToAll:
        """Note that a client leaves: nobody waits for its step."""
        self._leavers.add(client_id)
        return self._told(self._asking, client_id, now) if self._asking is not None else []

    def wake(self, now: float) -> ToAll:
        """Do what falls due."""
        asking = self._asking
        if asking is None:
            return self._begin(now)
        if now < asking.deadline:
            return []
        why = (
            f"{name_ids(asking.untold)} did not come to a preemption point within "
            f"{self._answer_timeout:g} s after all were asked: {self._why(asking.notice, now)}"
        )
        return self._settle(NO_STEP, why, now)

    def deadline(self) -> float | None:
        """Return when to wake this next."""
        if self._asking is not None:
            return self._asking.deadline
        first = self._first()
        return None if first is None else first.start

    # Steps.

    def _begin(self, now: float) -> ToAll:
        """Query all steps if a notice is due. The agreement covers all notices that become due until it ends."""
        first = self._first()
        if first is None or first.start > now:
            return []
        self._number += 1
        self._asking = _Asking(first, now + self._answer_timeout, set(range(self._num_clients)) - self._leavers)
        return [StepQuery(self._number)]

    def _told(self, asking: _Asking, client_id: int, now: float) -> ToAll:
        """Wait for a client no longer; settle when all have replied."""
        asking.untold.discard(client_id)
        if asking.untold:
            return []
        step = NO_STEP if asking.step == NO_STEP else asking.step + 1
        return self._settle(step, self._why(asking.notice, now), now)

    def _first(self) -> _Notice | None:
        """Return the notice of the client that is taken first."""
        heap = self._by_start
        while heap and self._notices.get(heap[0].client_id) is not heap[0]:
            heapq.heappop(heap)
        return heap[0] if heap else None

    def _settle(self, step: int, reason: str, now: float) -> ToAll:
        while (first := self._first()) is not None and first.start <= now:
            del self._notices[first.client_id]
        self._asking = None
        return [SyncPoint(self._number, step, reason)]

    def _why(self, notice: _Notice, now: float) -> str:
        left = notice.due - now
        when = f"in {left:.1f} s" if left > 0 else "now"
        return f"client {notice.client_id} is to be preempted {when}: {notice.reason}"


FromPoint = list[StepReply | PointAnswered]
"""The messages for the coordinator, and the answers to the program's calls."""


class PreemptionPoint:
    """A client's part. See the module's theory of operation.

    Args:
        client_id: of this client.
        window: as in `PreemptionAgreement`.
    """

    def __init__(self, client_id: int, *, window: float = WINDOW) -> None:
        self._client_id = client_id
        self._window = window
        self._step = NO_STEP
        self._asked: int | None = None
        self._told: int | None = None
        self._points: set[int] = set()
        self._held: dict[int, int] = {}

    # Transitions.

    def reached(self, ticket: int, step: int) -> FromPoint:
        """Take in a call of the program at `step`, 0 or above.

        Returns:
            The answer to this call, or nothing yet: then it comes from `point_set`.
        """
        assert step >= 0, f"step {step} of a program is below 0"
        if self._told is not None and step > self._told:
            self._held[ticket] = step
            return []
        return [*self._come_to(step), PointAnswered(ticket, step in self._points)]

    def asked(self, message: StepQuery) -> FromPoint:
        """Take in a query of the coordinator; the answer waits for the program's first step."""
        self._asked, self._told = message.number, None
        return self._tell() if self._step != NO_STEP else []

    def point_set(self, message: SyncPoint) -> FromPoint:
        """Take in the result of an agreement."""
        if message.number != self._asked:
            return []
        self._asked = self._told = None
        if message.step != NO_STEP:
            self._points.add(message.step)
        return self._release()

    def announce(self, deadline_in: float, reason: str) -> list[PreemptionNotice]:
        """Return the notice to send when this client is to be taken; none if a sync step is ahead anyway."""
        is_met = deadline_in <= self._window and any(step > self._step for step in self._points)
        return [] if is_met else [PreemptionNotice(self._client_id, deadline_in, reason)]

    def cancel(self, ticket: int) -> None:
        """Drop a call that was cancelled: the program has not come to its step."""
        self._held.pop(ticket, None)

    # Steps.

    def _come_to(self, step: int) -> FromPoint:
        self._step = step
        if self._points:
            self._points = {point for point in self._points if point >= step}
        return self._tell() if self._asked is not None and self._told is None else []

    def _tell(self) -> FromPoint:
        assert self._asked is not None
        self._told = self._step
        return [StepReply(self._asked, self._step)]

    def _release(self) -> FromPoint:
        """Answer the pending calls in the order of their steps."""
        held = sorted(self._held.items(), key=lambda call: call[1])
        self._held.clear()
        effects: FromPoint = []
        for ticket, step in held:
            effects += [*self._come_to(step), PointAnswered(ticket, step in self._points)]
        return effects
