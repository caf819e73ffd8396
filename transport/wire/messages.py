"""The messages of a session between a peer and the coordinator. Pure.

Each is declared once, here: machines are written in terms of it, and `control` gives it its wire form. Of a message
that is the first on a connection, so that either side may be of another version, a later version may have more fields
at the end: they are ignored.
"""

from typing import Annotated

from msgspec import Meta

from .form import Body, Part, Signed, Unsigned
from .session_messages import SessionMessage

PROTOCOL_VERSION = 7
"""Raised whenever an older peer could misunderstand a newer one; the coordinator refuses any other."""


_MANY = Meta(max_length=1_000_000)
"""Entries of a list: more than the clients of any job that fits a message, and less than could fill a memory."""

_Ints = Annotated[tuple[Signed, ...], _MANY]


class Shared(Body, frozen=True, dict=True):
    """A message that many clients get: `control` keeps its wire form in `__dict__["wire"]` once it was made.

    To make it again for each client costs the coordinator the square of their number.
    """


class First(Body, frozen=True, forbid_unknown_fields=False):
    """A first message of a connection: later versions may add fields, so that sides can compare their versions."""


class Span(Part, frozen=True):
    """One phase of one client's bring-up; `start` and `duration` in seconds since that client began."""

    name: str
    start: float
    duration: float
    client_id: Signed


class KindRun(Part, frozen=True):
    """`count` devices in a row of the same kind and backend."""

    kind: str
    count: Signed


class MemberInfo(Part, frozen=True):
    """The facts of one client, sent to all clients once the job has formed."""

    client_id: Signed
    address: str
    hostname: str
    pid: Signed
    incarnation: Unsigned
    link_address: str


class MemberUpdate(Part, frozen=True):
    """A change of a client's health, or of how often its session was taken up again."""

    client_id: Signed
    healthy: bool
    health: str
    reconnects: Signed = 0


class Overdue(Part, frozen=True):
    """A client whose heartbeat is late; `age` in seconds."""

    client_id: Signed
    age: float


class Step(Part, frozen=True):
    """The step of its program that a client is at; `age` in seconds since it got there."""

    client_id: Signed
    step: Signed
    age: float


class StepMark(Part, frozen=True):
    """A client's place in its program, as in its `Heartbeat`: step, seconds since it got there, seconds at work."""

    client_id: Signed
    step: Signed
    age: float
    busy: float


class Behind(Part, frozen=True):
    """The clients in the earliest phase: `num_clients` in all, the first of them as pairs of first and last id."""

    phase: str
    ids: _Ints
    num_clients: Signed


class GroupPlace(Part, frozen=True):
    """A group of clients with consecutive ids, `first` to `last`, of `count` groups; its first client leads it."""

    index: Signed
    count: Signed
    first: Signed
    last: Signed


class GroupReport(Part, frozen=True):
    """The wave that has come around a group: each of its clients was alive at most `age` seconds ago.

    `steps` holds the clients furthest behind, the last first, `front` the one furthest ahead, if any has a step.
    """

    age: float
    steps: Annotated[tuple[StepMark, ...], _MANY] = ()
    front: Annotated[tuple[StepMark, ...], _MANY] = ()


class Leaver(Part, frozen=True):
    """Clients `first` to `last` are leaving; each has called `collectives` collectives, and comes to no other."""

    first: Signed
    last: Signed
    collectives: Signed


# From a client to the coordinator.


class Register(First, frozen=True, tag=33):
    """Begins a session: who this client is, and what it believes of the job.

    `attempt` counts the registrations of this process: one that was on its way over a lost connection may arrive after
    a later one.
    """

    client_id: Signed
    num_clients: Signed
    job_name: str
    protocol_version: Signed
    package_version: str
    incarnation: Unsigned
    address: str
    hostname: str
    pid: Signed
    link_address: str
    device_type: str
    heartbeat_interval: float
    jobs_digest: str = ""
    attempt: Signed = 1


class Heartbeat(Body, frozen=True, tag=34):
    """The periodic sign of life.

    `step` is where the program says that it is, `step_age` the seconds since it got there; both -1 where it says
    nothing. `busy` is for how many seconds it has been at work since then without waiting for other clients, as it does
    in a collective or a barrier; 0 while it waits. `seen` is the number of the last change that it has been told. The
    leader of a group may report on that in `group`.
    """

    sequence: Signed
    phase: str
    healthy: bool
    health: str
    step: Signed = -1
    step_age: float = -1.0
    busy: float = 0.0
    seen: Unsigned = 0
    group: Annotated[tuple[GroupReport, ...], _MANY] = ()


class Ready(Body, frozen=True, tag=35):
    """This client has merged and verified its table of devices; `roster_digest` is that of its `MemberList`."""

    digest: bytes
    spans: Annotated[tuple[Span, ...], _MANY]
    roster_digest: bytes = b""


class Suspect(Body, frozen=True, tag=36):
    """The ring link with `client_id` broke; the coordinator is to find out why."""

    client_id: Signed
    cause: str


class LinkDelayed(Body, frozen=True, tag=37):
    """The ring link to `client_id` cannot be opened yet; where its address refuses, its process may have died."""

    client_id: Signed
    cause: str
    is_refused: bool


class Leave(Body, frozen=True, tag=38):
    """This client wants to shut down, and waits up to `timeout` seconds for the others.

    It has called `collectives` collectives, and comes to no other.
    """

    timeout: float
    collectives: Signed = 0


class Goodbye(Body, frozen=True, tag=39):
    """This client failed and is going: `error` is the exception's type, `cause` its text."""

    phase: str
    error: str
    cause: str


class PreemptionNotice(Body, frozen=True, tag=40):
    """From a client: `client_id` is to be taken `deadline_in` seconds from now; `reason` says how that is known."""

    client_id: Signed
    deadline_in: float
    reason: str


class StepReply(Body, frozen=True, tag=41):
    """From a client: `step` is the last that its program came to, and it comes to no later one unknowingly."""

    number: Signed
    step: Signed


# From the coordinator to a client.


class Refused(First, frozen=True, tag=42):
    """The registration is refused; `ours` is the coordinator's value, `yours` the client's."""

    field: str
    yours: str
    ours: str
    detail: str


class HeartbeatAck(Body, frozen=True, tag=43):
    """The coordinator's sign of life; of sequence 0, where it answers a registration or asks for a heartbeat.

    `missing` lists the first of the `num_missing` clients that have not registered, as pairs of first and last id;
    `behind` the clients in the earliest phase while the job comes up; `steps` those furthest behind in the program.
    `host` is client 0, in the first: a client that waits for the others asks it whether it lives. `updates` holds the
    changes up to the one of number `news`. `wave_in` is, for the leader of one of several groups, the number of seconds
    until it is to begin its next wave, as all leaders do.
    """

    sequence: Signed
    missing: _Ints
    overdue: Annotated[tuple[Overdue, ...], _MANY]
    updates: Annotated[tuple[MemberUpdate, ...], _MANY]
    steps: Annotated[tuple[Step, ...], _MANY] = ()
    host: Annotated[tuple[MemberInfo, ...], _MANY] = ()
    num_missing: Unsigned = 0
    behind: Annotated[tuple[Behind, ...], _MANY] = ()
    news: Unsigned = 0
    wave_in: float = 0.0


class Formed(Body, frozen=True, tag=44):
    """All clients have registered. `has_services` tells whether client 0 serves the coordination services.

    `place` is the group of the receiver. `neighbours` are its left and its right neighbour in that group's ring, and,
    for the leader of one of several groups, its left and its right neighbour among the leaders. `roster` is the wire
    form of the `MemberList`, for client 0 alone: the others get it over the ring, with the merge.
    """

    job_id: str
    epoch: Signed
    place: GroupPlace
    neighbours: Annotated[tuple[MemberInfo, ...], _MANY]
    roster: bytes = b""
    has_services: bool = True


class Commit(Shared, frozen=True, tag=45):
    """All clients hold the same table: the job is up. `spans` holds the slowest client of each phase."""

    spans: Annotated[tuple[Span, ...], _MANY]


class Verdict(Shared, frozen=True, tag=46):
    """The job has failed: the client, its phase, and the means of detection.

    `error` is the public exception this becomes. `missing` are the first of the `num_missing` clients that did not
    come, and `also` the first of the `num_also` that failed with it, as pairs of first and last id.
    """

    error: str
    client_id: Signed
    address: str
    hostname: str
    phase: str
    cause: str
    missing: _Ints
    also: _Ints
    num_missing: Unsigned = 0
    num_also: Unsigned = 0


class Dismissed(Shared, frozen=True, tag=47):
    """The shutdown is complete; `missing` holds the clients that never asked for it, as in `HeartbeatAck`."""

    missing: _Ints
    num_missing: Unsigned = 0


class StepQuery(Shared, frozen=True, tag=48):
    """To all clients, a query for the step of the program. `number` counts the agreements."""

    number: Signed


class SyncPoint(Shared, frozen=True, tag=49):
    """To all clients: the sync step is `step`, for `reason`; `NO_STEP` where there is none, and `reason` says why."""

    number: Signed
    step: Signed
    reason: str


class Leaving(Shared, frozen=True, tag=50):
    """To all clients: `leavers` have begun to shut down."""

    leavers: Annotated[tuple[Leaver, ...], _MANY]


# From a client to its left neighbour in its group; those of the coordinator that it passes on go the same way.


class Beat(Body, frozen=True, tag=56):
    """A wave on its way around a group, begun by its leader once an interval.

    Attributes:
        number: of the wave; counts up.
        coordinator_age: seconds since the leader's last sign of life of the coordinator.
        complete_age: seconds since the begin of the last wave that came around; negative where none has.
        steps: of the clients passed so far, those furthest behind in the program, the last first.
        front: of these, the one furthest ahead, if any has a step.
        answered_age: seconds since the leader sent the last heartbeat that was answered; negative where none was.
        since: the number from which on `updates` tells the changes, and `news` the one up to which.
        news: see above.
        overdue: as in `HeartbeatAck`, like the next two.
        updates: see above.
        slowest: `HeartbeatAck.steps`, of the whole job.
        behind: as in `HeartbeatAck`.
    """

    number: Unsigned
    coordinator_age: float
    complete_age: float
    steps: Annotated[tuple[StepMark, ...], _MANY] = ()
    front: Annotated[tuple[StepMark, ...], _MANY] = ()
    answered_age: float = -1.0
    since: Unsigned = 0
    news: Unsigned = 0
    overdue: Annotated[tuple[Overdue, ...], _MANY] = ()
    updates: Annotated[tuple[MemberUpdate, ...], _MANY] = ()
    slowest: Annotated[tuple[Step, ...], _MANY] = ()
    behind: Annotated[tuple[Behind, ...], _MANY] = ()


# Over the ring, from each to client 0, and from there to all.


class MemberList(Body, frozen=True, tag=57):
    """The roster: all clients of the job, by client id."""

    members: Annotated[tuple[MemberInfo, ...], _MANY]


class KindList(Body, frozen=True, tag=58):
    """The kinds of the devices of one client, or of several that have the same; in the merge."""

    kinds: Annotated[tuple[KindRun, ...], _MANY]


class DeviceReport(Body, frozen=True, tag=59):
    """One client's part of the merge.

    Attributes:
        client_id: of the client.
        device_type: of all its devices.
        kinds: the wire form of their `KindList`.
        rows: int32 `[num_devices, 9]`, little-endian; see `core_table`.
    """

    client_id: Signed
    device_type: str
    kinds: bytes
    rows: bytes


class Merger(Body, frozen=True, tag=60):
    """The merge, as client 0 hands it out.

    Attributes:
        roster: the wire form of the `MemberList`.
        reports: those of the `DeviceReport`s of all clients, by client id.
    """

    roster: bytes
    reports: Annotated[tuple[bytes, ...], _MANY]


# Queries of processes that are no clients, and their replies.


class TopologyQuery(First, frozen=True, tag=54):
    """Sent instead of `Register` by a process that is no client; answered by `TopologyReply`, and the connection ends.

    Attributes:
        protocol_version: of the sender.
    """

    protocol_version: Signed


class TopologyReply(Body, frozen=True, tag=55):
    """The locations of the devices of the job.

    Attributes:
        counts: devices of each client.
        locations: int32 `[num_devices, 4]` (x, y, z, core), little-endian.
        reason: why the rest is empty, where it is: the job is not up, or its devices have no location.
    """

    counts: _Ints
    locations: bytes
    reason: str


ClientMessage = Register | Heartbeat | Ready | Suspect | LinkDelayed | Leave | Goodbye | PreemptionNotice | StepReply
CoordinatorMessage = Refused | HeartbeatAck | Formed | Commit | Verdict | Dismissed | StepQuery | SyncPoint | Leaving
QueryMessage = TopologyQuery | TopologyReply
WatchMessage = Beat | Verdict | Leaving
RingMessage = MemberList | KindList | DeviceReport | Merger
Message = ClientMessage | CoordinatorMessage | SessionMessage | QueryMessage | WatchMessage | RingMessage
