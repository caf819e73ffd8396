"""Events and effects of a peer's machine."""

from __future__ import annotations

from msgspec import Struct

from ....devices.base import LocalDevice
from ....errors import BringupError
from ....transport.wire.messages import (
    ClientMessage,
    CoordinatorMessage,
    GroupPlace,
    Leaver,
    MemberInfo,
    PreemptionNotice,
    Span,
    StepQuery,
    StepReply,
    SyncPoint,
    WatchMessage,
)
from ..core_table import CoreTable
from ..probes import Probe as Probe
from ..probes import ProbeAnswered as ProbeAnswered
from ..probes import Tag as Tag
from ..roster import Roster
from .program import ProgressReported as ProgressReported

# What happens to a peer.


class Begin(Struct, frozen=True):
    """`initialize()` was called."""


class DialFailed(Struct, frozen=True):
    """The coordinator cannot be reached yet."""

    reason: str


class Connected(Struct, frozen=True):
    """There is a session; `link_address` is where others reach this peer's links."""

    tag: Tag
    link_address: str


class Received(Struct, frozen=True):
    """A message of the coordinator."""

    message: CoordinatorMessage


class SessionLost(Struct, frozen=True):
    """The connection that carries the session has broken; another is dialled, unless nothing was ever heard in it."""

    reason: str


class Reconnected(Struct, frozen=True):
    """The session goes on over another connection; nothing of it was lost."""


class CoordinatorGone(Struct, frozen=True):
    """There is proof that the coordinator's process has ended: its port refuses, or another answers there."""

    reason: str


class Unauthenticated(Struct, frozen=True):
    """This client and the coordinator do not trust each other, for good."""

    reason: str


class SessionGivenUp(Struct, frozen=True):
    """The session keeps more messages for the coordinator than it may."""

    reason: str


class BackendStarted(Struct, frozen=True):
    """The devices are up, and passed their first health check."""

    tag: Tag
    devices: tuple[LocalDevice, ...]


class BackendFailed(Struct, frozen=True):
    """The devices did not come up."""

    tag: Tag
    error: BringupError


class HealthChanged(Struct, frozen=True):
    """The health of the devices has changed."""

    healthy: bool
    detail: str


class RingConnected(Struct, frozen=True):
    """The links of the ring are open."""

    tag: Tag


class LinkDelayed(Struct, frozen=True):
    """The link to the right neighbour cannot be opened yet; where `is_refused`, its process may have died."""

    client_id: int
    cause: str
    is_refused: bool


class LinkBroken(Struct, frozen=True):
    """The link with client `client_id` was denied by its process, or ended."""

    client_id: int
    cause: str


class LinkUntrusted(Struct, frozen=True):
    """The link with client `client_id` cannot be opened: one side does not accept the certificate of the other."""

    client_id: int
    cause: str


class Merged(Struct, frozen=True):
    """The merge is done, with a sound result; the roster came with it."""

    tag: Tag
    table: CoreTable
    roster: Roster


class MergeFailed(Struct, frozen=True):
    """The merge's result is not sound."""

    tag: Tag
    error: BringupError


class Watched(Struct, frozen=True):
    """A message that the right neighbour in the group has sent, or passed on, over the link that leads to it."""

    message: WatchMessage


class AgreementMessage(Struct, frozen=True):
    """A message of this client's part of the preemption agreement, to be sent."""

    message: PreemptionNotice | StepReply


class LeaveRequested(Struct, frozen=True):
    """The user shuts the system down, after `collectives` collectives."""

    collectives: int = 0


class Abort(Struct, frozen=True):
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
    | Unauthenticated
    | ProbeAnswered
    | BackendStarted
    | BackendFailed
    | HealthChanged
    | RingConnected
    | LinkBroken
    | LinkUntrusted
    | LinkDelayed
    | Merged
    | MergeFailed
    | ProgressReported
    | Watched
    | AgreementMessage
    | LeaveRequested
    | Abort
)

# What a peer asks for.


class StartBackend(Struct, frozen=True):
    """Bring the devices up: answered by `BackendStarted` or `BackendFailed`."""

    tag: Tag


class Connect(Struct, frozen=True):
    """Open a session, however long it takes: answered by `Connected`; `DialFailed` may come before."""

    tag: Tag


class Redial(Struct, frozen=True):
    """Carry the session on over another connection, however long it takes to get one.

    The present one is used until then. Answered by `Reconnected` or `CoordinatorGone`, or not at all, where the
    coordinator is heard meanwhile; `DialFailed` may come before. Replaces a `Redial` that was not answered yet.

    Attributes:
        patience: seconds for the coordinator to answer over the new one; `None` for as many as usual.
    """

    patience: float | None = None


class Send(Struct, frozen=True):
    """Send a message to the coordinator; without a connection it waits for the next one."""

    message: ClientMessage


class SendWatch(Struct, frozen=True):
    """Send a message to the left neighbour in the group, over the link that comes from it; it never waits.

    Only in a job with several groups, after `RingConnected`. What was sent before the peer's end leaves before it.
    """

    message: WatchMessage


class ConnectRing(Struct, frozen=True):
    """Link with the neighbours: answered by `RingConnected`; `LinkBroken` may come then and later.

    In a job with several groups the links of the group's ring carry `Watched` messages, against the way of its bytes.

    Attributes:
        place: see `Formed`, like the next two.
        neighbours: see above.
    """

    tag: Tag
    job_id: str
    epoch: int
    place: GroupPlace
    neighbours: tuple[MemberInfo, ...]


class Merge(Struct, frozen=True):
    """Merge the tables of all clients: answered by `Merged` or `MergeFailed`, or by `LinkBroken`.

    Attributes:
        roster: see `Formed`; on client 0 to be handed to all.
    """

    tag: Tag
    devices: tuple[LocalDevice, ...]
    roster: bytes = b""


class Up(Struct, frozen=True):
    """The job is up."""

    job_id: str
    epoch: int
    members: Roster
    table: CoreTable
    slowest: tuple[Span, ...]
    has_services: bool = True


class Failed(Struct, frozen=True):
    """The job has failed; every pending call raises `error`."""

    error: BaseException


class Preempt(Struct, frozen=True):
    """A message of the coordinator in the preemption agreement."""

    message: StepQuery | SyncPoint


class Left(Struct, frozen=True):
    """The shutdown is over; `missing` are the clients that did not join it, which `error` tells, if there are any."""

    missing: tuple[int, ...]
    error: BringupError | None = None


class OthersLeave(Struct, frozen=True):
    """Some clients have begun to leave, and call no further collectives."""

    leavers: tuple[Leaver, ...]


PeerEffect = (
    StartBackend
    | Connect
    | Redial
    | Probe
    | Send
    | SendWatch
    | ConnectRing
    | Merge
    | Up
    | Failed
    | Preempt
    | Left
    | OthersLeave
)
