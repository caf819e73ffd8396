"""What happens to the coordinator, and what it asks for; see `events`, which has these, too."""

from __future__ import annotations

from dataclasses import dataclass

from ....transport.ports import ProbeOutcome
from ....transport.wire.messages import ClientMessage, CoordinatorMessage

Tag = int
"""Sequence number of an effect of one machine."""


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """A message of the client at the other end of `session`."""

    session: int
    message: ClientMessage


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The connection that carries a session has ended; a client that lives may come back to the session.

    `is_settled` tells that the client has acknowledged all that was said to it.
    """

    session: int
    reason: str
    is_settled: bool = False


@dataclass(frozen=True, slots=True)
class SessionResumed:
    """A session goes on over another connection; nothing of it was lost."""

    session: int


@dataclass(frozen=True, slots=True)
class ProbeAnswered:
    """What a probe showed."""

    tag: Tag
    outcome: ProbeOutcome
    detail: str


CoordinatorEvent = MessageReceived | SessionEnded | SessionResumed | ProbeAnswered


@dataclass(frozen=True, slots=True)
class SendTo:
    """Send one message in each of `sessions`; where no connection stands it waits for the next."""

    sessions: tuple[int, ...]
    message: CoordinatorMessage


@dataclass(frozen=True, slots=True)
class CloseSession:
    """End a session, after what was sent on it."""

    session: int


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask whether the process at `link_address` is still `incarnation`: answered by `ProbeAnswered`."""

    tag: Tag
    link_address: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Departed:
    """Client `client_id` has begun to leave the job: nobody is to wait for it in a service."""

    client_id: int


CoordinatorEffect = SendTo | CloseSession | Probe | Departed
