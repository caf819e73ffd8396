"""The sessions of clients with the coordination services: pumps their messages over links, one after another."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, get_args

from ...transport.ports import Frame, LinkIdentity, ServiceLink
from ...transport.wire.framing import decode, encode_parts
from ...transport.wire.services import EndOther, ServiceReply, ServiceRequest
from ...transport.wire.session_messages import Acknowledge, OpenSession, SessionMessage
from ...transport.wire.shared_replies import ReplyEncoder
from ..machines.session.effects import Began, Drop, Effects, Ended, Finish
from ..machines.session.limits import SERVICES_KEPT_MAX
from ..machines.session.table import AcceptedSession, SessionTable, not_for_clients
from .alarm import Alarm
from .crash import OnCrash

if TYPE_CHECKING:
    from .service_server import ServiceServer

_log = logging.getLogger("bringup")

_REQUESTS = frozenset(get_args(ServiceRequest)) - {EndOther}

_Key = tuple[int, int, int]
"""Client id and incarnation, as the link knows them, and the number of the session."""
_Session = AcceptedSession[_Key, list[bytes]]


class RemoteSessions:
    """Used on the event loop of the services.

    Args:
        server: the services.
        is_member: whether somebody is a client of this job.
        clock: the time, monotonic, in seconds.
        on_crash: told what was raised that nobody expected.
    """

    def __init__(
        self,
        server: ServiceServer,
        is_member: Callable[[LinkIdentity], bool],
        clock: Callable[[], float],
        on_crash: OnCrash,
    ) -> None:
        self.on_crash = on_crash
        self._server = server
        self._is_member = is_member
        self._clock = clock
        self._table: SessionTable[_Key, list[bytes]] = SessionTable(
            SERVICES_KEPT_MAX, num_clients=server.machine.num_clients
        )
        self._alarm = Alarm(self._wake, clock, on_crash)
        self._links: dict[int, ServiceLink] = {}
        self._encoder = ReplyEncoder()
        self._callers: dict[int, int] = {}  # the number that the services know a session by

    def __len__(self) -> int:
        """Return the number of sessions, carried or not."""
        return len(self._callers)

    def welcome(self, link: ServiceLink, sender: LinkIdentity) -> SessionReceiver:
        """See `ports.ServiceWelcome`."""
        number = self._table.connected(self._clock())
        self._links[number] = link
        self._alarm.set(self._table.deadline())
        return SessionReceiver(self, self._server, number, sender)

    def close(self) -> None:
        """Serve nobody any more."""
        self._alarm.cancel()
        for link in self._links.values():
            link.close()
        self._links.clear()

    # What comes over links.

    def open(self, number: int, sender: LinkIdentity, opening: OpenSession) -> tuple[_Session | None, int]:
        """Take in the first message on a link; returns the session that it carries, and its number as a caller.

        Raises:
            ValueError: the sender is no client of this job.
        """
        if not self._is_member(sender):
            raise ValueError("it is no client of this job")
        effects = self._table.open(number, (sender.client_id, sender.incarnation, opening.session), opening)
        session = self._table.carried_by(number)
        if session is not None and Began(session.number) in effects:
            self._callers[session.number] = self._server.open_session(
                partial(self._reply, session), lambda: session.has_room
            )
        self._carry_out(effects)
        if session is None:
            return None, 0
        self.pump(session)
        # It may have said that it has received what a long answer waits for.
        self._server.go_on()
        return session, self._callers[session.number]

    def receive(self, number: int, sender: LinkIdentity, message: SessionMessage) -> None:
        """Take in a message of the session itself."""
        effects = self._table.receive(number, message)
        for effect in effects:
            if isinstance(effect, Ended) and not effect.is_forgotten:
                log_breach(sender, effect.reason)
        self._carry_out(effects)
        if type(message) is Acknowledge:
            self._server.go_on()

    def end(self, key: _Key) -> None:
        """End a session that its client cannot end itself, as the event loop that used it is gone."""
        self._carry_out(self._table.end(key))

    def lost(self, number: int, reason: str) -> None:
        """Take in that a link has ended."""
        self._links.pop(number, None)
        self._carry_out(self._table.lost(number, reason))

    def drop(self, number: int, reason: str) -> None:
        """End a link whose client breaks the protocol."""
        if (link := self._links.get(number)) is not None:
            link.close()
        self.lost(number, reason)

    # What goes out.

    def pump(self, session: _Session) -> None:
        """Write what a session has for the link that carries it."""
        number = session.carrier
        if (link := self._links.get(number)) is not None:
            write_all(link, partial(session.next_to_send, number))

    def _reply(self, session: _Session, reply: ServiceReply) -> None:
        parts = self._encoder.encode(reply)
        if session.pass_through(parts):
            self._links[session.carrier].send(parts)
        elif effects := self._table.put(session.number, parts):
            self._carry_out(effects)
        else:
            self.pump(session)

    def _carry_out(self, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case Drop(number) | Finish(number):
                    self._end_link(number)
                case Ended(session, is_forgotten=True):
                    if (caller := self._callers.pop(session, None)) is not None:
                        self._server.close_session(caller)
        self._alarm.set(self._table.deadline())

    def _end_link(self, number: int) -> None:
        if (link := self._links.pop(number, None)) is not None:
            write_all(link, partial(self._table.next_to_send, number))
            link.close()

    def _wake(self) -> None:
        self._carry_out(self._table.wake(self._clock()))


class SessionReceiver:
    """Receives the messages of one link, the first of which opens or resumes a session."""

    def __init__(self, sessions: RemoteSessions, server: ServiceServer, number: int, sender: LinkIdentity) -> None:
        self._sessions = sessions
        self._server = server
        self._number = number
        self._sender = sender
        self._session: _Session | None = None
        self._caller = 0

    def received(self, frame: Frame) -> None:
        """See `ServiceReceiver.received`."""
        try:
            message = decode(frame)
            session = self._session
            if session is not None and type(message) in _REQUESTS:
                if session.take(self._number, len(frame)):
                    self._server.handle(self._caller, self._sender.client_id, message)  # type: ignore[arg-type]
                    if session.owes_acknowledgement:
                        self._sessions.pump(session)
            elif isinstance(message, OpenSession) and session is None:
                self._session, self._caller = self._sessions.open(self._number, self._sender, message)
            elif isinstance(message, SessionMessage):
                self._sessions.receive(self._number, self._sender, message)
            elif isinstance(message, EndOther) and session is not None:
                if session.take(self._number, len(frame)):
                    self._sessions.end((self._sender.client_id, self._sender.incarnation, message.session))
            else:
                raise ValueError(not_for_clients(message))
        except ValueError as error:
            log_breach(self._sender, str(error))
            self._end(self._sessions.drop, str(error))
        except Exception as error:  # noqa: BLE001 - a network would drop the link, and the client dial again and again
            self._sessions.on_crash(error)

    def lost(self, reason: str) -> None:
        """See `ServiceReceiver.lost`. The session waits for its client to resume it."""
        self._end(self._sessions.lost, reason)

    def _end(self, how: Callable[[int, str], None], reason: str) -> None:
        try:
            how(self._number, reason)
        except Exception as error:  # noqa: BLE001 - a network would only log it
            self._sessions.on_crash(error)


def write_all(link: ServiceLink, next_to_send: Callable[[], list[bytes] | SessionMessage | None]) -> None:
    """Write the messages that a session has for a link: encoded ones of the services, and its own."""
    while (message := next_to_send()) is not None:
        link.send(message if isinstance(message, list) else encode_parts(message))


def log_breach(sender: LinkIdentity, reason: str) -> None:
    """Say on client 0 that a client broke the protocol."""
    _log.warning("client %d broke the protocol of the services: %s", sender.client_id, reason)
