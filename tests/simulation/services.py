"""The simulated coordination services of one job: the machine that ships, on the coordinator's host."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from bringup.runtime.machines.coordinator.machine import CoordinatorMachine
from bringup.runtime.machines.id_ranges import unpack_ids
from bringup.runtime.machines.service_machine import ServiceMachine
from bringup.transport.wire import framing
from bringup.transport.wire.services import CancelCall, ClientIds, ServiceReply, ServiceRequest, SetKey

from . import invariants
from .costs import SERVICE_BYTE, SERVICE_MESSAGE, Meter
from .network import Stream

if TYPE_CHECKING:
    from .process import Process
    from .store_oracle import StoreOracle

_KV_MAX_BYTES = 2**30
_FIRST_TICKET = 1_000_000
"""Of calls on the store; those of barriers are below."""
_ON_THEIR_WAY_MAX = 32

Replies = list[tuple[int, ServiceReply]]


class SimulatedServices:
    """Each client has one channel, which outlives its links: what is sent arrives, in order, as long as both live."""

    def __init__(self, host: Process, coordinator: CoordinatorMachine, store: StoreOracle) -> None:
        num_clients = host.world.num_clients
        self._host = host
        self._machine = ServiceMachine(num_clients, _KV_MAX_BYTES, coordinator.whereabouts, coordinator.live)
        self._streams: dict[Process, tuple[Stream, Stream]] = {}
        self._callers: list[Process] = []
        self._session_of: dict[Process, int] = {}
        self._leavers: set[int] = set()
        self._asked: dict[tuple[int, int], Callable[[ServiceReply], None]] = {}
        self._tickets = itertools.count(_FIRST_TICKET)
        self._on_their_way: Counter[int] = Counter()
        self._is_at_work = False
        self._armed_for: float | None = None
        self._meter = Meter()
        self._store = store

    def call(self, caller: Process, request: ServiceRequest) -> None:
        """Bring a request of a client to the services."""
        up, _ = self._streams_of(caller)
        size = len(framing.encode(request))
        caller.work(SERVICE_MESSAGE + SERVICE_BYTE * size)
        up.put(self._take, self._session_of[caller], request, size)

    def ask(
        self, caller: Process, make: Callable[[int], ServiceRequest], on_reply: Callable[[ServiceReply], None]
    ) -> int:
        """Bring a call on the key-value store to the services, given its ticket; returns that, for `cancel`."""
        self._streams_of(caller)
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
        self._streams_of(self._host)
        for number in range(keys):
            self._machine.handle(0, self._host.client_id, SetKey(1, f"d/{number:06}", b"value", False), 0.0)

    def _streams_of(self, caller: Process) -> tuple[Stream, Stream]:
        if caller not in self._streams:
            network, host = self._host.world.network, self._host
            is_local = caller is host
            up = Stream(network, caller.client_id, host, is_local=is_local, sender=caller)
            down = Stream(network, host.client_id, caller, is_local=is_local, sender=host)
            self._streams[caller] = (up, down)
            self._session_of[caller] = len(self._callers)
            self._callers.append(caller)
        return self._streams[caller]

    def _take(self, session: int, request: ServiceRequest, size: int) -> None:
        caller = self._callers[session]
        if self._is_over or caller.is_over:
            return
        now = self._host.world.clock.now
        self._host.work(SERVICE_MESSAGE + SERVICE_BYTE * size)
        self._store.served(caller, request)
        self._tell(self._measured(lambda: self._machine.handle(session, caller.client_id, request, now)))
        self._arm()
        self._go_on()

    def _measured(self, step: Callable[[], Replies]) -> Replies:
        if not self._host.world.is_metered:
            return step()
        replies, seconds = self._meter(step)
        self._host.work(seconds)
        return replies

    def _go_on(self) -> None:
        """Let what takes long go on, once whoever has come meanwhile was served."""
        if not self._is_at_work and self._machine.has_work(self._has_room):
            self._is_at_work = True
            self._host.later(0.0, self._work)

    def _work(self) -> None:
        self._is_at_work = False
        if not self._is_over:
            self._tell(self._measured(lambda: self._machine.work(self._has_room)))
            self._go_on()

    def _has_room(self, session: int) -> bool:
        return self._on_their_way[session] < _ON_THEIR_WAY_MAX

    def _arrive(self, session: int, reply: ServiceReply, size: int) -> None:
        caller = self._callers[session]
        self._on_their_way[session] -= 1
        caller.work(SERVICE_MESSAGE + SERVICE_BYTE * size)
        if reply.ticket < _FIRST_TICKET:
            caller.barrier_done(reply)
        elif not caller.is_over and (on_reply := self._asked.get((session, reply.ticket))) is not None:
            on_reply(reply)
        self._host.later(0.0, self._go_on)

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
            _, down = self._streams_of(caller)
            size = len(framing.encode(reply))
            self._host.work(SERVICE_MESSAGE + SERVICE_BYTE * size)
            self._on_their_way[session] += 1
            down.put(self._arrive, session, reply, size)

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
