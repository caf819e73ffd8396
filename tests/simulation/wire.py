"""How the processes of one world reach the coordinator and one another: dialling, taking sessions up again, probes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from bringup.runtime.drivers.coordinator import PROBE_TIMEOUT, REGISTRATION_TIMEOUT
from bringup.runtime.machines import events as ev
from bringup.transport.attempts import Goal, TroubleKind, retry_delay
from bringup.transport.ports import ProbeOutcome

from .costs import Mail
from .dialling import RESUME_TIMEOUT, Dial
from .network import EVER
from .session import Connection, Session

if TYPE_CHECKING:
    from .process import Process
    from .world import World

_HOST = 0
_REDIAL_DELAY = 0.05
_PROBE_LAG_MAX = 0.5
"""An answer costs an overloaded process little, and waits for nothing."""

Tell = Callable[[ev.ProbeAnswered], None]


class Wire:
    """What connects the processes of one world.

    Attributes:
        sessions: all that coordinators know of, by number.
        mail: the wire form of messages.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.network = world.network
        self.sessions: dict[int, Session] = {}
        self.mail = Mail()
        self._numbers = itertools.count(1)
        self._waiting: list[tuple[Process, ev.Tag]] = []
        self._session_of: dict[tuple[Process, int, int], Session] = {}

    # A session begins.

    def dial(self, client: Process, tag: ev.Tag) -> None:
        """Connect with the coordinator, as soon as there is one, and begin a session."""
        if client.is_over or not client.is_alive:
            return None
        if client.session is not None:
            # Whoever answered before was not its coordinator.
            client.session.leave_client_carrier()
            client.session = None
            return client.later(_REDIAL_DELAY, self.dial, client, tag)
        return Dial(
            client,
            Goal.COORDINATOR,
            _HOST,
            partial(self._arrive, client, tag),
            is_wanted=lambda: not client.is_over,
            report=lambda trouble: client.tell_peer(ev.DialFailed(trouble.text)),
        ).attempt()

    def _arrive(self, client: Process, tag: ev.Tag, dial: Dial) -> None:
        host = self.world.host
        if host is None:
            self._waiting.append((client, tag))
            client.later(self.network.delay(), client.tell_peer, ev.DialFailed("connection refused"))
        else:
            dial.worked()
            host.deliver(self._accept, client, host, tag, dial)

    def serve(self) -> None:
        """A coordinator listens now: whoever waits for one finds it at the next attempt."""
        waiting, self._waiting = self._waiting, []
        for client, tag in waiting:
            self._soon(retry_delay(self.world.clock.now - client.began), client, self.dial, tag)

    def _soon(self, seconds: float, client: Process, action: object, *arguments: object) -> None:
        assert callable(action)
        client.later(self.world.rng.uniform(0, seconds), action, client, *arguments)

    def _accept(self, client: Process, host: Process, tag: ev.Tag, dial: Dial) -> None:
        if client.gone_at < EVER:
            return None
        if self.world.host is not host:
            return self.dial(client, tag)
        connection = Connection(self.network, client, host)
        connection.on_lost_at_client = lambda _: client.later(_REDIAL_DELAY, self.dial, client, tag)
        connection.begin(self._open, connection, tag, is_swallowed=dial.is_swallowed)
        return host.later(REGISTRATION_TIMEOUT, self._end_strangers, connection)

    def _open(self, connection: Connection, tag: ev.Tag) -> None:
        client = connection.client
        if client.is_over:
            return connection.close_at_client()
        client.session = Session(self, client, connection)
        return client.tell_peer(ev.Connected(tag, client.link_address))

    def _end_strangers(self, connection: Connection) -> None:
        if connection.on_lost_at_host is None and connection in connection.host.served:
            connection.close_at_host()

    def register(self, session: Session) -> None:
        """The coordinator hears of a session for the first time."""
        session.number = next(self._numbers)
        self.sessions[session.number] = session
        self._session_of[self._key(session)] = session

    def forget(self, session: Session) -> None:
        """The coordinator has nothing more to say in a session."""
        if self._session_of.get(self._key(session)) is session:
            del self._session_of[self._key(session)]

    def lose_host(self, host: Process) -> None:
        """The coordinator on `host` is gone, and with it its sessions."""
        self._session_of = {key: session for key, session in self._session_of.items() if session.host is not host}

    def sessions_of(self, host: Process) -> list[Session]:
        """Return the sessions that the coordinator on `host` has."""
        return [session for session in self._session_of.values() if session.host is host]

    @property
    def sessions_left(self) -> list[int]:
        """The numbers of those that a coordinator still has."""
        return [session.number for session in self._session_of.values()]

    def _key(self, session: Session) -> tuple[Process, int, int]:
        return (session.host, session.client.client_id, session.client.incarnation)

    # A session goes on.

    def redial(self, client: Process, tag: ev.Tag) -> None:
        """Take a client's session up on another connection, or find out that nobody knows it any more."""
        client.redials += 1
        self._redial(client, tag, client.redials)

    def _redial(self, client: Process, tag: ev.Tag, turn: int) -> None:
        if client.redials != turn:
            return
        Dial(
            client,
            Goal.SESSION,
            _HOST,
            partial(self._knock, client, tag, turn),
            is_wanted=lambda: client.redials == turn,
            final=lambda _: self._give_up(client, tag, turn, "connection refused"),
        ).attempt()

    def _knock(self, client: Process, tag: ev.Tag, turn: int, dial: Dial) -> None:
        host = self.world.host
        if host is None:
            client.later(self.network.delay(), dial.fail, TroubleKind.REFUSED)
        else:
            dial.worked()
            host.deliver(self._accept_again, client, host, tag, turn, dial)

    def _accept_again(self, client: Process, host: Process, tag: ev.Tag, turn: int, dial: Dial) -> None:
        if client.gone_at < EVER:
            return None
        if self.world.host is not host:
            return self._knock(client, tag, turn, dial)
        connection = Connection(self.network, client, host)
        again = partial(client.later, _REDIAL_DELAY, self._redial, client, tag, turn)
        connection.on_lost_at_client = lambda _: again()
        connection.begin(self._ask_to_resume, connection, tag, turn, is_swallowed=dial.is_swallowed)
        return host.later(REGISTRATION_TIMEOUT, self._end_strangers, connection)

    def _ask_to_resume(self, connection: Connection, tag: ev.Tag, turn: int) -> None:
        client, session = connection.client, connection.client.session
        if client.redials != turn:
            return connection.close_at_client()
        assert session is not None
        session.leave_client_carrier()
        connection.up.put(self._resume, connection, tag, turn, session.client_ledger.received)
        return client.later(RESUME_TIMEOUT, self._ask_no_longer, connection, tag, turn)

    def _resume(self, connection: Connection, tag: ev.Tag, turn: int, received: int) -> None:
        client, host = connection.client, connection.host
        session = self._session_of.get((host, client.client_id, client.incarnation))
        if session is None or client.session is not session:
            connection.down.end(self._give_up, client, tag, turn, "another coordinator answers")
        else:
            # The number is that of now: what the old connection still brings is not for this one.
            connection.down.put(self._go_on, connection, tag, turn, session.host_ledger.received)
            session.go_on_at_host(connection, received)
            host.tell_coordinator(ev.SessionResumed(session.number))

    def _go_on(self, connection: Connection, tag: ev.Tag, turn: int, received: int) -> None:
        client, session = connection.client, connection.client.session
        if client.redials != turn or connection not in client.connections:
            return
        assert session is not None
        client.redials += 1
        client.tell_peer(ev.Reconnected(tag))
        session.go_on_at_client(connection, received)

    def _ask_no_longer(self, connection: Connection, tag: ev.Tag, turn: int) -> None:
        client = connection.client
        if client.redials == turn and connection in client.connections:
            connection.close_at_client()
            client.later(_REDIAL_DELAY, self._redial, client, tag, turn)

    def _give_up(self, client: Process, tag: ev.Tag, turn: int, reason: str) -> None:
        if client.redials == turn:
            client.redials += 1
            is_cut = client.session is not None and not client.session.is_carried_at_client
            client.tell_peer(ev.CoordinatorGone(tag, reason, is_cut))

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
            is_wanted=lambda: bool(unanswered),
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
