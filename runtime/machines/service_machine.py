"""The coordination services of a job: key-value store, barriers and `live()`, in one order of requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...transport.wire.services import (
    CancelCall,
    ClientIds,
    EndOther,
    EnterBarrier,
    GetKey,
    ListLive,
    ServiceReply,
    ServiceRequest,
)
from .barrier.rounds import BarrierRounds, RoundStatus
from .id_ranges import pack_ids
from .kv.store import StoreMachine

Replies = list[tuple[int, ServiceReply]]


class ServiceMachine:
    """Takes requests one after the other: each is atomic, and their order is total.

    A client may have several sessions, one for each event loop that it calls from.

    Args:
        num_clients: of the job.
        kv_max_bytes: what the key-value store may hold.
        describe: says where a client is, for the text of a time-out.
        live: the clients that are alive.
    """

    def __init__(
        self,
        num_clients: int,
        kv_max_bytes: int,
        describe: Callable[[int], str],
        live: Callable[[], Iterable[int]],
    ) -> None:
        self._live = live
        self._stayers = set(range(num_clients))
        self._has_others = num_clients > 1
        self._getting: dict[int, int] = {}
        self._store = StoreMachine(kv_max_bytes)
        self._barriers = BarrierRounds(num_clients, describe)

    def handle(self, session: int, client_id: int, request: ServiceRequest, now: float) -> Replies:
        """Take in one request; returns the replies."""
        if isinstance(request, EnterBarrier):
            return self._barriers.enter(session, client_id, request, now)
        if isinstance(request, ListLive):
            return [(session, ClientIds(request.ticket, pack_ids(self._live())))]
        if isinstance(request, CancelCall):
            self._barriers.cancel(session, request.ticket, now)
            return self._store.handle(session, request) + self._barriers.abandon()
        assert not isinstance(request, EndOther), "whoever serves sessions ends them"
        replies = self._store.handle(session, request)
        if isinstance(request, GetKey) and request.wait and not replies:
            self._getting[session] = client_id
            return self._give_up_waiting(session)
        return replies

    def leave(self, client_id: int, now: float) -> Replies:
        """Note that a client leaves the job; calls that can only end with its help fail."""
        self._stayers.discard(client_id)
        replies = self._barriers.leave(client_id, now)
        for session in self._getting:
            replies += self._give_up_waiting(session)
        return replies

    def _give_up_waiting(self, session: int) -> Replies:
        """End the pending gets of a session if all other clients have left."""
        is_alone = self._has_others and self._stayers <= {self._getting[session]}
        return self._store.give_up_waiting(session) if is_alone else []

    def close_session(self, session: int, now: float) -> Replies:
        """Drop the state of a session that has ended."""
        self._store.close_session(session)
        self._getting.pop(session, None)
        self._barriers.close_session(session, now)
        return self._barriers.abandon()

    def open_rounds(self) -> list[RoundStatus]:
        """Return the open rounds of all barriers."""
        return self._barriers.status()

    def has_work(self, has_room: Callable[[int], bool]) -> bool:
        """Return whether `work` has something to do."""
        return self._store.has_work(has_room)

    def work(self, has_room: Callable[[int], bool]) -> Replies:
        """See `StoreMachine.work`."""
        return self._store.work(has_room)

    def deadline(self) -> float | None:
        """Return when to wake this next."""
        return self._barriers.deadline()

    def wake(self, now: float) -> Replies:
        """Do what falls due."""
        return self._barriers.expire(now)
