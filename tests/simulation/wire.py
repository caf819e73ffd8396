"""Connections and probes between the processes of one world."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from bringup.runtime.drivers.coordinator import PROBE_TIMEOUT
from bringup.runtime.machines.id_ranges import COORDINATOR
from bringup.runtime.machines.peer import events as ev
from bringup.transport.attempts import Goal, TroubleKind, retry_delay
from bringup.transport.crowds import poll_delay
from bringup.transport.ports import ProbeOutcome

from .costs import ACCEPT, Mail
from .dialling import Dial
from .network import EVER
from .session import AcceptedSessions, Connection, DialledSession

if TYPE_CHECKING:
    from .process import Process
    from .world import World

_PROBE_LAG_MAX = 0.5
"""An answer costs an overloaded process little, and waits for nothing."""

Tell = Callable[[ev.ProbeAnswered], None]


class Wire:
    """The connections of one world.

    Attributes:
        mail: the wire form of messages.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.network = world.network
        self.mail = Mail()
        self._waiting: list[Dial] = []

    # Connections that carry sessions.

    def dial_coordinator(self, link: DialledSession, number: int, *, is_expected: bool) -> None:
        """Connect with the coordinator: with whoever comes, or, where one `is_expected`, unless nobody is there."""
        client = link.process
        Dial(
            client,
            Goal.SESSION if is_expected else Goal.COORDINATOR,
            COORDINATOR,
            partial(self._arrive, link, number),
            is_wanted=lambda: number in link.dialled,
            report=lambda trouble: client.tell_peer(ev.DialFailed(trouble.text)),
            final=lambda _: link.unreachable(number, "connection refused"),
        ).attempt()

    def dial_services(self, link: DialledSession, number: int, sessions: AcceptedSessions) -> None:
        """Connect with the services, for as long as it takes."""
        arrive = partial(self._arrive_at_services, link, number, sessions)
        Dial(link.process, Goal.SERVICES, COORDINATOR, arrive, is_wanted=lambda: number in link.dialled).attempt()

    def _arrive(self, link: DialledSession, number: int, dial: Dial) -> None:
        host, client = self.world.host, dial.process
        if host is not None:
            dial.worked()
            host.deliver(self._accept, link, number, host, dial)
        elif dial.goal is Goal.SESSION:
            client.later(self.network.delay(), dial.fail, TroubleKind.REFUSED)
        else:
            self._waiting.append(dial)
            client.later(self.network.delay(), client.tell_peer, ev.DialFailed("connection refused"))

    def serve(self) -> None:
        """A coordinator listens now: whoever waits for one finds it at the next attempt."""
        waiting, self._waiting = self._waiting, []
        for dial in waiting:
            patience = max(
                retry_delay(self.world.clock.now - dial.process.began), poll_delay(self.world.num_clients, 0.5)
            )
            dial.process.later(self.world.rng.uniform(0, patience), dial.attempt)

    def _accept(self, link: DialledSession, number: int, host: Process, dial: Dial) -> None:
        if self.world.host is host:
            host.work(ACCEPT)
            self._connect(link, number, host.sessions, dial)
        elif dial.process.gone_at == EVER:
            self._arrive(link, number, dial)

    def _arrive_at_services(self, link: DialledSession, number: int, sessions: AcceptedSessions, dial: Dial) -> None:
        if sessions.process.is_listening:
            dial.worked()
            sessions.process.deliver(self._connect, link, number, sessions, dial)
        else:
            dial.process.later(self.network.delay(), dial.fail, TroubleKind.REFUSED)

    def _connect(self, link: DialledSession, number: int, sessions: AcceptedSessions, dial: Dial) -> None:
        if dial.process.gone_at < EVER or sessions.process.gone_at < EVER:
            return
        connection = Connection(link, sessions)
        connection.on_lost_at_client = lambda _: dial.fail(TroubleKind.BROKEN)
        sessions.accept(connection)
        connection.begin(link.opened, number, connection, is_swallowed=dial.is_swallowed())

    # A process is asked whether it lives.

    def probe(self, judge: Process, probe: ev.Probe, tell: Tell, timeout: float = PROBE_TIMEOUT) -> None:
        """Ask whoever listens on an address for its incarnation, and `tell` the answer on `judge`."""
        unanswered = [probe]

        def answer(outcome: ProbeOutcome) -> None:
            if unanswered:
                unanswered.clear()
                tell(ev.ProbeAnswered(probe.tag, outcome, outcome.value))

        judge.later(timeout, answer, ProbeOutcome.SILENT)
        Dial(
            judge,
            Goal.PROBE,
            self.world.host_number(probe.link_address),
            partial(self._ask, judge, probe, answer),
            is_wanted=lambda: bool(unanswered) and judge.gone_at == EVER,
            final=lambda _: answer(ProbeOutcome.REFUSED),
        ).attempt()

    def _ask(self, judge: Process, probe: ev.Probe, answer: Callable[[ProbeOutcome], None], dial: Dial) -> None:
        suspect = self.world.listener(probe.link_address)
        if self.network.is_cut(self.world.host_number(probe.link_address), judge.client_id):
            return
        if suspect is None:
            judge.later(self.network.delay(), dial.fail, TroubleKind.REFUSED)
        elif suspect.is_stopped:
            suspect.deliver(self._ask, judge, probe, answer, dial)  # its kernel keeps the question until it goes on
        else:
            dial.worked()
            is_same = suspect.incarnation == probe.incarnation
            delay = min(suspect.lag, _PROBE_LAG_MAX) + self.network.delay()
            judge.later(delay, answer, ProbeOutcome.ALIVE if is_same else ProbeOutcome.REPLACED)
