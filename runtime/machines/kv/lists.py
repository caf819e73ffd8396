"""The lists that are being told: each session's one after the other, all sessions in turn, a message at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ....transport.wire.services import Items, KeyValue
from .table import Stretch

_ITEMS_MAX = 4096
_ITEMS_BYTES = 1024 * 1024
"""Of one message; the last item may go beyond."""


class _List:
    __slots__ = ("stretch", "ticket")

    def __init__(self, ticket: int, stretch: Stretch) -> None:
        self.ticket = ticket
        self.stretch = stretch


class Lists:
    """Each is of the moment at which it was asked for: later calls of its client change nothing in it."""

    def __init__(self) -> None:
        self._of_session: dict[int, deque[_List]] = {}

    def add(self, session: int, ticket: int, stretch: Stretch) -> None:
        """Take in a call, with what it is to be told."""
        self._of_session.setdefault(session, deque()).append(_List(ticket, stretch))

    def count_of(self, session: int) -> int:
        """Return how many a session has."""
        return len(self._of_session.get(session, ()))

    def next_session(self, has_room: Callable[[int], bool]) -> int | None:
        """Return whose turn it is, of those that have room."""
        return next((session for session in self._of_session if has_room(session)), None)

    def next(self, session: int) -> Items:
        """Return the next message for a session, which then is the last of all in turn."""
        lists = self._of_session.pop(session)
        current = lists[0]
        items: list[KeyValue] = []
        size = 0
        while current.stretch and size < _ITEMS_BYTES and len(items) < _ITEMS_MAX:
            key, value = current.stretch.popleft()
            items.append(KeyValue(key, value))
            size += len(key) + len(value)
        is_last = not current.stretch
        if is_last:
            lists.popleft()
        if lists:
            self._of_session[session] = lists
        return Items(current.ticket, tuple(items), is_last)

    def cancel(self, session: int, ticket: int) -> None:
        """Forget one, if there is one."""
        lists = self._of_session.get(session)
        if lists is None:
            return
        left = deque(each for each in lists if each.ticket != ticket)
        if left:
            self._of_session[session] = left
        else:
            del self._of_session[session]

    def close_session(self, session: int) -> None:
        """Forget all of a session."""
        self._of_session.pop(session, None)
