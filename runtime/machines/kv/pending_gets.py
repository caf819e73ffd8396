"""Gets that wait until their key is set."""

from __future__ import annotations

from .keys import bytes_of

_GET_BYTES = 640
"""Memory of one beside its key: an estimate, on the high side."""


class PendingGets:
    """Pending gets by key, in the order of the calls, and by session.

    Attributes:
        used_bytes: memory of all of them.
        count: their number.
    """

    def __init__(self) -> None:
        self.used_bytes = 0
        self.count = 0
        self._of_key: dict[str, dict[tuple[int, int], None]] = {}
        self._of_session: dict[int, dict[int, str]] = {}

    def cost(self, key: str) -> int:
        """Return the memory that one more would take, in bytes."""
        return _GET_BYTES + bytes_of(key)

    def add(self, session: int, ticket: int, key: str) -> None:
        """Add a get; session and ticket identify the call."""
        self._of_key.setdefault(key, {})[session, ticket] = None
        self._of_session.setdefault(session, {})[ticket] = key
        self._count(key, 1)

    def pop(self, key: str) -> list[tuple[int, int]]:
        """Remove all gets of a key; returns them."""
        calls = list(self._of_key.pop(key, ()))
        for session, ticket in calls:
            self._drop(session, ticket)
        self._count(key, -len(calls))
        return calls

    def cancel(self, session: int, ticket: int) -> None:
        """Remove one get, if it waits."""
        key = self._of_session.get(session, {}).get(ticket)
        if key is None:
            return
        self._drop(session, ticket)
        calls = self._of_key[key]
        del calls[session, ticket]
        if not calls:
            del self._of_key[key]
        self._count(key, -1)

    def of_session(self, session: int) -> list[tuple[int, str]]:
        """Return ticket and key of all of a session."""
        return list(self._of_session.get(session, {}).items())

    def close_session(self, session: int) -> None:
        """Remove all gets of a session."""
        for ticket in list(self._of_session.get(session, ())):
            self.cancel(session, ticket)

    def _drop(self, session: int, ticket: int) -> None:
        tickets = self._of_session[session]
        del tickets[ticket]
        if not tickets:
            del self._of_session[session]

    def _count(self, key: str, by: int) -> None:
        self.count += by
        self.used_bytes += by * self.cost(key)
