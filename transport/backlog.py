"""Messages of a link that wait for room in its connection. Pure."""

from __future__ import annotations

from collections import deque

_BYTES_MAX = 4 * 1024 * 1024
"""Some of the largest messages; whoever leaves more unread for as long is not going to read."""


class Backlog:
    """Messages in order; of those that only the newest counts of, the newest."""

    def __init__(self) -> None:
        self._messages: deque[tuple[bytes, bool]] = deque()
        self._size = 0

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._messages)

    def put(self, message: bytes, *, is_latest: bool) -> bool:
        """Add a message; one that `is_latest` replaces the former such one. Returns whether there was room."""
        if is_latest:
            self._drop_former()
        if self._size + len(message) > _BYTES_MAX:
            return False
        self._messages.append((message, is_latest))
        self._size += len(message)
        return True

    def take(self) -> tuple[bytes, bool]:
        """Remove the first message, and return it with whether it `is_latest`."""
        message, is_latest = self._messages.popleft()
        self._size -= len(message)
        return message, is_latest

    def _drop_former(self) -> None:
        for index, (message, is_latest) in enumerate(self._messages):
            if is_latest:
                del self._messages[index]
                self._size -= len(message)
                return
