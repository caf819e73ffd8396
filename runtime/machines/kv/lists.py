"""Replies to `list`, a message at a time: the sessions take turns, and the lists of one session follow each other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ....transport.wire.services import Items, KeyValue
from .table import Stretch

_ITEMS_MAX = 4096
"""Of one message: no other call is served while it is built."""

_ITEMS_BYTES = 1024 * 1024
"""Of one message, likewise; the last item may go beyond."""


class _List:
    __slots__ = ("stretch", "ticket")

    def __init__(self, ticket: int, stretch: Stretch) -> None:
        self.ticket = ticket
        self.stretch = stretch


class Lists:
    """Unfinished replies. Each is a snapshot of the moment of its call: later calls change nothing in it."""

    def __init__(self) -> None:
        self._of_session: dict[int, deque[_List]] = {}

    def add(self, session: int, ticket: int, stretch: Stretch) -> None:
        """Add a call and its snapshot."""
        self._of_session.setdefault(session, deque()).append(_List(ticket, stretch))

    def count_of(self, session: int) -> int:
        """Return the number of unfinished lists of a session."""
        return len(self._of_session.get(session, ()))

    def next_session(self, has_room: Callable[[int], bool]) -> int | None:
        """Return the next session in turn that has room, or `None`."""
        return next((session for session in self._of_session if has_room(session)), None)

    def next(self, session: int) -> Items:
        """Return the next message for a session, which then goes to the end of the queue."""
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
        """Drop one list, if it is unfinished."""
        lists = self._of_session.get(session)
        if lists is None:
            return
        left = deque(each for each in lists if each.ticket != ticket)
        if left:
            self._of_session[session] = left
        else:
            del self._of_session[session]

    def close_session(self, session: int) -> None:
        """Drop all lists of a session."""
        self._of_session.pop(session, None)
