"""The messages that a peer and the coordinator exchange over a session.

They are plain data: the machines are written in terms of them, and `codec` gives them their wire form. Names
and meanings of the fields are those of `protos/bringup.proto`; a test holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "PROTOCOL_VERSION",
    "BarrierFailed",
    "BarrierReleased",
    "ClientMessage",
    "Commit",
    "CoordinatorMessage",
    "Dismissed",
    "EnterBarrier",
    "Formed",
    "Goodbye",
    "Heartbeat",
    "HeartbeatAck",
    "KindRun",
    "Leave",
    "MemberInfo",
    "MemberUpdate",
    "Message",
    "Overdue",
    "Ready",
    "Refused",
    "Register",
    "Span",
    "Suspect",
    "Verdict",
]

PROTOCOL_VERSION = 1
"""Raised whenever an older peer could misunderstand a newer one; the coordinator refuses any other."""


@dataclass(frozen=True, slots=True)
class Span:
    """One phase of one client's bring-up; `start` and `duration` in seconds since that client began."""

    name: str
    start: float
    duration: float
    client_id: int


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
class MemberUpdate:
    """A change of a client's phase or health."""

    client_id: int
    phase: str
    healthy: bool
    health: str


@dataclass(frozen=True, slots=True)
class Overdue:
    """A client whose heartbeat is late; `age` in seconds."""

    client_id: int
    age: float


# From a client to the coordinator.


@dataclass(frozen=True, slots=True)
class Register:
    """The first message of a session: who this client is, and what it believes of the job."""

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


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The periodic sign of life."""

    sequence: int
    phase: str
    healthy: bool
    health: str


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
class EnterBarrier:
    """This client waits at barrier `name`; `timeout` in seconds, 0 for none."""

    name: str
    ticket: int
    timeout: float


@dataclass(frozen=True, slots=True)
class Leave:
    """This client wants to shut down, and waits up to `timeout` seconds for the others."""

    timeout: float


@dataclass(frozen=True, slots=True)
class Goodbye:
    """This client failed and is going: `error` is the exception's type, `cause` its text."""

    phase: str
    error: str
    cause: str


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

    `missing` lists the clients that have not registered as pairs of first and last id.
    """

    sequence: int
    missing: tuple[int, ...]
    overdue: tuple[Overdue, ...]
    updates: tuple[MemberUpdate, ...]


@dataclass(frozen=True, slots=True)
class Formed:
    """All clients have registered."""

    job_id: str
    epoch: int
    members: tuple[MemberInfo, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """All clients hold the same table: the job is up. `spans` holds the slowest client of each phase."""

    kinds: tuple[KindRun, ...]
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
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
class BarrierReleased:
    """All clients reached the barrier."""

    ticket: int


@dataclass(frozen=True, slots=True)
class BarrierFailed:
    """The barrier's deadline passed; `missing` as in `HeartbeatAck`."""

    ticket: int
    missing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Dismissed:
    """The shutdown is complete; `missing` holds the clients that never asked for it, as in `HeartbeatAck`."""

    missing: tuple[int, ...]


ClientMessage = Register | Heartbeat | Ready | Suspect | EnterBarrier | Leave | Goodbye
CoordinatorMessage = Refused | HeartbeatAck | Formed | Commit | Verdict | BarrierReleased | BarrierFailed | Dismissed
Message = ClientMessage | CoordinatorMessage
