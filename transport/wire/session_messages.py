"""The messages by which the two sides of a session open, resume and end it; one set for both planes. Pure."""

from .form import Body, Unsigned


class OpenSession(Body, frozen=True, forbid_unknown_fields=False, tag=24):
    """The first message on a connection, from the side that dials; that of a later version may have more fields.

    Attributes:
        session: its number, random: the other side finds the session by it.
        received: messages of the other side that have come so far in the session.
        is_new: whether nothing was sent in it yet; what follows then waits for no answer.
    """

    session: Unsigned
    received: Unsigned
    is_new: bool = False


class SessionOpened(Body, frozen=True, tag=25):
    """The answer to an `OpenSession` that resumes; `received` messages of the dialling side have come so far."""

    received: Unsigned


class SessionRefused(Body, frozen=True, tag=26):
    """The answer where the session cannot be resumed: it is not known here, or has ended."""

    reason: str


class Acknowledge(Body, frozen=True, tag=27):
    """`received` messages of the session have come: they need not be kept."""

    received: Unsigned


class EndSession(Body, frozen=True, tag=28):
    """The last message of the dialling side, answered by the same: nothing more is said. `received` as above."""

    received: Unsigned


SessionMessage = OpenSession | SessionOpened | SessionRefused | Acknowledge | EndSession
