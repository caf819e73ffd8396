"""The simulated network: sessions with the coordinator, and probes. Delays are random; a session keeps its order."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from bringup.runtime.machines import events as ev
from bringup.transport.messages import ClientMessage, CoordinatorMessage
from bringup.transport.ports import ProbeOutcome

if TYPE_CHECKING:
    from .process import Process
    from .world import World

__all__ = ["DELAY_MAX", "SimulatedSession", "Wire"]

DELAY_MIN, DELAY_MAX = 0.0001, 0.005
"""Seconds that a message takes, one way."""

_LOCAL_DELAY = 0.00001
_REDIAL_MAX = 0.25
_PROBE_TIMEOUT = 1.0


class _Stream:
    """One direction of a session: what is sent arrives in order, and nothing after the end."""

    def __init__(self, wire: Wire, receiver: Process, is_local: bool) -> None:
        self._wire = wire
        self._receiver = receiver
        self._is_local = is_local
        self._clear_at = 0.0
        self._has_ended = False

    def put(self, deliver: Callable[[], None], *, last: bool = False) -> None:
        if self._has_ended:
            return
        self._has_ended = last
        clock = self._wire.world.clock
        delay = _LOCAL_DELAY if self._is_local else self._wire.delay()
        self._clear_at = max(self._clear_at, clock.now + delay)
        clock.at(self._clear_at, lambda: self._receiver.deliver(deliver))


class SimulatedSession:
    """Between a client's process and the one that hosts the coordinator."""

    def __init__(self, wire: Wire, number: int, client: Process, host: Process) -> None:
        self.number = number
        self.client = client
        self.host = host
        self._up = _Stream(wire, host, client is host)
        self._down = _Stream(wire, client, client is host)

    def send_up(self, message: ClientMessage) -> None:
        """Bring a message of the client to the coordinator."""
        self._up.put(lambda: self.host.tell_coordinator(ev.SessionMessage(self.number, message)))

    def send_down(self, message: CoordinatorMessage) -> None:
        """Bring a message of the coordinator to the client."""
        self._down.put(lambda: self.client.tell_peer(ev.Received(message)))

    def end_up(self, reason: str, then: Callable[[], None] | None = None) -> None:
        """The client's side ends; `then` happens once the coordinator's side has seen it."""

        def ended() -> None:
            self.host.tell_coordinator(ev.SessionEnded(self.number, reason))
            if then is not None:
                self._down.put(then, last=True)

        self._up.put(ended, last=True)

    def end_down(self, reason: str) -> None:
        """The coordinator's side ends, after what was sent."""
        self._down.put(lambda: self.client.tell_peer(ev.SessionLost(reason)), last=True)


class Wire:
    """What connects the processes of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.sessions: dict[int, SimulatedSession] = {}
        self._numbers = itertools.count(1)
        self._dialling: list[tuple[Process, ev.Tag]] = []

    def delay(self) -> float:
        """Draw how long a message takes, one way."""
        return self.world.rng.uniform(DELAY_MIN, DELAY_MAX)

    def dial(self, client: Process, tag: ev.Tag) -> None:
        """Connect with the coordinator, as soon as there is one."""
        host = self.world.host
        if host is client:
            return self._open(client, client, tag)
        if host is None:
            self._dialling.append((client, tag))
            return client.later(self.delay(), lambda: client.tell_peer(ev.DialFailed("connection refused")))
        return host.later(self.delay(), lambda: self._accept(client, host, tag))

    def serve(self) -> None:
        """A coordinator listens now: whoever waits for one finds it at the next attempt."""
        waiting, self._dialling = self._dialling, []
        for client, tag in waiting:
            self.world.clock.after(self.world.rng.uniform(0, _REDIAL_MAX), partial(self.dial, client, tag))

    def _accept(self, client: Process, host: Process, tag: ev.Tag) -> None:
        if self.world.host is not host:
            return self.dial(client, tag)
        return client.later(self.delay(), lambda: self._open(client, host, tag))

    def _open(self, client: Process, host: Process, tag: ev.Tag) -> None:
        if client.is_over:
            return None
        if self.world.host is not host:
            return self.dial(client, tag)
        number = next(self._numbers)
        client.session = self.sessions[number] = SimulatedSession(self, number, client, host)
        return client.tell_peer(ev.Connected(tag, client.link_address))

    def lose_host(self, host: Process) -> None:
        """All sessions with `host` end, after what was sent on them."""
        for session in self.sessions.values():
            if session.host is host:
                session.end_down("the connection to the coordinator broke")

    def probe(self, judge: Process, probe: ev.Probe) -> None:
        """Ask whoever listens on an address for its incarnation, and tell the coordinator on `judge`."""

        def answer(outcome: ProbeOutcome, delay: float) -> None:
            event = ev.ProbeAnswered(probe.tag, outcome, outcome.value)
            judge.later(delay, lambda: judge.tell_coordinator(event))

        def arrive() -> None:
            suspect = self.world.listener(probe.link_address)
            if self.world.is_silent(probe.link_address):
                answer(ProbeOutcome.SILENT, _PROBE_TIMEOUT)
            elif suspect is None:
                answer(ProbeOutcome.REFUSED, self.delay())
            elif suspect.incarnation != probe.incarnation:
                answer(ProbeOutcome.REPLACED, self.delay())
            else:
                answer(ProbeOutcome.ALIVE, self.delay())

        self.world.clock.after(self.delay(), arrive)
