"""The dialling side of a session, and what both sides have in common::

            begin               opened             SessionOpened
    NEW ------------> DIALLING ---------> OPENING ---------------> CARRIED
     ^                 ^    ^                |                     |  ^  |
     |                 |    |  time-out,     |                lost |  |  | redial
     |                 |    |  lost          v                     |  |  v
     |                 |    +--REDIAL_DELAY--WAITING               | REDIALLING
     |                 +-------------------------------------------+
     +--- lost, where nothing was ever heard and the owner begins anew

A session in which nothing was sent yet is CARRIED as soon as a connection is open: there is nothing to agree upon.
REDIALLING, and OPENING after it, use the present connection until the session is open on the next one: the other side
may be slow, and is to hear this one all the while. Messages that arrive over it after `OpenSession` are sent twice, and
taken once. From every state a session may become CLOSED, with a reason: it was finished,
the other side does not know it, its address refuses, or it keeps more messages than it may.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Generic, TypeVar

from ....transport.wire.session_messages import (
    Acknowledge,
    EndSession,
    OpenSession,
    SessionMessage,
    SessionOpened,
    SessionRefused,
)
from .effects import NOTHING, Dial, Drop, Effect, Effects, Finished, GivenUp, Gone, Lost, Opened, Resumed
from .limits import ACKNOWLEDGE_BYTES, ACKNOWLEDGE_EVERY, END_TIMEOUT, OPEN_TIMEOUT, REDIAL_DELAY, WINDOW, open_timeout
from .resend_buffer import ResendBuffer

M = TypeVar("M")


class SessionState(enum.Enum):
    """See the module's diagram."""

    NEW = enum.auto()
    DIALLING = enum.auto()
    WAITING = enum.auto()
    OPENING = enum.auto()
    CARRIED = enum.auto()
    REDIALLING = enum.auto()
    CLOSED = enum.auto()


class SessionSide(Generic[M]):
    """The common part of both sides: the buffer of sent messages, and the count of received ones.

    Attributes:
        received: the number of messages taken in.
        carrier: the number of the connection that carries the session; 0 where none does.
        owes_acknowledgement: whether the other side has to be told what was received.
    """

    def __init__(self, kept_max: int) -> None:
        self.received = 0
        self.carrier = 0
        self.owes_acknowledgement = False
        self._kept_max = kept_max
        self._buffer: ResendBuffer[M] = ResendBuffer()
        self._is_open = False  # carried, and nothing of its own is to be sent first
        self._unacknowledged = self._unacknowledged_bytes = 0

    @property
    def num_kept(self) -> int:
        """The number of messages that the other side has not acknowledged."""
        return len(self._buffer)

    @property
    def has_room(self) -> bool:
        """Whether the other side has taken in most of what was sent: a long answer then goes on."""
        return len(self._buffer) < WINDOW

    @property
    def has_unsent(self) -> bool:
        """Whether a message was not handed to the present connection, or there is none."""
        return self._buffer.has_unsent

    def take(self, connection: int, size: int = 0) -> bool:
        """Count a message of `size` bytes that came; returns whether it is to be delivered."""
        if connection != self.carrier:
            return False
        self.received += 1
        self._unacknowledged += 1
        self._unacknowledged_bytes += size
        if self._unacknowledged >= ACKNOWLEDGE_EVERY or self._unacknowledged_bytes > ACKNOWLEDGE_BYTES:
            self.owes_acknowledgement = True
        return True

    def pass_through(self, message: M) -> bool:
        """Add a message where it is the next to be written to the present connection, which the caller does then.

        A short cut for `put` and `next_to_send`; returns whether it was taken.
        """
        return self._is_open and self._buffer.append_sent(message, self._kept_max)

    def _tell_received(self) -> int:
        self._unacknowledged = self._unacknowledged_bytes = 0
        self.owes_acknowledgement = False
        return self.received

    def _overflow(self) -> str:
        """Return that no further message can be kept, for a text; nothing where it can."""
        kept = len(self._buffer)
        return f"{kept} messages were not acknowledged" if kept >= self._kept_max else ""


class SessionMachine(SessionSide[M]):
    """The dialling side.

    Args:
        kept_max: messages that may be kept for the other side.
        begins_anew: whether the owner begins another session where nothing was ever heard in this one, as its first
            message depends on the connection.
        revised: returns a message as it is sent over the next connection; it may tell the age of something.

    Attributes:
        number: of the session; 0 before it has begun.
        was_opened: whether there ever was a connection.
    """

    def __init__(self, kept_max: int, *, begins_anew: bool = False, revised: Callable[[M], M] | None = None) -> None:
        super().__init__(kept_max)
        self._revised = revised
        self.number = 0
        self.was_opened = False
        self._begins_anew = begins_anew
        self._state = SessionState.NEW
        self._num_dialled = 0
        self._num_unanswered = 0  # connections in turn on which the session was not opened in time
        self._dialled = 0  # the connection that is to take over
        self._due: float | None = None
        self._finish_due: float | None = None
        self._opening: OpenSession | None = None
        self._opening_on = 0
        self._received_at_opening = 0
        self._num_repeated = 0  # messages to come that were taken over the connection before
        self._is_settled = True  # the other side has not been asked to leave the carrier
        self._open_patience = OPEN_TIMEOUT
        self._is_untouched = True  # nothing was sent over any connection
        # Whether anything was heard since a connection was dialled that is to take over.
        self._was_acknowledged = False
        self._received_before = 0
        self._has_said_end = False

    # Transitions.

    def begin(self, number: int, now: float) -> Effects:
        """Begin a session; the one before, if any, is forgotten.

        Args:
            number: random, never used before.
            now: the time, in seconds.
        """
        if self._state is SessionState.CLOSED:
            return NOTHING
        effects = self._drop_all()
        is_first, self.number = self.number == 0, number
        self._buffer, self._is_untouched = ResendBuffer(), True
        self.received = 0
        self._tell_received()
        if is_first:
            return [*effects, self._dial()]
        # Whoever answered before was another: a coordinator that was ending, or a stranger.
        self._wait(now)
        return effects

    def put(self, message: M) -> Effects:
        """Add a message to be sent. A session that keeps too many is given up."""
        if self._state is SessionState.CLOSED or self._finish_due is not None:
            return NOTHING
        if overflow := self._overflow():
            return self._close(GivenUp(overflow))
        self._buffer.append(message)
        return NOTHING

    def redial(self, patience: float = OPEN_TIMEOUT) -> Effects:
        """Dial although a connection stands, which may lead nowhere by now.

        Args:
            patience: seconds for the other side to open the session on it: more where it is known to be slow.
        """
        if self._state not in (SessionState.CARRIED, SessionState.REDIALLING):
            return NOTHING
        self._state, self._open_patience = SessionState.REDIALLING, patience
        self._was_acknowledged, self._received_before = False, self.received
        return [*self._drop_dialled(), self._dial()]

    def opened(self, connection: int, now: float) -> Effects:
        """Take in that a connection is open."""
        if connection != self._dialled or self._state not in (SessionState.DIALLING, SessionState.REDIALLING):
            return [Drop(connection)]
        self.was_opened = True
        self._opening = OpenSession(self.number, self._tell_received(), self._is_untouched)
        self._opening_on, self._received_at_opening = connection, self.received
        if not self._is_untouched:
            self._is_settled = False
            self._state = SessionState.OPENING
            self._due = now + open_timeout(self._num_unanswered, self._open_patience)
            # Where nothing was heard the other side may not know the session yet, and refuse it over the former.
            return [] if self.received else self._drop_carrier()
        self._is_untouched = False
        self._carry(connection)
        return [Opened(connection)]

    def unreachable(self, connection: int, reason: str) -> Effects:
        """Take in that a connection cannot be opened, for good."""
        if connection != self._dialled:
            return NOTHING
        self._dialled = 0
        was_heard = self._was_acknowledged or self.received > self._received_before
        if self._state is SessionState.REDIALLING and was_heard:
            self._state = SessionState.CARRIED  # it lives: whatever refuses stands between
            return NOTHING
        return self._close(Gone(reason))

    def receive(self, connection: int, message: SessionMessage, now: float) -> Effects:
        """Take in a message of the session itself."""
        is_opening = self._state is SessionState.OPENING and connection == self._dialled
        if not is_opening and connection != self.carrier:
            return NOTHING
        try:
            match message:
                case SessionOpened(received) if is_opening:
                    self._buffer.rewind(received)
                    if self._revised is not None:
                        self._buffer.revise(self._revised)
                    left = self._drop_carrier()
                    self._carry(connection)
                    return [*left, Resumed()]
                case SessionRefused(reason):
                    return self._close(Gone(reason))
                case Acknowledge(received) if not is_opening:
                    self._was_acknowledged = True
                    self._buffer.acknowledge(received)
                    return NOTHING
                case EndSession(received) if self._has_said_end and not is_opening:
                    self._buffer.acknowledge(received)
                    return self._close(Finished("the other side has received everything"))
        except ValueError as error:
            if is_opening:
                return self._close(Gone(f"it does not know this session any more: {error}"))
            return [Drop(connection), *self.lost(connection, str(error), now)]
        reason = f"it sent a {type(message).__name__}, which is not for it to send"
        return [Drop(connection), *self.lost(connection, reason, now)]

    def lost(self, connection: int, reason: str, now: float) -> Effects:
        """Take in that a connection has ended."""
        if connection == self._dialled and self._state is SessionState.OPENING:
            self._num_unanswered += 1 if self.carrier else 0
            self._wait(now)
            return NOTHING
        if connection != self.carrier:
            return NOTHING
        self.carrier, self._is_open = 0, False
        if self._state is SessionState.OPENING:
            # Likely as the session has been opened on the next, or soon will be.
            return NOTHING if self._finish_due is not None else [Lost(reason)]
        effects: list[Effect] = [*self._drop_dialled()]
        if self._finish_due is None:
            effects.append(Lost(reason))
        if self._begins_anew and not self.received:
            if self._finish_due is not None:
                return [*effects, *self._close(Finished(reason))]
            self._state = SessionState.NEW
            return effects
        self._state, self._open_patience = SessionState.DIALLING, OPEN_TIMEOUT
        return [*effects, self._dial()]

    def finish(self, now: float) -> Effects:
        """Take in that nothing more is to be sent. It ends once the other side has received it, or has had its time."""
        if self._state is SessionState.CLOSED or self._finish_due is not None:
            return NOTHING
        if self._state is SessionState.NEW or (self._is_untouched and not self._buffer):
            return self._close(Finished("there was nothing to send"))
        self._finish_due, self._is_open = now + END_TIMEOUT, False
        if not self.carrier or self._state not in (SessionState.REDIALLING, SessionState.WAITING):
            return NOTHING
        self._state, self._due = SessionState.CARRIED, None
        return self._drop_dialled()

    def abandon(self) -> Effects:
        """Close the session at once, without the exchange of `EndSession`: its owner is gone."""
        return self._close()

    def wake(self, now: float) -> Effects:
        """Do what falls due."""
        if self._finish_due is not None and now >= self._finish_due:
            return self._close(Finished(f"the other side has not received everything within {END_TIMEOUT:g} s"))
        if self._due is None or now < self._due:
            return NOTHING
        if self._state is SessionState.OPENING:
            self._num_unanswered += 1
            effects = self._drop_dialled()
            self._wait(now)
            return effects
        assert self._state is SessionState.WAITING
        self._state = SessionState.REDIALLING if self.carrier else SessionState.DIALLING
        return [self._dial()]

    def deadline(self) -> float | None:
        """Return when to wake this machine next."""
        if self._due is None or self._finish_due is None:
            return self._finish_due if self._due is None else self._due
        return min(self._due, self._finish_due)

    # Messages.

    def take(self, connection: int, size: int = 0) -> bool:
        """See `SessionSide.take`."""
        return not self.is_repeated(connection) and super().take(connection, size)

    def is_repeated(self, connection: int) -> bool:
        """Return whether a message that came was taken before, over another connection. Call it once for each."""
        if connection != self.carrier or not self._num_repeated:
            return False
        self._num_repeated -= 1
        return True

    def next_to_send(self, connection: int) -> M | SessionMessage | None:
        """Return the next message for a connection, `None` where there is none now."""
        if self._opening is not None and connection == self._opening_on:
            opening, self._opening = self._opening, None
            self._is_open = self.carrier > 0 and self._finish_due is None
            return opening
        if connection != self.carrier:
            return None
        # What `OpenSession` says was received must not be less than what was acknowledged before it is read.
        # Nor must more be acknowledged than was sent over the present connection.
        if self.owes_acknowledgement and self._is_settled and not self._num_repeated:
            return Acknowledge(self._tell_received())
        if self._buffer.has_unsent:
            return self._buffer.next_unsent()
        may_end = self._state is SessionState.CARRIED and not self._num_repeated
        if self._finish_due is not None and not self._has_said_end and may_end:
            self._has_said_end = True
            return EndSession(self._tell_received())
        return None

    @property
    def is_closed(self) -> bool:
        """Whether it has ended."""
        return self._state is SessionState.CLOSED

    # Steps.

    def _dial(self) -> Dial:
        if self._state is not SessionState.REDIALLING:
            self._state = SessionState.DIALLING
        self._num_dialled += 1
        self._dialled, self._due = self._num_dialled, None
        return Dial(self._dialled, is_expected=self.received > 0)

    def _wait(self, now: float) -> None:
        delay = open_timeout(self._num_unanswered, OPEN_TIMEOUT) if self.carrier else REDIAL_DELAY
        self._state, self._due = SessionState.WAITING, now + delay
        self._dialled, self._opening = 0, None

    def _carry(self, connection: int) -> None:
        self._state, self._due, self._num_unanswered = SessionState.CARRIED, None, 0
        self._num_repeated = self.received - self._received_at_opening
        self._open_patience, self._is_settled = OPEN_TIMEOUT, True
        self.carrier, self._dialled = connection, 0
        self._is_open = self._opening is None and self._finish_due is None
        self._has_said_end = False

    def _close(self, *effects: Effect) -> Effects:
        if self._state is SessionState.CLOSED:
            return NOTHING
        if self._finish_due is not None:
            effects = tuple(Finished(one.reason) if isinstance(one, Gone) else one for one in effects)
        self._state, self._due, self._finish_due = SessionState.CLOSED, None, None
        return [*self._drop_all(), *effects]

    def _drop_all(self) -> list[Drop]:
        self._opening = None
        return [*self._drop_carrier(), *self._drop_dialled()]

    def _drop_carrier(self) -> list[Drop]:
        carrier, self.carrier, self._is_open = self.carrier, 0, False
        return [Drop(carrier)] if carrier else []

    def _drop_dialled(self) -> list[Drop]:
        dialled, self._dialled = self._dialled, 0
        return [Drop(dialled)] if dialled else []
