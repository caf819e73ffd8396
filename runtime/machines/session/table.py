"""The accepting side: all sessions that clients have opened, by key, and the connections that carry them::

    connection:  STRANGER -- OpenSession --> carries a session -- another takes over, lost --> gone
    session:     CARRIED <--> AWAY --> FORGOTTEN
    table:       SERVING -- close --> FLUSHING -- Flushed, stay --> STAYING --> CLOSED

A connection that does not say within `registration_timeout` whose session it carries is ended. A session whose
connection is lost is away: its client may resume it, over and over. A session is forgotten when its client ends it,
when the owner finishes it, or when it keeps more messages than it may; a client that asks for it later is refused. Of
those that were away before anything was said, the last are kept: clients begin others, and would begin these anew.

Of an end in order all clients are told first: the table is FLUSHING until none is connected any more, or their time is
over. Then it is STAYING for those that were away, until all know, or their time is over.
"""

from __future__ import annotations

import enum
import itertools
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from ....transport.wire.session_messages import (
    Acknowledge,
    EndSession,
    OpenSession,
    SessionMessage,
    SessionOpened,
    SessionRefused,
)
from .effects import NOTHING, Began, Drop, Effect, Effects, Ended, Finish, Flushed, Resumed, TableClosed
from .limits import (
    END_TIMEOUT,
    ENDED_KEPT_MAX,
    UNTOUCHED_KEPT_MAX,
    Ending,
    flush_timeout,
    registration_timeout,
    stay_timeout,
)
from .machine import SessionSide

M = TypeVar("M")
K = TypeVar("K", bound=Hashable)

_BY_CLIENT = "the client closed its connection"
_BY_US = "it was ended here"


class TableState(enum.Enum):
    """See the module's diagram."""

    SERVING = enum.auto()
    FLUSHING = enum.auto()
    STAYING = enum.auto()
    CLOSED = enum.auto()


class AcceptedSession(SessionSide[M], Generic[K, M]):
    """One session, seen from the accepting side; changed by its table only.

    Attributes:
        number: of the session, in its table.
        key: by which its client finds it.
    """

    def __init__(self, number: int, key: K, kept_max: int) -> None:
        super().__init__(kept_max)
        self.number = number
        self.key = key
        self._answer: SessionOpened | None = None
        self._is_finishing = False
        self._has_acknowledged_all = False

    def next_to_send(self, connection: int) -> M | SessionMessage | None:
        """Return the next message for a connection, `None` where there is none now."""
        if connection != self.carrier:
            return None
        if self._answer is not None:
            answer, self._answer = self._answer, None
            self._is_open = True
            return answer
        if self.owes_acknowledgement:
            return Acknowledge(self._tell_received())
        if self._buffer.has_unsent:
            return self._buffer.next_unsent()
        if self._is_finishing and not self._has_acknowledged_all:
            self._has_acknowledged_all = True
            return Acknowledge(self._tell_received())
        return None

    def begin(self, connection: int, opening: OpenSession) -> None:
        """Be carried for the first time."""
        self.carrier = connection
        self._answer = None if opening.is_new else SessionOpened(0)
        self._is_open = opening.is_new

    def take_over(self, connection: int, opening: OpenSession) -> int:
        """Be carried by another connection; returns the one before, if any.

        Raises:
            ValueError: the client cannot have received so many messages, or so few.
        """
        self._buffer.rewind(opening.received)
        before, self.carrier, self._is_open = self.carrier, connection, False
        self._answer, self._has_acknowledged_all = SessionOpened(self._tell_received()), False
        return before

    @property
    def is_untouched(self) -> bool:
        """Whether nothing has come in it, and nothing was to be sent: it could as well begin anew."""
        return not self.received and self._buffer.is_untouched

    def put(self, message: M) -> str:
        """Add a message to be sent; returns why none can be kept any more, where that is so."""
        overflow = self._overflow()
        if not overflow:
            self._buffer.append(message)
        return overflow

    def acknowledged(self, received: int) -> None:
        """Take in how many messages the client has received.

        Raises:
            ValueError: it cannot have received so many, or so few.
        """
        self._buffer.acknowledge(received)

    def finish(self) -> None:
        """End after the messages that there are."""
        self._is_finishing = True

    def leave(self) -> None:
        """Be carried by no connection."""
        self.carrier, self._is_open, self._answer = 0, False, None


class SessionTable(Generic[K, M]):
    """All sessions of one plane.

    Args:
        kept_max: messages that may be kept for each client.
        heartbeat_timeout: in seconds; how long a client may be silent in a job that ends in order.
        num_clients: of the job, which may all come in the same moment.
    """

    def __init__(self, kept_max: int, heartbeat_timeout: float = 0.0, num_clients: int = 0) -> None:
        self._kept_max = kept_max
        self._registration_timeout = registration_timeout(num_clients)
        self._heartbeat_timeout = heartbeat_timeout
        self._num_clients = num_clients
        self._state = TableState.SERVING
        self._connections = itertools.count(1)
        self._numbers = itertools.count(1)
        self._sessions: dict[int, AcceptedSession[K, M]] = {}
        self._of_key: dict[K, AcceptedSession[K, M]] = {}
        self._untouched: dict[int, AcceptedSession[K, M]] = {}
        self._carried: dict[int, AcceptedSession[K, M]] = {}
        self._ended: OrderedDict[K, str] = OrderedDict()  # why they have ended; the oldest first
        self._last_words: dict[int, SessionMessage] = {}
        # Both in the order in which they fall due. The first of a plain dict is found behind all that were deleted.
        self._strangers: OrderedDict[int, float] = OrderedDict()
        self._finishing: OrderedDict[int, float] = OrderedDict()
        self._ending = Ending.IN_ORDER
        self._due: float | None = None

    # Transitions of connections.

    def connected(self, now: float) -> int:
        """Take in a new connection; returns its number."""
        connection = next(self._connections)
        self._strangers[connection] = now + self._registration_timeout
        return connection

    def visited(self, connection: int) -> None:
        """Take in that a connection carries no session, and wants none: its driver answers and ends it."""
        self._strangers.pop(connection, None)

    def open(self, connection: int, key: K, opening: OpenSession) -> Effects:
        """Take in the first message on a connection; `key` says whose session it is."""
        if self._strangers.pop(connection, None) is None:
            return NOTHING
        session = self._of_key.get(key)
        if session is None:
            return self._begin(connection, key, opening)
        if opening.is_new:
            return self._refuse(connection, "there is a session of that number already")
        try:
            before = session.take_over(connection, opening)
        except ValueError as error:
            return self._refuse(connection, str(error))
        self._carried[connection] = session
        if not before:
            return [Resumed(session.number)]
        del self._carried[before]
        return [Drop(before), Resumed(session.number)]

    def receive(self, connection: int, message: SessionMessage) -> Effects:
        """Take in a message of the session itself."""
        session = self._carried.get(connection)
        if session is None:
            return NOTHING
        try:
            match message:
                case Acknowledge(received):
                    session.acknowledged(received)
                    return NOTHING
                case EndSession(received):
                    session.acknowledged(received)
                    return self._end_by_client(connection, session)
        except ValueError as error:
            return [Drop(connection), *self.lost(connection, str(error))]
        return [Drop(connection), *self.lost(connection, not_for_clients(message))]

    def lost(self, connection: int, reason: str) -> Effects:
        """Take in that a connection has ended."""
        self._strangers.pop(connection, None)
        self._last_words.pop(connection, None)
        session = self._carried.pop(connection, None)
        if session is None:
            return NOTHING
        session.leave()
        is_forgotten = self._finishing.pop(connection, None) is not None
        if is_forgotten:
            self._sessions.pop(session.number, None)
        aside = self._set_aside(session) if session.is_untouched and not is_forgotten else NOTHING
        return [Ended(session.number, reason, not session.num_kept, is_forgotten), *aside, *self._flushed()]

    def take(self, connection: int, size: int = 0) -> int:
        """Count a message of `size` bytes that came; returns the session it is to be delivered in, 0 for none."""
        session = self._carried.get(connection)
        return session.number if session is not None and session.take(connection, size) else 0

    def next_to_send(self, connection: int) -> M | SessionMessage | None:
        """Return the next message for a connection, `None` where there is none now."""
        session = self._carried.get(connection)
        return self._last_words.pop(connection, None) if session is None else session.next_to_send(connection)

    # Transitions of sessions.

    def put(self, session: int, message: M) -> Effects:
        """Add a message to be sent in a session. One that keeps too many is given up."""
        kept = self._sessions.get(session)
        if kept is None or not (overflow := kept.put(message)):
            return NOTHING
        connection = kept.carrier
        self._forget(kept, overflow)
        self._carried.pop(connection, None)
        self._finishing.pop(connection, None)
        kept.leave()
        dropped = [Drop(connection)] if connection else []
        return [*dropped, Ended(session, overflow, is_settled=False, is_forgotten=True), *self._flushed()]

    def finish(self, session: int, now: float) -> Effects:
        """End a session after its messages: it is not resumed. Idempotent: a client that talks on gains no time."""
        finished = self._sessions.get(session)
        if finished is None or finished.carrier in self._finishing:
            return NOTHING
        self._forget(finished, _BY_US)
        if finished.carrier:
            finished.finish()
            self._sessions[session] = finished
            self._finishing[finished.carrier] = now + END_TIMEOUT
        return NOTHING

    def end(self, key: K) -> Effects:
        """End a session that its client cannot end itself any more."""
        session = self._of_key.get(key)
        if session is None:
            return NOTHING
        connection = session.carrier
        self._forget(session, _BY_CLIENT)
        self._carried.pop(connection, None)
        session.leave()
        dropped = [Drop(connection)] if connection else []
        return [*dropped, Ended(session.number, _BY_CLIENT, not session.num_kept, is_forgotten=True)]

    # Transitions of the table.

    def close(self, ending: Ending, now: float) -> Effects:
        """Flush the messages of all clients, then wait for clients that are away."""
        assert self._state is TableState.SERVING
        self._state, self._ending = TableState.FLUSHING, ending
        self._due = now + flush_timeout(ending, self._heartbeat_timeout, self._num_clients)
        for session in list(self._sessions.values()):
            if session.carrier and not session.received:
                # Whoever has said nothing in it may be anybody: all others do not wait for that for long.
                self.finish(session.number, now)
            else:
                session.finish()
        return self._flushed()

    def stay(self, now: float, *, is_needed: bool) -> Effects:
        """Answer `Flushed`: whether clients that are away have to hear of the end still."""
        assert self._state is TableState.STAYING
        timeout = stay_timeout(self._ending)
        if not timeout or not (is_needed or self._carried):
            return self._close()
        self._due = now + timeout
        return NOTHING

    def all_told(self) -> Effects:
        """Take in that nobody who is away has to hear of the end; who has come back may be away again soon."""
        is_waiting = self._state is TableState.STAYING and self._due is not None
        return self._close() if is_waiting and not self._carried else NOTHING

    def wake(self, now: float) -> Effects:
        """Do what falls due."""
        effects: list[Effect] = []
        for due, reason in ((self._strangers, "it did not say whose session it carries"), (self._finishing, _BY_US)):
            for connection in [c for c, at in itertools.takewhile(lambda item: item[1] <= now, due.items())]:
                effects += [Drop(connection), *self.lost(connection, reason)]
        if self._due is None or now < self._due:
            return effects
        if self._state is TableState.STAYING:
            return [*effects, *self._close()]
        for connection in list(self._carried):
            effects += [Drop(connection), *self.lost(connection, _BY_US)]
        return effects

    def deadline(self) -> float | None:
        """Return when to wake this machine next."""
        firsts = (next(iter(due.values()), None) for due in (self._strangers, self._finishing))
        return min((due for due in (*firsts, self._due) if due is not None), default=None)

    # Facts.

    def get(self, session: int) -> AcceptedSession[K, M] | None:
        """Return a session by its number, unless it was forgotten."""
        return self._sessions.get(session)

    def carried_by(self, connection: int) -> AcceptedSession[K, M] | None:
        """Return the session that a connection carries."""
        return self._carried.get(connection)

    # Steps.

    def _begin(self, connection: int, key: K, opening: OpenSession) -> Effects:
        if (reason := self._ended.get(key)) is not None:
            return self._refuse(connection, f"the session has ended: {reason}")
        if opening.received:
            return self._refuse(connection, "it does not know this session")
        session: AcceptedSession[K, M] = AcceptedSession(next(self._numbers), key, self._kept_max)
        session.begin(connection, opening)
        self._sessions[session.number] = self._of_key[key] = self._carried[connection] = session
        return [Began(session.number)]

    def _refuse(self, connection: int, reason: str) -> Effects:
        self._last_words[connection] = SessionRefused(reason)
        return [Finish(connection)]

    def _end_by_client(self, connection: int, session: AcceptedSession[K, M]) -> Effects:
        self._forget(session, _BY_CLIENT)
        self._finishing.pop(connection, None)
        del self._carried[connection]
        session.leave()
        self._last_words[connection] = EndSession(session.received)
        ended = Ended(session.number, _BY_CLIENT, not session.num_kept, is_forgotten=True)
        return [Finish(connection), ended, *self._flushed()]

    def _set_aside(self, session: AcceptedSession[K, M]) -> Effects:
        """Keep a session that is away, and in which nothing was said, until there are many later ones."""
        self._untouched[session.number] = session
        if len(self._untouched) <= UNTOUCHED_KEPT_MAX:
            return NOTHING
        oldest = self._untouched.pop(next(iter(self._untouched)))
        if not oldest.is_untouched or oldest.carrier or self._sessions.pop(oldest.number, None) is None:
            return NOTHING
        del self._of_key[oldest.key]
        return [Ended(oldest.number, "nothing was said in it", is_settled=True, is_forgotten=True)]

    def _forget(self, session: AcceptedSession[K, M], reason: str) -> None:
        self._sessions.pop(session.number, None)
        if self._of_key.get(session.key) is session:
            del self._of_key[session.key]
            self._ended[session.key] = reason
            if len(self._ended) > ENDED_KEPT_MAX:
                self._ended.popitem(last=False)

    def _flushed(self) -> Effects:
        if self._state is not TableState.FLUSHING or self._carried:
            return NOTHING
        self._state, self._due = TableState.STAYING, None
        return [Flushed()]

    def _close(self) -> Effects:
        self._state, self._due = TableState.CLOSED, None
        return [TableClosed()]


def not_for_clients(message: object) -> str:
    """Return that a client may not send this, for a text."""
    return f"it sent a {type(message).__name__}, which is not for clients to send"
