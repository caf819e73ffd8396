"""The coordination services of a job: key-value store, barriers and `live()`, in one order of requests."""

from __future__ import annotations

from collections.abc import Callable, Collection

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
from .id_ranges import IdRuns
from .kv.store import StoreMachine

Replies = list[tuple[int, ServiceReply]]


class ServiceMachine:
    """Takes requests one after the other: each is atomic, and their order is total.

    A client may have several sessions, one for each event loop that it calls from.

    Args:
        num_clients: of the job.
        kv_max_bytes: what the key-value store may hold.
        describe: says where a client is, for the text of a time-out.
        dead: the clients that are dead, as far as is known: few, as the job fails for any.

    Attributes:
        num_clients: see above.
    """

    def __init__(
        self,
        num_clients: int,
        kv_max_bytes: int,
        describe: Callable[[int], str],
        dead: Callable[[], Collection[int]],
    ) -> None:
        self.num_clients = num_clients
        self._dead = dead
        self._stayers = IdRuns((0, num_clients - 1))
        self._has_others = num_clients > 1
        self._getting: dict[int, int] = {}
        self._store = StoreMachine(kv_max_bytes)
        self._barriers = BarrierRounds(num_clients, describe)

    def handle(self, session: int, client_id: int, request: ServiceRequest, now: float) -> Replies:
        """Take in one request; returns the replies."""
        if isinstance(request, EnterBarrier):
            return self._barriers.enter(session, client_id, request, now)
        if isinstance(request, ListLive):
            return [(session, ClientIds(request.ticket, self._live()))]
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
        if len(self._stayers) <= 1:
            for session in self._getting:
                replies += self._give_up_waiting(session)
        return replies

    def _live(self) -> tuple[int, ...]:
        """Return the clients that are neither dead nor leaving, as far as is known, as ranges."""
        if not (dead := self._dead()):
            return self._stayers.packed()
        live = IdRuns(self._stayers.packed())
        for client_id in dead:
            live.discard(client_id)
        return live.packed()

    def _give_up_waiting(self, session: int) -> Replies:
        """End the pending gets of a session if all other clients have left."""
        others = len(self._stayers) - (self._getting[session] in self._stayers)
        return self._store.give_up_waiting(session) if self._has_others and not others else []

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
