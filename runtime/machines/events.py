"""What happens to the machines, and what they ask for.

An effect that takes time carries a tag, and its result comes back as an event with the same tag; a result whose tag is
not the current one is dropped. That is the answer to threads that cannot be cancelled and to packets that come late.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...devices.base import LocalDevice
from ...errors import BringupError
from ...transport.messages import ClientMessage, CoordinatorMessage, KindRun, MemberInfo, Span
from ...transport.ports import ProbeOutcome
from .core_ids import CoreTable

__all__ = [
    "Abort",
    "Answer",
    "BackendFailed",
    "BackendStarted",
    "BarrierDone",
    "Begin",
    "CloseSession",
    "Connect",
    "ConnectRing",
    "Connected",
    "CoordinatorEffect",
    "CoordinatorEvent",
    "DialFailed",
    "Failed",
    "HealthChanged",
    "Left",
    "LinkBroken",
    "Merge",
    "MergeFailed",
    "Merged",
    "PeerEffect",
    "PeerEvent",
    "Probe",
    "ProbeAnswered",
    "Received",
    "RingConnected",
    "Send",
    "SessionEnded",
    "SessionLost",
    "SessionMessage",
    "StartBackend",
    "Tag",
    "Up",
    "WishBarrier",
    "WishLeave",
]

Tag = tuple[int, int]
"""Epoch of the job (0 before it has formed) and sequence number of the effect."""

# What happens to a peer.


@dataclass(frozen=True, slots=True)
class Begin:
    """`initialize()` was called."""


@dataclass(frozen=True, slots=True)
class DialFailed:
    """The coordinator cannot be reached yet."""

    reason: str


@dataclass(frozen=True, slots=True)
class Connected:
    """There is a session; `link_address` is where others reach this peer's links."""

    tag: Tag
    link_address: str


@dataclass(frozen=True, slots=True)
class Received:
    """A message of the coordinator."""

    message: CoordinatorMessage


@dataclass(frozen=True, slots=True)
class SessionLost:
    """The session has ended."""

    reason: str


@dataclass(frozen=True, slots=True)
class BackendStarted:
    """The devices are up, and passed their first health check."""

    tag: Tag
    devices: tuple[LocalDevice, ...]


@dataclass(frozen=True, slots=True)
class BackendFailed:
    """The devices did not come up."""

    tag: Tag
    error: BringupError


@dataclass(frozen=True, slots=True)
class HealthChanged:
    """A health check said something new."""

    healthy: bool
    detail: str


@dataclass(frozen=True, slots=True)
class RingConnected:
    """Both links of the ring stand."""

    tag: Tag


@dataclass(frozen=True, slots=True)
class LinkBroken:
    """The link with client `client_id` could not be made, or ended."""

    client_id: int
    cause: str


@dataclass(frozen=True, slots=True)
class Merged:
    """The merge is done, and its result is sound."""

    tag: Tag
    table: CoreTable


@dataclass(frozen=True, slots=True)
class MergeFailed:
    """The merge's result is not sound."""

    tag: Tag
    error: BringupError


@dataclass(frozen=True, slots=True)
class WishBarrier:
    """The user waits at a barrier; `timeout` in seconds or `None`."""

    ticket: int
    name: str
    timeout: float | None


@dataclass(frozen=True, slots=True)
class WishLeave:
    """The user shuts the system down."""


@dataclass(frozen=True, slots=True)
class Abort:
    """The user gave up, or this client failed in a way that no machine decides."""

    error: BaseException


PeerEvent = (
    Begin
    | DialFailed
    | Connected
    | Received
    | SessionLost
    | BackendStarted
    | BackendFailed
    | HealthChanged
    | RingConnected
    | LinkBroken
    | Merged
    | MergeFailed
    | WishBarrier
    | WishLeave
    | Abort
)

# What a peer asks for.


@dataclass(frozen=True, slots=True)
class StartBackend:
    """Bring the devices up: answered by `BackendStarted` or `BackendFailed`."""

    tag: Tag


@dataclass(frozen=True, slots=True)
class Connect:
    """Open a session, however long it takes: answered by `Connected`; `DialFailed` may come before."""

    tag: Tag


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to the coordinator."""

    message: ClientMessage


@dataclass(frozen=True, slots=True)
class ConnectRing:
    """Link with both neighbours: answered by `RingConnected`; `LinkBroken` may come then and later."""

    tag: Tag
    job_id: str
    epoch: int
    left: MemberInfo
    right: MemberInfo


@dataclass(frozen=True, slots=True)
class Merge:
    """Merge the tables of all clients: answered by `Merged` or `MergeFailed`, or by `LinkBroken`."""

    tag: Tag
    devices: tuple[LocalDevice, ...]


@dataclass(frozen=True, slots=True)
class Up:
    """The job is up."""

    job_id: str
    members: tuple[MemberInfo, ...]
    table: CoreTable
    kinds: tuple[KindRun, ...]
    slowest: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """The job has failed; every pending call raises `error`."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class BarrierDone:
    """A barrier call is over."""

    ticket: int
    error: BringupError | None


@dataclass(frozen=True, slots=True)
class Left:
    """The shutdown is over; `missing` are the clients that never joined in it."""

    missing: tuple[int, ...]


PeerEffect = StartBackend | Connect | Send | ConnectRing | Merge | Up | Failed | BarrierDone | Left

# What happens to the coordinator, and what it asks for.


@dataclass(frozen=True, slots=True)
class SessionMessage:
    """A message of the client at the other end of `session`."""

    session: int
    message: ClientMessage


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """A session is over."""

    session: int
    reason: str


@dataclass(frozen=True, slots=True)
class ProbeAnswered:
    """What a probe showed."""

    tag: Tag
    outcome: ProbeOutcome
    detail: str


CoordinatorEvent = SessionMessage | SessionEnded | ProbeAnswered


@dataclass(frozen=True, slots=True)
class Answer:
    """Send one message on each of `sessions`."""

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


CoordinatorEffect = Answer | CloseSession | Probe
