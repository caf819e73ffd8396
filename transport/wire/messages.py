"""The messages that a peer and the coordinator exchange over a session.

They are plain data: the machines are written in terms of them, and `codec` gives them their wire form. Names
and meanings of the fields are those of `protos/bringup.proto`; a test holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass

PROTOCOL_VERSION = 5
"""Raised whenever an older peer could misunderstand a newer one; the coordinator refuses any other."""


class Shared:
    """What is said to many clients. Its wire form is kept in `wire` once it was made: to make it again for each client
    costs the coordinator the square of their number.
    """

    __slots__ = ("wire",)


@dataclass(frozen=True, slots=True)
class Span:
    """One phase of one client's bring-up; `start` and `duration` in seconds since that client began."""

    name: str
    start: float
    duration: float
    client_id: int

    def __repr__(self) -> str:
        times = f"start={self.start:.6f}, duration={self.duration:.6f}"
        return f"Span(name={str(self.name)!r}, {times}, client_id={self.client_id})"


@dataclass(frozen=True, slots=True)
class KindRun:
    """`count` devices in a row of the same kind and backend."""

    kind: str
    count: int


@dataclass(frozen=True, slots=True)
class MemberInfo:
    """What everybody is told of a client once the job has formed."""

    client_id: int
    address: str
    hostname: str
    pid: int
    incarnation: int
    link_address: str


@dataclass(frozen=True, slots=True)
class MemberUpdate(Shared):
    """A change of a client's phase or health, or of how often its session was taken up again."""

    client_id: int
    phase: str
    healthy: bool
    health: str
    reconnects: int = 0


@dataclass(frozen=True, slots=True)
class Overdue:
    """A client whose heartbeat is late; `age` in seconds."""

    client_id: int
    age: float


@dataclass(frozen=True, slots=True)
class Step(Shared):
    """The step of its program that a client is at; `age` in seconds since it got there."""

    client_id: int
    step: int
    age: float


@dataclass(frozen=True, slots=True)
class Leaver:
    """Clients `first` to `last` are leaving; each has called `collectives` collectives, and comes to no other."""

    first: int
    last: int
    collectives: int


# From a client to the coordinator.


@dataclass(frozen=True, slots=True)
class Register:
    """Begins a session: who this client is, and what it believes of the job."""

    client_id: int
    num_clients: int
    job_name: str
    protocol_version: int
    package_version: str
    incarnation: int
    address: str
    hostname: str
    pid: int
    link_address: str
    device_type: str
    heartbeat_interval: float
    jobs_digest: str = ""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The periodic sign of life.

    `step` is where the program says that it is, `step_age` the seconds since it got there; both -1 where it says
    nothing. `busy` is for how many seconds it has been at work since then without waiting for other clients, as it does
    in a collective or a barrier; 0 while it waits.
    """

    sequence: int
    phase: str
    healthy: bool
    health: str
    step: int = -1
    step_age: float = -1.0
    busy: float = 0.0


@dataclass(frozen=True, slots=True)
class Ready:
    """This client has merged and verified its table of devices."""

    digest: bytes
    kinds: tuple[KindRun, ...]
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Suspect:
    """The ring link with `client_id` broke; the coordinator is to find out why."""

    client_id: int
    cause: str


@dataclass(frozen=True, slots=True)
class LinkDelayed:
    """The ring link to `client_id` cannot be opened yet; where its address refuses, its process may have died."""

    client_id: int
    cause: str
    is_refused: bool


@dataclass(frozen=True, slots=True)
class Leave:
    """This client wants to shut down, and waits up to `timeout` seconds for the others.

    It has called `collectives` collectives, and comes to no other.
    """

    timeout: float
    collectives: int = 0


@dataclass(frozen=True, slots=True)
class Goodbye:
    """This client failed and is going: `error` is the exception's type, `cause` its text."""

    phase: str
    error: str
    cause: str


@dataclass(frozen=True, slots=True)
class PreemptionNotice:
    """From a client: `client_id` is to be taken `deadline_in` seconds from now; `reason` says how that is known."""

    client_id: int
    deadline_in: float
    reason: str


@dataclass(frozen=True, slots=True)
class StepTold:
    """From a client: `step` is the last that its program came to, and it comes to no later one unknowingly."""

    number: int
    step: int


# From the coordinator to a client.


@dataclass(frozen=True, slots=True)
class Refused:
    """The registration is refused; `ours` is the coordinator's value, `yours` the client's."""

    field: str
    yours: str
    ours: str
    detail: str


@dataclass(frozen=True, slots=True)
class HeartbeatAck:
    """The coordinator's sign of life.

    `missing` lists the clients that have not registered as pairs of first and last id, `steps` those furthest behind.
    `host` is client 0, in the first: a client that waits for the others asks it whether it lives.
    """

    sequence: int
    missing: tuple[int, ...]
    overdue: tuple[Overdue, ...]
    updates: tuple[MemberUpdate, ...]
    steps: tuple[Step, ...] = ()
    host: tuple[MemberInfo, ...] = ()


@dataclass(frozen=True, slots=True)
class Formed(Shared):
    """All clients have registered. `has_services` tells whether client 0 serves the coordination services."""

    job_id: str
    epoch: int
    members: tuple[MemberInfo, ...]
    has_services: bool = True


@dataclass(frozen=True, slots=True)
class Commit(Shared):
    """All clients hold the same table: the job is up. `spans` holds the slowest client of each phase."""

    kinds: tuple[KindRun, ...]
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Verdict(Shared):
    """The job has failed: because of whom, in which phase, and how that was found out.

    `error` is the public exception this becomes. `missing` and `present` are id pairs as in `HeartbeatAck`.
    """

    error: str
    client_id: int
    address: str
    hostname: str
    phase: str
    cause: str
    missing: tuple[int, ...]
    also: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Dismissed(Shared):
    """The shutdown is complete; `missing` holds the clients that never asked for it, as in `HeartbeatAck`."""

    missing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StepAsked(Shared):
    """To all clients: which step is your program at? `number` counts the agreements."""

    number: int


@dataclass(frozen=True, slots=True)
class PointSet(Shared):
    """To all clients: the sync step is `step`, for `reason`; `NO_STEP` where there is none, and `reason` says why."""

    number: int
    step: int
    reason: str


@dataclass(frozen=True, slots=True)
class Leaving(Shared):
    """To all clients: `leavers` have begun to shut down."""

    leavers: tuple[Leaver, ...]


# Of the session itself, which may be carried by several connections, one after another; no machine sees them.


@dataclass(frozen=True, slots=True)
class Resume:
    """Takes a session up on a new connection; `received` counts the messages that this side has received in it."""

    client_id: int
    incarnation: int
    received: int


@dataclass(frozen=True, slots=True)
class Resumed:
    """The answer to `Resume`; `received` likewise. Refused where nobody knows the session."""

    received: int


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """`received` messages of the session have come: they need not be kept."""

    received: int


@dataclass(frozen=True, slots=True)
class AskTopology:
    """Said instead of `Register` by one who is no client: answered by `TopologyTold`, and the connection ends.

    Attributes:
        protocol_version: of who asks.
    """

    protocol_version: int


@dataclass(frozen=True, slots=True)
class TopologyTold:
    """Where the devices of the job are.

    Attributes:
        counts: devices of each client.
        locations: int32 `[num_devices, 4]` (x, y, z, core), little-endian.
        reason: why the rest is empty, where it is: the job is not up, or its devices have no location.
    """

    counts: tuple[int, ...]
    locations: bytes
    reason: str


ClientMessage = Register | Heartbeat | Ready | Suspect | LinkDelayed | Leave | Goodbye | PreemptionNotice | StepTold
CoordinatorMessage = Refused | HeartbeatAck | Formed | Commit | Verdict | Dismissed | StepAsked | PointSet | Leaving
SessionMessage = Resume | Resumed | Acknowledge
VisitorMessage = AskTopology | TopologyTold
Message = ClientMessage | CoordinatorMessage | SessionMessage | VisitorMessage
