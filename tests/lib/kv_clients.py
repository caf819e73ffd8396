"""Simulated clients that call the key-value store at once, give up, and crash; one seed is one history.

Clients and store exchange the very bytes that go over a link, in pieces and with delays.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable

from bringup.runtime.machines.kv.store import KeyValueRequest, StoreMachine
from bringup.transport.wire import services as sm
from bringup.transport.wire.framing import Deframer, decode, encode

from .kv_operations import draw_operation, request_of, result_of
from .linearizability import Get, History, Operation


class World:
    """Clients, the store, and the channels between them, on one clock; the seed decides about everything."""

    def __init__(self, seed: int, make: Callable[[], StoreMachine] = lambda: StoreMachine(2**30)) -> None:
        self.chance = random.Random(seed)
        self.store = make()
        self.history = History()
        self.clients: dict[int, Client] = {}
        self.numbers = itertools.count()
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self.now = 0.0

    def after(self, delay: float, act: Callable[[], None]) -> float:
        """Act later; returns when."""
        due = self.now + delay
        heapq.heappush(self._queue, (due, next(self.numbers), act))
        return due

    def run(self, clients: int, calls: int) -> History:
        for _ in range(clients):
            Client(self, calls)
        while self._queue:
            self.now, _, act = heapq.heappop(self._queue)
            act()
        return self.history

    def serve(self, session: int, request: KeyValueRequest) -> None:
        for to, reply in self.store.handle(session, request):
            if to in self.clients:
                self.clients[to].down.send(encode(reply))


class Pipe:
    """One direction of a channel: bytes come in order, late, and cut anywhere; what was sent last may get lost."""

    def __init__(self, world: World, deliver: Callable[[sm.ServiceMessage], None]) -> None:
        self._world = world
        self._deliver = deliver
        self._deframer = Deframer()
        self._last = 0.0
        self.broken_at = float("inf")

    def send(self, data: bytes) -> None:
        cut = self._world.chance.randint(0, len(data))
        for piece in (data[:cut], data[cut:]):
            delay = max(self._last - self._world.now, 0.0) + self._world.chance.expovariate(1.0)
            self._last = self._world.after(delay, lambda piece=piece: self._arrive(piece))  # type: ignore[misc]

    def _arrive(self, piece: bytes) -> None:
        if self._world.now < self.broken_at:
            for frame in self._deframer.feed(piece):
                self._deliver(decode(frame))


class Client:
    """Makes calls, sometimes two at once; gives up waiting; crashes, and then another one takes its place."""

    def __init__(self, world: World, calls: int) -> None:
        self.session = next(world.numbers)
        self._world = world
        self._left = calls
        self._open: dict[int, tuple[int, Operation]] = {}
        self._listed: dict[str, bytes] = {}
        self.up = Pipe(world, lambda message: world.serve(self.session, message))  # type: ignore[arg-type]
        self.down = Pipe(world, self._told)
        world.clients[self.session] = self
        world.after(world.chance.random(), self._call)

    def _call(self) -> None:
        chance = self._world.chance
        if self._left == 0 or self.session not in self._world.clients:
            return
        self._left -= 1
        ticket = self._left
        operation = draw_operation(chance)
        self._open[ticket] = self._world.history.invoke(self.session, operation), operation
        self.up.send(encode(request_of(ticket, operation)))
        if isinstance(operation, Get):
            self._world.after(chance.expovariate(0.1), lambda: self._give_up(ticket))
        if chance.random() < 0.03:
            self._world.after(chance.expovariate(0.5), self._crash)
        if chance.random() < 0.2:
            self._world.after(chance.random(), self._call)

    def _told(self, reply: sm.ServiceMessage) -> None:
        assert isinstance(reply, sm.ServiceReply)
        if isinstance(reply, sm.Items):
            self._listed.update({item.key: item.value for item in reply.items})
            if not reply.is_last:
                return
        # Nothing comes for a call that was given up, but for what was on its way.
        number, operation = self._open.pop(reply.ticket, (None, None))
        listed = self._listed
        if isinstance(reply, sm.Items):
            self._listed = {}
        if number is not None and operation is not None:
            self._world.history.complete(number, result_of(operation, reply, listed))
            self._go_on()

    def _give_up(self, ticket: int) -> None:
        if self.session in self._world.clients and self._open.pop(ticket, None) is not None:
            self.up.send(encode(sm.CancelCall(ticket)))
            self._go_on()

    def _go_on(self) -> None:
        if not self._open:
            self._world.after(self._world.chance.expovariate(2.0), self._call)

    def _crash(self) -> None:
        if self._world.clients.pop(self.session, None) is None:
            return
        self.up.broken_at = self._world.now + self._world.chance.expovariate(1.0)
        self.down.broken_at = self._world.now
        self._world.after(self.up.broken_at - self._world.now, lambda: self._world.store.close_session(self.session))
        Client(self._world, self._left)
