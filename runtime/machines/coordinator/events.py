"""Events and effects of the coordinator's machine."""

from __future__ import annotations

from msgspec import Struct

from ....transport.wire.messages import ClientMessage, CoordinatorMessage
from ..probes import Probe as Probe
from ..probes import ProbeAnswered as ProbeAnswered
from ..probes import Tag as Tag


class MessageReceived(Struct, frozen=True):
    """A message of the client at the other end of `session`, whose certificate has the id `certified_id`, if any."""

    session: int
    message: ClientMessage
    certified_id: int | None = None


class SessionEnded(Struct, frozen=True):
    """The connection that carries a session has ended; a client that lives may come back to the session.

    `is_settled` tells that the client has acknowledged all that was said to it.
    """

    session: int
    reason: str
    is_settled: bool = False


class SessionResumed(Struct, frozen=True):
    """A session goes on over another connection; nothing of it was lost."""

    session: int


CoordinatorEvent = MessageReceived | SessionEnded | SessionResumed | ProbeAnswered


class SendTo(Struct, frozen=True):
    """Send one message in each of `sessions`; a session without a connection keeps it for the next one."""

    sessions: tuple[int, ...]
    message: CoordinatorMessage


class CloseSession(Struct, frozen=True):
    """End a session, after what was sent on it."""

    session: int


class Departed(Struct, frozen=True):
    """Client `client_id` has begun to leave the job: nobody is to wait for it in a service."""

    client_id: int


CoordinatorEffect = SendTo | CloseSession | Probe | Departed
