"""The ports of the network. Two adapters: gRPC with TCP, and the in-memory one of `bringup.testing`.

One contract suite, `tests/contracts`, runs over both.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from .addresses import Address
from .attempts import Trouble
from .wire.messages import Message


class ConnectionClosedError(Exception):
    """A connection or link has ended; the text says how, as far as it is known."""


class Connection(Protocol):
    """An ordered, reliable stream of messages between one client's peer and the coordinator, while it lasts.

    One task may send while another receives. A message that was sent is received, or the receiver's `receive`
    raises; nothing is received twice.
    """

    @property
    def certified_id(self) -> int | None:
        """The client id in the certificate of the other side; `None` where that has none, or needs none."""
        ...

    async def send(self, message: Message) -> None:
        """Hand `message` to the transport; waits while the other side is slow.

        Cancelling leaves it open whether the message is sent: close the connection afterwards.

        Raises:
            ConnectionClosedError: the connection has ended.
            BringupError: the message is larger than the other side takes; nothing was sent.
        """
        ...

    async def receive(self) -> Message:
        """Return the next message.

        Cancelling is safe: no message is lost that an earlier `receive` did not return.

        Raises:
            ConnectionClosedError: the connection has ended and all that came before was returned.
            AuthenticationError: the coordinator has ended it, as it does not take the certificate of this client.
        """
        ...

    async def close(self) -> None:
        """End the connection, after what was sent. Idempotent; never raises; returns within a second."""
        ...


class Server(Protocol):
    """A listening coordinator."""

    async def close(self) -> None:
        """Free the port and end what runs. Idempotent; never raises; returns within a second or two."""
        ...


@dataclass(frozen=True, slots=True)
class LinkIdentity:
    """The identity of one end of a link; neighbours compare theirs, so that no stranger enters the ring."""

    job_id: str
    epoch: int
    client_id: int
    incarnation: int


LINK_MESSAGE_BYTES_MAX = 1024 * 1024
"""Of one message over a link: the longest report of a failure, and the members of a job of 100,000 that leave."""

MessageReceiver = Callable[[bytes | memoryview], None]
"""Takes a message that came over a link; valid during the call only. A `MalformedMessageError` that it raises ends the
link, which tells so; it must raise nothing else."""


class Link(Protocol):
    """A link of the ring: a stream of bytes from a peer to its right neighbour, and small messages the other way.

    The messages are what neighbours tell each other of the job, whatever the program does: the two directions do not
    wait for each other, so that no message is behind the bytes of a collective. Messages arrive whole and in order, or
    the link ends; those that came before its end are handed over before `wait_closed` returns. They are of the loop
    that the link was made on.
    """

    async def send(self, *parts: bytes | bytearray | memoryview) -> None:
        """Send `parts` in order; waits until the last byte has left, so that the caller may change them afterwards.

        Cancelling leaves the link unusable.

        Raises:
            ConnectionClosedError: the link has ended.
        """
        ...

    async def receive_into(self, buffer: memoryview) -> None:
        """Fill `buffer`, a writable view of bytes. Cancelling leaves the link unusable.

        Raises:
            ConnectionClosedError: the link ended before `buffer` was full.
        """
        ...

    def post(self, message: bytes, *, is_latest: bool = False) -> None:
        """Send a message of up to `LINK_MESSAGE_BYTES_MAX` bytes back to the left neighbour; waits for nothing.

        While that does not read, a bounded number of bytes waits here, and of messages that are `is_latest` only the
        newest; beyond the bound the link ends. A message posted over a link that has ended is lost.
        """
        ...

    def receive_messages(self, receiver: MessageReceiver) -> None:
        """Have the right neighbour's messages handed over as they come, at once those that have come; called once."""
        ...

    async def wait_closed(self) -> str:
        """Wait until the link has ended; returns how."""
        ...

    def close(self) -> None:
        """End the link at once. Idempotent; never raises."""
        ...


class ServiceReceiver(Protocol):
    """The receiver of a service link's frames, on the link's event loop."""

    def received(self, frame: Frame) -> None:
        """Take a frame, without its length prefix; valid during the call only. Frames come in order."""
        ...

    def lost(self, reason: str) -> None:
        """Learn that the link has ended otherwise than by `ServiceLink.close`; called once, and last."""
        ...


class ServiceLink(Protocol):
    """An ordered, reliable stream of frames (`wire.framing`), while it lasts; to be used on the loop it was made on.

    The side that serves takes nothing more in from another that does not read. The other side always reads: if both
    waited, they could wait for each other.
    """

    def send(self, parts: list[bytes]) -> None:
        """Send a frame, its length included; waits for nothing. What is sent over a link that has ended is lost."""
        ...

    async def drained(self) -> None:
        """Wait while much of what was sent has not left yet; returns when the link has ended, too."""
        ...

    def close(self) -> None:
        """End the link after what was sent. Idempotent; never raises."""
        ...


ServiceWelcome = Callable[[ServiceLink, LinkIdentity], ServiceReceiver]
"""Given a new link and who is at its other end, returns who takes what comes over it."""


class LinkListener(Protocol):
    """The listener of a peer: its left neighbours connect here, and others probe it.

    On client 0 the others' service links arrive here, too.
    """

    @property
    def port(self) -> int:
        """The port it listens on."""
        ...

    async def accept(self, own: LinkIdentity, left: LinkIdentity, *others: LinkIdentity) -> Link:
        """Wait for the link of the left neighbour; strangers are dropped and do not disturb it.

        Where there are `others`, left neighbours in further rings, each is waited for by a call of its own.
        """
        ...

    async def close(self) -> None:
        """Free the port, and end what has not been accepted. Idempotent; never raises."""
        ...


class ProbeOutcome(enum.Enum):
    """The result of asking a peer for its incarnation."""

    ALIVE = "the process answers"
    REFUSED = "connection refused"
    REPLACED = "another process answers in its place"
    SILENT = "no answer"


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of a probe; `detail` describes it for error texts."""

    outcome: ProbeOutcome
    detail: str


Frame = bytes | memoryview
"""One service message as bytes."""

DialReport = Callable[[str], None]
"""Told why the coordinator could not be reached yet, whenever the reason changes."""

LinkReport = Callable[[Trouble], None]
"""Told why the link to a neighbour could not be opened yet, whenever that changes."""


class Network(Protocol):
    """The network of one peer."""

    async def serve_coordinator(
        self, address: Address, on_connection: Callable[[Connection], Awaitable[None]]
    ) -> Server:
        """Listen on the coordinator's address; `on_connection` runs once for each, which ends when it returns.

        Raises:
            ConfigurationError: the address is taken or not of this host; the text names it.
        """
        ...

    async def connect_coordinator(
        self, address: Address, report: DialReport, *, expected: bool = False
    ) -> tuple[Connection, str]:
        """Connect, trying until it works or the caller cancels.

        Args:
            address: of the coordinator.
            report: told why not yet.
            expected: whether it has been reached there before, so that a refusal means that it has gone.

        Returns:
            The connection, and the host this peer is seen at from there.

        Raises:
            ConnectionClosedError: it was `expected`, and nothing listens there.
            AuthenticationError: one of the two sides has refused the other for good; the text says why.
        """
        ...

    async def serve_links(
        self, incarnation: int, welcome: ServiceWelcome | None = None, *, is_host: bool = False
    ) -> LinkListener:
        """Listen for links and probes, and, with `welcome`, for service links.

        The whole job may come in one moment where this peer `is_host`, which hosts the coordinator.

        Raises:
            ConfigurationError: the port asked for is taken.
        """
        ...

    async def connect_link(self, address: Address, own: LinkIdentity, right: LinkIdentity, report: LinkReport) -> Link:
        """Open the link to the right neighbour, trying until it works or the caller cancels.

        Args:
            address: where it listens for links.
            own: who connects.
            right: who is to accept.
            report: told why not yet.

        Raises:
            ConnectionClosedError: the listener there is not `right`, or linked already, as the text says.
            AuthenticationError: one of the two sides has refused the other's certificate for good.
        """
        ...

    async def connect_services(
        self, address: Address, own: LinkIdentity, host: LinkIdentity, receiver: ServiceReceiver
    ) -> ServiceLink:
        """Open a link to the services of `host`, on the running event loop, whichever that is.

        Raises:
            ConnectionClosedError: it cannot be reached, is somebody else, or has no services; the text says which.
        """
        ...

    async def probe(self, address: Address, incarnation: int, timeout: float) -> ProbeResult:
        """Ask whoever listens on `address` for links whether it is `incarnation`; waits up to `timeout` seconds."""
        ...
