"""The simulated coordination services of one job: the shipped machine, on the coordinator's host."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bringup.runtime.machines.coordinator.machine import CoordinatorMachine
from bringup.runtime.machines.id_ranges import unpack_ids
from bringup.runtime.machines.service_machine import ServiceMachine
from bringup.runtime.machines.session.effects import Effect, Ended, GivenUp, Gone
from bringup.runtime.machines.session.limits import SERVICES_KEPT_MAX
from bringup.transport.wire import framing
from bringup.transport.wire.services import CancelCall, ClientIds, ServiceReply, ServiceRequest, SetKey

from . import invariants
from .costs import SERVICE_BYTE, SERVICE_MESSAGE, Meter
from .network import Stream
from .session import AcceptedSessions, DialledSession, Letter

if TYPE_CHECKING:
    from .process import Process
    from .store_oracle import StoreOracle

_KV_MAX_BYTES = 2**30
_FIRST_TICKET = 1_000_000
"""Of calls on the store; those of barriers are below."""

Replies = list[tuple[int, ServiceReply]]


def _posted(sender: Process, number: int, message: Any) -> Letter:
    letter = Letter(number, message, len(framing.encode(message)))
    sender.work(SERVICE_MESSAGE + SERVICE_BYTE * letter.size)
    return letter


class _ServiceLink(DialledSession):
    """A client's session with the services."""

    def __init__(self, process: Process, services: SimulatedServices) -> None:
        super().__init__(process, SERVICES_KEPT_MAX, begins_anew=False)
        self._services = services

    def dial(self, number: int, *, is_expected: bool) -> None:
        """See `DialledSession`."""
        self.process.world.wire.dial_services(self, number, self._services.sessions)

    def posted(self, number: int, message: Any) -> Letter:
        """See `DialledSession`."""
        return _posted(self.process, number, message)

    def deliver(self, letter: Letter) -> None:
        """See `DialledSession`."""
        self._services.arrive(self.process, letter.message, letter.size)

    def tell(self, effect: Effect) -> None:
        """See `DialledSession`."""
        if isinstance(effect, Gone | GivenUp):
            self.process.abort(RuntimeError(effect.reason))


class _ServiceSessions(AcceptedSessions):
    """The sessions of the services.

    Attributes:
        number_of: the session of each client that has sent something.
    """

    def __init__(self, process: Process, services: SimulatedServices) -> None:
        super().__init__(process, SERVICES_KEPT_MAX, 0.0)
        self.number_of: dict[Process, int] = {}
        self._services = services

    def posted(self, number: int, message: Any) -> Letter:
        """See `AcceptedSessions`."""
        return _posted(self.process, number, message)

    def deliver(self, client: Process, session: int, letter: Letter) -> None:
        """See `AcceptedSessions`."""
        self.number_of[client] = session
        self._services.take(client, letter.message, letter.size)

    def acknowledged(self) -> None:
        """See `AcceptedSessions`."""
        self._services.go_on()

    def tell(self, effect: Effect) -> None:
        """See `AcceptedSessions`."""
        if isinstance(effect, Ended) and effect.is_forgotten:
            self._services.close_session(self.clients[effect.session])


class SimulatedServices:
    """Each client but the host has a session with them, which outlives its links.

    Attributes:
        sessions: the accepting side.
    """

    def __init__(self, host: Process, coordinator: CoordinatorMachine, store: StoreOracle) -> None:
        num_clients = host.world.num_clients
        self._host = host
        self._machine = ServiceMachine(num_clients, _KV_MAX_BYTES, coordinator.whereabouts, coordinator.dead)
        self.sessions = _ServiceSessions(host, self)
        self._links: dict[Process, _ServiceLink] = {}
        self._local = Stream(host.world.network, host.client_id, host, is_local=True, sender=host)
        self._callers: list[Process] = []
        self._session_of: dict[Process, int] = {}
        self._leavers: set[int] = set()
        self._asked: dict[tuple[int, int], Callable[[ServiceReply], None]] = {}
        self._tickets = itertools.count(_FIRST_TICKET)
        self._is_at_work = False
        self._armed_for: float | None = None
        self._meter = Meter()
        self._store = store

    def call(self, caller: Process, request: ServiceRequest) -> None:
        """Bring a request of a client to the services."""
        self._join(caller)
        if caller is self._host:
            size = len(framing.encode(request))
            caller.work(SERVICE_MESSAGE + SERVICE_BYTE * size)
            return self._local.put(self.take, caller, request, size)
        link = self._links[caller]
        if not link.machine.number:
            link.begin()
        return link.send(request)

    def ask(
        self, caller: Process, make: Callable[[int], ServiceRequest], on_reply: Callable[[ServiceReply], None]
    ) -> int:
        """Bring a call on the key-value store to the services, given its ticket; returns that, for `cancel`."""
        self._join(caller)
        ticket = next(self._tickets)
        self._asked[self._session_of[caller], ticket] = on_reply
        self.call(caller, make(ticket))
        return ticket

    def cancel(self, caller: Process, ticket: int) -> None:
        """Wait for a call no longer: what is on its way is not looked at."""
        del self._asked[self._session_of[caller], ticket]
        self.call(caller, CancelCall(ticket))

    def fill(self, keys: int) -> None:
        """Set so many keys, which costs nothing."""
        self._join(self._host)
        for number in range(keys):
            self._machine.handle(0, self._host.client_id, SetKey(1, f"d/{number:06}", b"value", False), 0.0)

    def link_of(self, caller: Process) -> DialledSession:
        """Return the session of a client, other than the host."""
        return self._links[caller]

    def end_of(self, caller: Process) -> None:
        """A client uses the services no more."""
        if (link := self._links.get(caller)) is not None:
            link.finish()
            link.abandon()

    def _join(self, caller: Process) -> None:
        if caller not in self._session_of:
            self._session_of[caller] = len(self._callers)
            self._callers.append(caller)
            if caller is not self._host:
                self._links[caller] = _ServiceLink(caller, self)

    def take(self, caller: Process, request: ServiceRequest, size: int) -> None:
        """Take in a request."""
        if self._is_over:
            return
        session, now = self._session_of[caller], self._host.world.clock.now
        self._host.work(SERVICE_MESSAGE + SERVICE_BYTE * size)
        self._store.served(caller, request)
        self._tell(self._measured(lambda: self._machine.handle(session, caller.client_id, request, now)))
        self._arm()
        self.go_on()

    def close_session(self, caller: Process) -> None:
        """The session of a client has ended."""
        if not self._is_over:
            self._tell(self._machine.close_session(self._session_of[caller], self._host.world.clock.now))

    def _measured(self, step: Callable[[], Replies]) -> Replies:
        if not self._host.world.is_metered:
            return step()
        replies, seconds = self._meter(step)
        self._host.work(seconds)
        return replies

    def go_on(self) -> None:
        """Continue long requests, after those that have arrived meanwhile."""
        if not self._is_at_work and self._machine.has_work(self._has_room):
            self._is_at_work = True
            self._host.later(0.0, self._work)

    def _work(self) -> None:
        self._is_at_work = False
        if not self._is_over:
            self._tell(self._measured(lambda: self._machine.work(self._has_room)))
            self.go_on()

    def _has_room(self, session: int) -> bool:
        accepted = self._accepted(self._callers[session])
        return accepted is None or accepted.has_room

    def _accepted(self, caller: Process) -> Any:
        return self.sessions.table.get(self.sessions.number_of.get(caller, 0))

    def arrive(self, caller: Process, reply: ServiceReply, size: int) -> None:
        """A reply has come."""
        caller.work(SERVICE_MESSAGE + SERVICE_BYTE * size)
        if reply.ticket < _FIRST_TICKET:
            caller.barrier_done(reply)
        elif not caller.is_over and (on_reply := self._asked.get((self._session_of[caller], reply.ticket))) is not None:
            on_reply(reply)

    def _tell(self, replies: Replies) -> None:
        for open_round in self._machine.open_rounds():
            absent = self._leavers.intersection(unpack_ids(open_round.missing))
            assert not absent, f"clients wait in {open_round}, though clients {sorted(absent)} are leaving"
        for session, reply in replies:
            caller = self._callers[session]
            if reply.ticket < _FIRST_TICKET:
                invariants.barrier_ends(self._host.world, caller, reply)
            elif isinstance(reply, ClientIds):
                invariants.are_alive(self._host.world, caller, reply)
            self._reply(caller, reply)

    def _reply(self, caller: Process, reply: ServiceReply) -> None:
        if caller is self._host:
            size = len(framing.encode(reply))
            caller.work(SERVICE_MESSAGE + SERVICE_BYTE * size)
            self._local.put(self.arrive, caller, reply, size)
        elif (accepted := self._accepted(caller)) is not None:
            self.sessions.send(accepted.number, reply)

    def leave(self, client_id: int) -> None:
        """A client has begun to leave."""
        self._leavers.add(client_id)
        if not self._is_over:
            self._tell(self._machine.leave(client_id, self._host.world.clock.now))

    def _arm(self) -> None:
        due = self._machine.deadline()
        if due is not None and (self._armed_for is None or due < self._armed_for):
            self._armed_for = due
            self._host.world.clock.at(max(due, self._host.world.clock.now), self._host.deliver, self._wake)

    def _wake(self) -> None:
        self._armed_for = None
        if not self._is_over:
            self._tell(self._machine.wake(self._host.world.clock.now))
            self._arm()

    @property
    def _is_over(self) -> bool:
        return self._host.coordinator is None or self._host.coordinator.is_over or self._host.is_over
