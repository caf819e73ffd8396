"""One side of a channel of the coordination services: nothing is lost or doubled when its link breaks."""

from __future__ import annotations

from ...transport.ports import ServiceLink
from ...transport.wire.framing import encode_parts
from ...transport.wire.services import MessagesReceived, ServiceMessage
from ..machines.resend_buffer import ACKNOWLEDGE_EVERY, Ledger

_ACKNOWLEDGED_BYTES = 256 * 1024
_KEPT_MAX = 2 * ACKNOWLEDGE_EVERY
"""Messages that may be on their way; those that the other side has received, and not said so, are half as many."""


class Channel:
    """What goes out over one link after another, and how much has come in. Used on one thread.

    Attributes:
        link: the present one.
    """

    def __init__(self) -> None:
        self.link: ServiceLink | None = None
        self._ledger: Ledger[list[bytes]] = Ledger()
        self._unacknowledged_bytes = 0

    @property
    def received(self) -> int:
        """How many messages of the other side have come."""
        return self._ledger.received

    def has_room(self) -> bool:
        """Return whether the other side has taken most of what was sent: what is long then goes on."""
        return len(self._ledger) < _KEPT_MAX

    def send(self, message: ServiceMessage) -> None:
        """Send a message; while there is no link it is kept for the next.

        Raises:
            ConfigurationError: no frame can carry it; it was not sent.
        """
        parts = encode_parts(message)
        ledger = self._ledger
        ledger.append(parts)
        if self.link is not None:
            self.link.send(ledger.next_unsent())

    def note_received(self, size: int) -> None:
        """Note that a message of `size` bytes has come, which the other side need not keep for long."""
        self._unacknowledged_bytes += size
        if (self._ledger.note_received() or self._unacknowledged_bytes > _ACKNOWLEDGED_BYTES) and self.link is not None:
            self._unacknowledged_bytes = 0
            self.link.send(encode_parts(MessagesReceived(self._ledger.received)))

    def acknowledged(self, received: int) -> None:
        """Forget what the other side says it has received.

        Raises:
            ValueError: it cannot have received so many, or so few.
        """
        self._ledger.acknowledge(received)

    def attach(self, link: ServiceLink, received: int) -> None:
        """Go on over a link, with what comes after the first `received` messages.

        Raises:
            ValueError: the other side cannot have received so many, or so few.
        """
        self._ledger.rewind(received)
        self.link = link
        while self._ledger.has_unsent:
            link.send(self._ledger.next_unsent())
