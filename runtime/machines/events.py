"""What happens to the machines, and what they ask for.

An effect that takes time carries a tag, and its result comes back as an event with the same tag; a result whose tag is
not the current one is dropped. That is the answer to threads that cannot be cancelled and to packets that come late.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...devices.base import LocalDevice
from ...errors import BringupError
from ...transport.wire.messages import (
    ClientMessage,
    CoordinatorMessage,
    KindRun,
    Leaver,
    MemberInfo,
    PreemptionNotice,
    Span,
    StepQuery,
    StepReply,
    SyncPoint,
)
from .coordinator.events import CloseSession as CloseSession
from .coordinator.events import CoordinatorEffect as CoordinatorEffect
from .coordinator.events import CoordinatorEvent as CoordinatorEvent
from .coordinator.events import Departed as Departed
from .coordinator.events import MessageReceived as MessageReceived
from .coordinator.events import Probe as Probe
from .coordinator.events import ProbeAnswered as ProbeAnswered
from .coordinator.events import SendTo as SendTo
from .coordinator.events import SessionEnded as SessionEnded
from .coordinator.events import SessionResumed as SessionResumed
from .coordinator.events import Tag as Tag
from .core_table import CoreTable
from .peer.program import ProgressReported as ProgressReported

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
    """The connection that carries the session has broken; another is dialled, unless nothing was ever heard in it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Reconnected:
    """The session goes on over another connection; nothing of it was lost."""


@dataclass(frozen=True, slots=True)
class CoordinatorGone:
    """There is proof that the coordinator's process has ended: its port refuses, or another answers there."""

    reason: str


@dataclass(frozen=True, slots=True)
class SessionGivenUp:
    """The session keeps more messages for the coordinator than it may."""

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
class LinkDelayed:
    """The link to the right neighbour cannot be opened yet; where `is_refused`, its process may have died."""

    client_id: int
    cause: str
    is_refused: bool


@dataclass(frozen=True, slots=True)
class LinkBroken:
    """The link with client `client_id` was denied by its process, or ended."""

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
class AgreementMessage:
    """The user's part in the agreement on a preemption point: what to send."""

    message: PreemptionNotice | StepReply


@dataclass(frozen=True, slots=True)
class LeaveRequested:
    """The user shuts the system down, after so many collectives."""

    collectives: int = 0


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
    | Reconnected
    | CoordinatorGone
    | SessionGivenUp
    | ProbeAnswered
    | BackendStarted
    | BackendFailed
    | HealthChanged
    | RingConnected
    | LinkBroken
    | LinkDelayed
    | Merged
    | MergeFailed
    | ProgressReported
    | AgreementMessage
    | LeaveRequested
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
class Redial:
    """Carry the session on over another connection, however long it takes to get one.

    The present one is used until then. Answered by `Reconnected` or `CoordinatorGone`, or not at all, where the
    coordinator is heard meanwhile; `DialFailed` may come before. Replaces a `Redial` that was not answered yet.
    """


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to the coordinator; one sent while no connection stands waits for the next."""

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
    epoch: int
    members: tuple[MemberInfo, ...]
    table: CoreTable
    kinds: tuple[KindRun, ...]
    slowest: tuple[Span, ...]
    has_services: bool = True


@dataclass(frozen=True, slots=True)
class Failed:
    """The job has failed; every pending call raises `error`."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Preempt:
    """The agreement on a preemption point goes on: what the coordinator says."""

    message: StepQuery | SyncPoint


@dataclass(frozen=True, slots=True)
class Left:
    """The shutdown is over; `missing` are the clients that never joined in it, and `error` then says so."""

    missing: tuple[int, ...]
    error: BringupError | None = None


@dataclass(frozen=True, slots=True)
class OthersLeave:
    """Some clients have begun to leave, which come to no collective beyond those that they have called."""

    leavers: tuple[Leaver, ...]


PeerEffect = (
    StartBackend | Connect | Redial | Probe | Send | ConnectRing | Merge | Up | Failed | Preempt | Left | OthersLeave
)
