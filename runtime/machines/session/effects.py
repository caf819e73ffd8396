"""The effects of sessions: what their drivers carry out, and what their owners are told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# For the driver.


@dataclass(frozen=True, slots=True)
class Dial:
    """Open a connection, which bears this number: answered by `opened`, or `unreachable`.

    Where `is_expected`, the other side was there before, and a refusal is final.
    """

    connection: int
    is_expected: bool


@dataclass(frozen=True, slots=True)
class Drop:
    """End a connection, or its dialling, at once."""

    connection: int


@dataclass(frozen=True, slots=True)
class Finish:
    """End a connection after the messages that there are for it."""

    connection: int


# For the owner of the dialling side.


@dataclass(frozen=True, slots=True)
class Opened:
    """A new session has a connection; the other side has not answered yet."""

    connection: int


@dataclass(frozen=True, slots=True)
class Lost:
    """The connection that carries the session has broken."""

    reason: str


@dataclass(frozen=True, slots=True)
class Resumed:
    """A session goes on over another connection; nothing of it was lost. `session` is 0 on the dialling side."""

    session: int = 0


@dataclass(frozen=True, slots=True)
class Gone:
    """The other side has gone for good: its address refuses, or it does not know the session."""

    reason: str


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The session keeps more messages than it may."""

    reason: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The session that was to end has ended."""

    reason: str


# For the owner of the accepting side.


@dataclass(frozen=True, slots=True)
class Began:
    """A connection has opened a new session."""

    session: int


@dataclass(frozen=True, slots=True)
class Ended:
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


@dataclass(frozen=True, slots=True)
class Flushed:
    """All clients that were there have taken in all messages, or have had their time; answered by `stay`."""


@dataclass(frozen=True, slots=True)
class TableClosed:
    """Nobody is waited for any more."""


Effect = (
    Dial | Drop | Finish | Opened | Lost | Resumed | Gone | GivenUp | Finished | Began | Ended | Flushed | TableClosed
)
Effects = Sequence[Effect]
NOTHING: Effects = ()
