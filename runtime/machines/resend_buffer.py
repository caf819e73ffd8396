"""What lets a session outlive its connections: nothing that was sent is lost or received twice. Pure."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

M = TypeVar("M")

ACKNOWLEDGE_EVERY = 16
"""Messages received between two acknowledgements: so many and those on their way are kept for another connection."""


class Ledger(Generic[M]):
    """One side of a session: what it has to send, and how much it has received.

    Messages are counted and not numbered: a connection keeps their order. Each side keeps what it sent until the other
    acknowledges it, and when they meet over a new connection, goes on after the last message that the other received.

    Attributes:
        received: how many messages of the other side this one has taken in.
    """

    def __init__(self) -> None:
        self.received = 0
        self._kept: deque[M] = deque()
        self._forgotten = 0
        self._handed_out = 0

    def append(self, message: M) -> None:
        """Note a message to be sent."""
        self._kept.append(message)

    def __len__(self) -> int:
        """Return how many messages are kept: not sent, or not acknowledged."""
        return len(self._kept)

    @property
    def has_unsent(self) -> bool:
        """Whether there is a message that was not handed to the present connection."""
        return self._handed_out < len(self._kept)

    def next_unsent(self) -> M:
        """Return the next message for the present connection."""
        message = self._kept[self._handed_out]
        self._handed_out += 1
        return message

    def note_received(self) -> bool:
        """Count a message of the other side; returns whether it is time to acknowledge."""
        self.received += 1
        return self.received % ACKNOWLEDGE_EVERY == 0

    def acknowledge(self, received: int) -> None:
        """Forget what the other side says it has received.

        Raises:
            ValueError: it cannot have received so few, or so many.
        """
        count = received - self._forgotten
        if not 0 <= count <= self._handed_out:
            raise ValueError(
                f"the other side says it has received {received} messages: it was sent "
                f"{self._forgotten + self._handed_out}, and has acknowledged {self._forgotten} before"
            )
        for _ in range(count):
            self._kept.popleft()
        self._forgotten = received
        self._handed_out -= count

    def rewind(self, received: int) -> None:
        """Begin a new connection: all that comes after the first `received` messages is to be sent on it.

        Raises:
            ValueError: as `acknowledge`.
        """
        self.acknowledge(received)
        self._handed_out = 0
