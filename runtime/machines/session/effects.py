"""The effects of sessions: orders to their drivers, and events for their owners."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

# For the driver.


class Dial(Struct, frozen=True):
    """Open a connection, which bears this number: answered by `opened`, or `unreachable`.

    Where `is_expected`, the other side was there before, and a refusal is final.
    """

    connection: int
    is_expected: bool


class Drop(Struct, frozen=True):
    """End a connection, or its dialling, at once."""

    connection: int


class Finish(Struct, frozen=True):
    """End a connection after the messages that there are for it."""

    connection: int


# For the owner of the dialling side.


class Opened(Struct, frozen=True):
    """A new session has a connection; the other side has not answered yet."""

    connection: int


class Lost(Struct, frozen=True):
    """The connection that carries the session has broken."""

    reason: str


class Resumed(Struct, frozen=True):
    """A session goes on over another connection; nothing of it was lost. `session` is 0 on the dialling side."""

    session: int = 0


class Gone(Struct, frozen=True):
    """The other side has gone for good: its address refuses, or it does not know the session."""

    reason: str


class GivenUp(Struct, frozen=True):
    """The session keeps more messages than it may."""

    reason: str


class Finished(Struct, frozen=True):
    """The session that was to end has ended."""

    reason: str


# For the owner of the accepting side.


class Began(Struct, frozen=True):
    """A connection has opened a new session."""

    session: int


class Ended(Struct, frozen=True):
    """The connection that carries a session has ended.

    Attributes:
        session: its number in the table.
        reason: how it ended.
        is_settled: whether the client has acknowledged all messages.
        is_forgotten: whether the session cannot be resumed.
    """

    session: int
    reason: str
    is_settled: bool
    is_forgotten: bool = False


class Flushed(Struct, frozen=True):
    """All clients that were there have taken in all messages, or have had their time; answered by `stay`."""


class TableClosed(Struct, frozen=True):
    """Nobody is waited for any more."""


Effect = (
    Dial | Drop | Finish | Opened | Lost | Resumed | Gone | GivenUp | Finished | Began | Ended | Flushed | TableClosed
)
Effects = Sequence[Effect]
NOTHING: Effects = ()
