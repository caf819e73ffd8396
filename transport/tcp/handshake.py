"""The handshake of links. Its messages have a fixed size: a stranger cannot make a listener allocate memory. Pure."""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass, field

from ..ports import LinkIdentity

_MAGIC = b"bringup\x01"
# magic, purpose, job id, epoch, from: client id, incarnation, to: client id, incarnation
_HELLO = struct.Struct("!8sB16sQIQIQ")
# magic, status, incarnation of who answers
_REPLY = struct.Struct("!8sBQ")
HELLO_BYTES = _HELLO.size
REPLY_BYTES = _REPLY.size

CONFIRMATION = b"\x01"
"""The first bytes of the neighbour on an accepted link: from then on both sides hold the link."""

HELLO_TIMEOUT = 5.0
"""Seconds for the first message of a new connection, and for the answer of the services: one packet, and time for some
retransmissions. Beyond that it is a port scan, an idle connection, or a stopped process."""


class Purpose(enum.IntEnum):
    """The request of the connecting side."""

    LINK = 1
    PROBE = 2
    SERVICES = 3


class Status(enum.IntEnum):
    """The answer of the listening side."""

    ACCEPTED = 1
    ALIVE = 2
    OTHER_JOB = 3
    OTHER_NEIGHBOUR = 4
    NOT_ADDRESSED = 5
    ALREADY_LINKED = 6
    NO_SERVICES = 7
    OTHER_CERTIFICATE = 8


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message: both identities and the purpose."""

    purpose: Purpose
    sender: LinkIdentity
    receiver: LinkIdentity

    def encode(self) -> bytes:
        """Return the `HELLO_BYTES` bytes of this hello."""
        return _HELLO.pack(
            _MAGIC,
            self.purpose,
            bytes.fromhex(self.sender.job_id),
            self.sender.epoch,
            self.sender.client_id,
            self.sender.incarnation,
            self.receiver.client_id,
            self.receiver.incarnation,
        )


@dataclass(slots=True)
class AcceptancePolicy:
    """The decision of a listener on each hello; every adapter of `Network` asks it.

    Attributes:
        incarnation: of the listening process.
        has_services: whether it serves the coordination services.
        expected: its own identity and its left neighbours', once the job has formed.
        linked: the left neighbours whose links have been accepted.
    """

    incarnation: int
    has_services: bool
    expected: tuple[LinkIdentity, frozenset[LinkIdentity]] | None = None
    linked: set[LinkIdentity] = field(default_factory=set)

    def expect(self, own: LinkIdentity, *lefts: LinkIdentity) -> None:
        """Accept from now on the links of these neighbours; of one ring each time."""
        assert self.expected in (None, (own, frozenset(lefts))), "a listener accepts the neighbours of one ring"
        self.expected = own, frozenset(lefts)

    def judge(self, hello: Hello, certified_id: int | None = None) -> Status | None:
        """Return the answer to a hello; `None` where it depends on the job, which has not formed yet.

        Args:
            hello: of the connecting side.
            certified_id: the client id in its certificate, where that has one.
        """
        if hello.purpose is Purpose.PROBE:
            return Status.ALIVE
        if certified_id not in (None, hello.sender.client_id):
            return Status.OTHER_CERTIFICATE
        if hello.receiver.incarnation != self.incarnation:
            return Status.NOT_ADDRESSED
        if self.expected is None:
            return None
        own, lefts = self.expected
        if (hello.sender.job_id, hello.sender.epoch) != (own.job_id, own.epoch):
            return Status.OTHER_JOB
        if hello.receiver != own:
            return Status.NOT_ADDRESSED
        if hello.purpose is Purpose.SERVICES:
            return Status.ACCEPTED if self.has_services else Status.NO_SERVICES
        if hello.sender not in lefts:
            return Status.OTHER_NEIGHBOUR
        return Status.ALREADY_LINKED if hello.sender in self.linked else Status.ACCEPTED


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a hello."""

    status: Status
    incarnation: int

    def encode(self) -> bytes:
        """Return the `REPLY_BYTES` bytes of this reply."""
        return _REPLY.pack(_MAGIC, self.status, self.incarnation)


def decode_hello(data: bytes | bytearray) -> Hello | None:
    """Return the hello in `data`, or `None` where a stranger sent something else."""
    magic, purpose, job, epoch, sender, sender_incarnation, receiver, receiver_incarnation = _HELLO.unpack(data)
    if magic != _MAGIC or purpose not in Purpose.__members__.values():
        return None
    job_id = job.hex()
    return Hello(
        Purpose(purpose),
        LinkIdentity(job_id, epoch, sender, sender_incarnation),
        LinkIdentity(job_id, epoch, receiver, receiver_incarnation),
    )


def decode_reply(data: bytes | bytearray) -> Reply | None:
    """Return the reply in `data`, or `None` where it is something else."""
    magic, status, incarnation = _REPLY.unpack(data)
    if magic != _MAGIC or status not in Status.__members__.values():
        return None
    return Reply(Status(status), incarnation)
