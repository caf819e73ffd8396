"""What the runtime needs of a network. Two adapters: gRPC and TCP, and the in-memory one of `bringup.testing`.

One contract suite, `tests/contracts`, runs over both.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from .addresses import Address
from .messages import Message

__all__ = [
    "ChannelClosedError",
    "DialReport",
    "Link",
    "LinkIdentity",
    "LinkListener",
    "Network",
    "ProbeOutcome",
    "ProbeResult",
    "Server",
    "Session",
]


class ChannelClosedError(Exception):
    """A session or link has ended; the text says how, as far as it is known."""


class Session(Protocol):
    """An ordered, reliable stream of messages between one client's peer and the coordinator.

    One task may send while another receives. A message that was sent is received, or the receiver's `receive`
    raises; nothing is received twice.
    """

    async def send(self, message: Message) -> None:
        """Hand `message` to the transport; waits while the other side is slow.

        Cancelling leaves it open whether the message is sent: close the session afterwards.

        Raises:
            ChannelClosedError: the session has ended.
        """
        ...

    async def receive(self) -> Message:
        """Return the next message.

        Cancelling is safe: no message is lost that an earlier `receive` did not return.

        Raises:
            ChannelClosedError: the session has ended and all that came before was returned.
        """
        ...

    async def close(self) -> None:
        """End the session, after what was sent. Idempotent; never raises; returns within a second."""
        ...


class Server(Protocol):
    """A listening coordinator."""

    async def close(self) -> None:
        """Free the port and end what runs. Idempotent; never raises; returns within a second or two."""
        ...


@dataclass(frozen=True, slots=True)
class LinkIdentity:
    """Who stands at an end of a link: neighbours prove to each other that they belong to the same ring."""

    job_id: str
    epoch: int
    client_id: int
    incarnation: int


class Link(Protocol):
    """One direction of the ring: a stream of bytes from a peer to its right neighbour."""

    async def send(self, *parts: bytes | bytearray | memoryview) -> None:
        """Send `parts` in order; waits until the last byte has left, so that the caller may change them afterwards.

        Cancelling leaves the link unusable.

        Raises:
            ChannelClosedError: the link has ended.
        """
        ...

    async def receive_into(self, buffer: memoryview) -> None:
        """Fill `buffer`, a writable view of bytes. Cancelling leaves the link unusable.

        Raises:
            ChannelClosedError: the link ended before `buffer` was full.
        """
        ...

    async def wait_closed(self) -> str:
        """Wait until the link has ended; returns how."""
        ...

    def close(self) -> None:
        """End the link at once. Idempotent; never raises."""
        ...


class LinkListener(Protocol):
    """Where a peer's left neighbour connects, and where others ask whether it is alive."""

    @property
    def port(self) -> int:
        """The port it listens on."""
        ...

    async def accept(self, own: LinkIdentity, left: LinkIdentity) -> Link:
        """Wait for the link of the left neighbour; strangers are dropped and do not disturb it."""
        ...

    async def close(self) -> None:
        """Free the port, and end what has not been accepted. Idempotent; never raises."""
        ...


class ProbeOutcome(enum.Enum):
    """What asking a peer for its incarnation showed."""

    ALIVE = "the process answers"
    REFUSED = "connection refused"
    REPLACED = "another process answers in its place"
    SILENT = "no answer"


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """`detail` says what was seen, for error texts."""

    outcome: ProbeOutcome
    detail: str


DialReport = Callable[[str], None]
"""Told why the coordinator could not be reached yet, whenever the reason changes."""


class Network(Protocol):
    """How one peer reaches the others."""

    async def serve_coordinator(self, address: Address, on_session: Callable[[Session], Awaitable[None]]) -> Server:
        """Listen on the coordinator's address; `on_session` runs once for each session, which ends when it returns.

        Raises:
            ConfigurationError: the address is taken or not of this host; the text names it.
        """
        ...

    async def connect_coordinator(self, address: Address, report: DialReport) -> tuple[Session, str]:
        """Connect, trying until it works or the caller cancels.

        Returns:
            The session, and the host this peer is seen at from there.
        """
        ...

    async def serve_links(self, incarnation: int) -> LinkListener:
        """Listen for links and probes.

        Raises:
            ConfigurationError: the port asked for is taken.
        """
        ...

    async def connect_link(self, address: Address, own: LinkIdentity, right: LinkIdentity) -> Link:
        """Open the link to the right neighbour.

        Raises:
            ChannelClosedError: it cannot be reached, or is somebody else; the text says which.
        """
        ...

    async def probe(self, address: Address, incarnation: int, timeout: float) -> ProbeResult:
        """Ask whoever listens on `address` for links whether it is `incarnation`; waits up to `timeout` seconds."""
        ...
