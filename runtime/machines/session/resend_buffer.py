"""The messages of one side of a session that the other side has not acknowledged. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, cast

M = TypeVar("M")


class ResendBuffer(Generic[M]):
    """Keeps what was sent until it is acknowledged, and sends it again over another connection.

    Messages are counted and not numbered: a connection keeps their order.
    """

    def __init__(self) -> None:
        # A list, as an empty deque takes 700 bytes: of these buffers client 0 has two for each client.
        self._kept: list[M | None] = []
        self._num_forgotten = 0  # acknowledged ones that are still in the list
        self._num_acknowledged = 0
        self._num_sent = 0  # of those kept, over the present connection
        self._sent_before = 0  # of all messages, over former connections

    def append(self, message: M) -> None:
        """Add a message to be sent."""
        self._kept.append(message)

    def append_sent(self, message: M, kept_max: int) -> bool:
        """Add a message that is sent at once, unless others are to be sent before it, or `kept_max` are kept.

        Returns:
            Whether it was added.
        """
        kept = self._kept
        if not self._num_sent == len(kept) - self._num_forgotten < kept_max:
            return False
        kept.append(message)
        self._num_sent += 1
        return True

    def __len__(self) -> int:
        """Return the number of messages kept: not sent, or not acknowledged."""
        return len(self._kept) - self._num_forgotten

    @property
    def is_untouched(self) -> bool:
        """Whether there never was a message."""
        return not self._kept and not self._num_acknowledged

    @property
    def has_unsent(self) -> bool:
        """Whether a message was not sent over the present connection."""
        return self._num_sent < len(self._kept) - self._num_forgotten

    def next_unsent(self) -> M:
        """Return the next message for the present connection."""
        message = self._kept[self._num_forgotten + self._num_sent]
        self._num_sent += 1
        return cast(M, message)

    def acknowledge(self, received: int) -> None:
        """Discard the first `received` messages of the session.

        Raises:
            ValueError: fewer were acknowledged before, or more than were sent.
        """
        self._discard(received, self._num_acknowledged + self._num_sent)

    def rewind(self, received: int) -> None:
        """Begin a new connection, on which everything after the first `received` messages is sent.

        Raises:
            ValueError: as `acknowledge`.
        """
        # A former connection may have brought what the present one, begun meanwhile, has not sent again yet.
        self._sent_before = max(self._sent_before, self._num_acknowledged + self._num_sent)
        self._discard(received, self._sent_before)
        self._num_sent = 0

    def revise(self, revised: Callable[[M], M]) -> None:
        """Replace each message that is kept."""
        self._kept[self._num_forgotten :] = [revised(cast(M, kept)) for kept in self._kept[self._num_forgotten :]]

    def _discard(self, received: int, sent: int) -> None:
        count = received - self._num_acknowledged
        if count < 0 or received > sent:
            raise ValueError(
                f"the other side says it has received {received} messages: it was sent "
                f"{sent}, and has acknowledged {self._num_acknowledged} before"
            )
        end = self._num_forgotten + count
        self._kept[self._num_forgotten : end] = [None] * count
        self._num_forgotten = end
        if 2 * end >= len(self._kept):  # not at each message: that would be the square of those that wait
            del self._kept[:end]
            self._num_forgotten = 0
        self._num_acknowledged = received
        self._num_sent = max(self._num_sent - count, 0)
