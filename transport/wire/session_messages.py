"""The messages by which the two sides of a session open, resume and end it; one set for both planes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OpenSession:
    """The first message on a connection, from the side that dials.

    Attributes:
        session: its number, random: the other side finds the session by it.
        received: messages of the other side that have come so far in the session.
        is_new: whether nothing was sent in it yet; what follows then waits for no answer.
    """

    session: int
    received: int
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """The answer to an `OpenSession` that resumes; `received` messages of the dialling side have come so far."""

    received: int


@dataclass(frozen=True, slots=True)
class SessionRefused:
    """The answer where the session cannot be resumed: it is not known here, or has ended."""

    reason: str


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """`received` messages of the session have come: they need not be kept."""

    received: int


@dataclass(frozen=True, slots=True)
class EndSession:
    """The last message of the dialling side, answered by the same: nothing more is said. `received` as above."""

    received: int


SessionMessage = OpenSession | SessionOpened | SessionRefused | Acknowledge | EndSession
