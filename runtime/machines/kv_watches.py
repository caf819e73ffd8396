"""The watches of the key-value store: what each has yet to tell, and how much of it may be on its way.

A watch begins with a snapshot: all keys of its prefix at one revision. Then follow all later changes, in order, each
once. At most `credit` changes are on their way to a reader that has not said that it took them. What comes meanwhile is
kept; a watch that has to keep more than its backlog when another change comes is ended. One call may add more changes
than that: a delete of many keys. So a slow reader holds no more than its backlog and the changes of one call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ...transport.service_messages import Changes, KeyChange, ServiceReply
from . import kv_refusals as refusals
from .kv_keys import bytes_of, directories_of
from .kv_table import Stretch

__all__ = ["WatchLimits", "Watches"]

_CHANGE_BYTES = 160
"""What a change takes beside its key and value."""

Replies = list[tuple[int, ServiceReply]]


@dataclass(frozen=True, slots=True)
class WatchLimits:
    """What one watch may hold.

    Attributes:
        credit: changes on their way to the reader.
        credit_bytes: their bytes; the last one may go beyond.
        backlog: changes kept for the reader.
        backlog_bytes: their bytes, and those of replaced values that are still to be told in the snapshot.
        message: changes in one message.
        message_bytes: their bytes; the last one may go beyond.
        watches: of one session.
    """

    credit: int = 1024
    credit_bytes: int = 8 * 1024 * 1024
    backlog: int = 262_144
    backlog_bytes: int = 64 * 1024 * 1024
    message: int = 256
    message_bytes: int = 1024 * 1024
    watches: int = 1024


class _Watch:
    __slots__ = ("backlog", "backlog_bytes", "prefix", "sent", "sent_bytes", "session", "snapshot", "ticket")

    def __init__(self, session: int, ticket: int, prefix: str, snapshot: _Snapshot) -> None:
        self.session = session
        self.ticket = ticket
        self.prefix = prefix
        self.snapshot: _Snapshot | None = snapshot
        self.backlog: deque[KeyChange] = deque()
        self.backlog_bytes = 0
        self.sent: deque[int] = deque()
        self.sent_bytes = 0

    def append(self, change: KeyChange, replaced: int) -> None:
        self.backlog.append(change)
        self.backlog_bytes += _size(change)
        if self.snapshot is not None:
            self.snapshot.replaced_bytes += replaced

    def kept_bytes(self) -> int:
        return self.backlog_bytes + (0 if self.snapshot is None else self.snapshot.replaced_bytes)

    def take(self, limits: WatchLimits) -> Changes | None:
        """Return the next message; `None` where there is nothing to tell, or no credit."""
        snapshot = self.snapshot
        if snapshot is None:
            sent_bytes = self.sent_bytes
            changes = self._send(self.backlog, limits)
            self.backlog_bytes -= self.sent_bytes - sent_bytes
            return Changes(self.ticket, tuple(changes)) if changes else None
        changes = self._send(snapshot, limits)
        if not snapshot:
            self.snapshot = None
        return Changes(self.ticket, tuple(changes), not snapshot) if changes or not snapshot else None

    def _send(self, source: deque[KeyChange] | _Snapshot, limits: WatchLimits) -> list[KeyChange]:
        changes: list[KeyChange] = []
        room = min(limits.message, limits.credit - len(self.sent))
        bytes_max = min(self.sent_bytes + limits.message_bytes, limits.credit_bytes)
        while source and len(changes) < room and self.sent_bytes < bytes_max:
            change = source.popleft()
            size = _size(change)
            changes.append(change)
            self.sent.append(size)
            self.sent_bytes += size
        return changes

    def taken(self, count: int) -> None:
        for _ in range(min(count, len(self.sent))):
            self.sent_bytes -= self.sent.popleft()


class _Snapshot:
    """What is left of a snapshot; the values are those of the store, not copies."""

    __slots__ = ("own", "replaced_bytes", "revision", "stretch")

    def __init__(self, own: tuple[str, bytes] | None, stretch: Stretch, revision: int) -> None:
        self.own = own
        self.stretch = stretch
        self.revision = revision
        self.replaced_bytes = 0

    def __len__(self) -> int:
        return len(self.stretch) + (self.own is not None)

    def popleft(self) -> KeyChange:
        (key, value), self.own = self.own or self.stretch.popleft(), None
        return KeyChange(key, value, self.revision)


class Watches:
    """All watches, by the prefix that they follow and by session."""

    def __init__(self, limits: WatchLimits) -> None:
        self._limits = limits
        self._of_prefix: dict[str, dict[_Watch, None]] = {}
        self._of_session: dict[int, dict[int, _Watch]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._of_session.values()))

    def __bool__(self) -> bool:
        return bool(self._of_session)

    def open(
        self, session: int, ticket: int, prefix: str, own: bytes | None, stretch: Stretch, revision: int
    ) -> Replies:
        """Begin a watch, with its prefix, where that is a key that has a value, and all below it."""
        watches = self._of_session.get(session, {})
        if len(watches) >= self._limits.watches:
            return [(session, refusals.too_many_watches(ticket, prefix, self._limits.watches))]
        watch = _Watch(session, ticket, prefix, _Snapshot(None if own is None else (prefix, own), stretch, revision))
        self._of_session.setdefault(session, {})[ticket] = watch
        self._of_prefix.setdefault(prefix, {})[watch] = None
        return self._tell(watch)

    def publish(self, changes: Sequence[tuple[KeyChange, int]]) -> Replies:
        """Tell the changes that one call has made, each with how many bytes the value had that it replaced."""
        touched: dict[_Watch, bool] = {}
        for change, replaced in changes:
            for path in directories_of(change.key):
                for watch in self._of_prefix.get(path, ()):
                    has_room = touched.get(watch)
                    if has_room is None:
                        has_room = touched[watch] = self._has_room(watch)
                    if has_room:
                        watch.append(change, replaced)
        replies: Replies = []
        for watch, had_room in touched.items():
            replies += self._tell(watch) if had_room else self._end(watch)
        return replies

    def more(self, session: int, ticket: int, count: int) -> Replies:
        """Note that a reader has taken `count` changes."""
        watch = self._of_session.get(session, {}).get(ticket)
        if watch is None:
            return []
        watch.taken(count)
        return self._tell(watch)

    def cancel(self, session: int, ticket: int) -> None:
        """Forget a watch, if there is one."""
        watch = self._of_session.get(session, {}).get(ticket)
        if watch is not None:
            self._forget(watch)

    def close_session(self, session: int) -> None:
        """Forget all watches of a session."""
        for watch in list(self._of_session.get(session, {}).values()):
            self._forget(watch)

    def _tell(self, watch: _Watch) -> Replies:
        replies: Replies = []
        while (message := watch.take(self._limits)) is not None:
            replies.append((watch.session, message))
        return replies

    def _has_room(self, watch: _Watch) -> bool:
        return len(watch.backlog) < self._limits.backlog and watch.kept_bytes() < self._limits.backlog_bytes

    def _end(self, watch: _Watch) -> Replies:
        self._forget(watch)
        waiting = (len(watch.backlog), watch.kept_bytes())
        allowed = (self._limits.backlog, self._limits.backlog_bytes)
        return [(watch.session, refusals.too_slow(watch.ticket, watch.prefix, waiting, allowed))]

    def _forget(self, watch: _Watch) -> None:
        watches = self._of_session[watch.session]
        del watches[watch.ticket]
        if not watches:
            del self._of_session[watch.session]
        followers = self._of_prefix[watch.prefix]
        del followers[watch]
        if not followers:
            del self._of_prefix[watch.prefix]


def _size(change: KeyChange) -> int:
    return _CHANGE_BYTES + bytes_of(change.key) + (0 if change.value is None else len(change.value))
