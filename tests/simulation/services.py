"""The simulated coordination services of one job: the machine that ships, on the coordinator's host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bringup.runtime.machines.coordinator import CoordinatorMachine
from bringup.runtime.machines.ids import unpack_ids
from bringup.runtime.machines.services import Services
from bringup.transport.service_messages import EnterBarrier, ServiceReply

from . import invariants
from .network import Stream

if TYPE_CHECKING:
    from .process import Process

__all__ = ["SimulatedServices"]

_KV_MAX_BYTES = 2**20


class SimulatedServices:
    """Each client has one channel, which outlives its links: what is sent arrives, in order, as long as both live."""

    def __init__(self, host: Process, coordinator: CoordinatorMachine) -> None:
        num_clients = host.world.num_clients
        self._host = host
        self._machine = Services(num_clients, _KV_MAX_BYTES, coordinator.whereabouts, coordinator.live)
        self._streams: dict[Process, tuple[Stream, Stream]] = {}
        self._callers: list[Process] = []
        self._leavers: set[int] = set()

    def call(self, caller: Process, request: EnterBarrier) -> None:
        """Bring a request of a client to the services."""
        up, _ = self._streams_of(caller)
        up.put(self._take, self._callers.index(caller), request)

    def _streams_of(self, caller: Process) -> tuple[Stream, Stream]:
        if caller not in self._streams:
            network, host = self._host.world.network, self._host
            is_local = caller is host
            up = Stream(network, caller.client_id, host, is_local=is_local)
            down = Stream(network, host.client_id, caller, is_local=is_local)
            self._streams[caller] = (up, down)
            self._callers.append(caller)
        return self._streams[caller]

    def _take(self, session: int, request: EnterBarrier) -> None:
        caller = self._callers[session]
        if self._is_over or caller.is_over:
            return
        now = self._host.world.clock.now
        self._tell(self._machine.handle(session, caller.client_id, request, now))
        self._arm()

    def _tell(self, replies: list[tuple[int, ServiceReply]]) -> None:
        for open_round in self._machine.open_rounds():
            absent = self._leavers.intersection(unpack_ids(open_round.missing))
            assert not absent, f"clients wait in {open_round}, though clients {sorted(absent)} are leaving"
        for session, reply in replies:
            caller = self._callers[session]
            invariants.barrier_ends(self._host.world, caller, reply)
            _, down = self._streams_of(caller)
            down.put(caller.barrier_done, reply)

    def leave(self, client_id: int) -> None:
        """A client has begun to leave."""
        self._leavers.add(client_id)
        if not self._is_over:
            self._tell(self._machine.leave(client_id, self._host.world.clock.now))

    def _arm(self) -> None:
        if (due := self._machine.deadline()) is not None:
            self._host.world.clock.at(max(due, self._host.world.clock.now), self._host.deliver, self._wake)

    def _wake(self) -> None:
        if not self._is_over:
            self._tell(self._machine.wake(self._host.world.clock.now))

    @property
    def _is_over(self) -> bool:
        return self._host.coordinator is None or self._host.coordinator.is_over or self._host.is_over
