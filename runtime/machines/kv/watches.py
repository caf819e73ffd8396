"""Watches of the key-value store: backlogs, snapshots, and credit for changes on their way.

A watch begins with a snapshot: all keys of its prefix at one revision. Then follow all later changes, in order, each
once. At most `credit` changes are on their way to a reader that has not said that it took them. What comes meanwhile is
kept; a watch that has to keep more than its backlog when another change comes is ended. One call may add more changes
than that: a delete of many keys, which is kept as one and made changes as they are told. So a slow reader holds no more
than its backlog and the changes of one call, and no call takes the time of all keys that it removes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from ....transport.wire.services import Changes, KeyChange, ServiceReply
from . import refusals as refusals
from .keys import bytes_of, directories_of
from .removals import Removal, Removed
from .table import Stretch

_CHANGE_BYTES = 160
"""Bytes of a change beside its key and value."""

Replies = list[tuple[int, ServiceReply]]


@dataclass(frozen=True, slots=True)
class WatchLimits:
    """Bounds of one watch.

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


class _Backlog:
    """Changes in their order, those of one delete together."""

    __slots__ = ("_done", "_entries", "count")

    def __init__(self, done: Callable[[Removed], None]) -> None:
        self._entries: deque[KeyChange | Removal] = deque()
        self._done = done
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def append(self, change: KeyChange) -> None:
        self._entries.append(change)
        self.count += 1

    def append_removal(self, removal: Removal) -> None:
        self._entries.append(removal)
        self.count += removal.left

    def popleft(self) -> KeyChange:
        self.count -= 1
        first = self._entries[0]
        if isinstance(first, KeyChange):
            self._entries.popleft()
            return first
        change = first.popleft()
        if not first.left:
            self._entries.popleft()
            self._done(first.removed)
        return change

    def clear(self) -> None:
        for entry in self._entries:
            if isinstance(entry, Removal):
                self._done(entry.removed)
        self._entries.clear()
        self.count = 0


class _Watch:
    __slots__ = ("backlog", "backlog_bytes", "prefix", "sent", "sent_bytes", "session", "snapshot", "ticket")

    def __init__(self, session: int, ticket: int, prefix: str, snapshot: _Snapshot, backlog: _Backlog) -> None:
        self.session = session
        self.ticket = ticket
        self.prefix = prefix
        self.snapshot: _Snapshot | None = snapshot
        self.backlog = backlog
        self.backlog_bytes = 0
        self.sent: deque[int] = deque()
        self.sent_bytes = 0

    def append(self, change: KeyChange, replaced: int) -> None:
        self.backlog.append(change)
        self.backlog_bytes += _size(change)
        if self.snapshot is not None:
            self.snapshot.replaced_bytes += replaced

    def append_removed(self, removed: Removed, revision: int) -> None:
        self.backlog.append_removal(Removal(removed, revision))
        self.backlog_bytes += removed.key_bytes + _CHANGE_BYTES * removed.count
        if self.snapshot is not None:
            self.snapshot.replaced_bytes += removed.value_bytes

    def kept_bytes(self) -> int:
        return self.backlog_bytes + (0 if self.snapshot is None else self.snapshot.replaced_bytes)

    def take(self, limits: WatchLimits) -> Changes | None:
        """Return the next message; `None` without changes or without credit."""
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

    def _send(self, source: _Backlog | _Snapshot, limits: WatchLimits) -> list[KeyChange]:
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
    """The rest of a snapshot; its values are those of the store, not copies."""

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
    """All watches, by prefix and by session.

    Args:
        limits: of each.
        let_go: told of what was removed once all have told it, or are gone.
    """

    def __init__(self, limits: WatchLimits, let_go: Callable[[Removed], None]) -> None:
        self._limits = limits
        self._let_go = let_go
        self._prefixes: list[str] = []
        self._of_prefix: dict[str, dict[_Watch, None]] = {}
        self._of_session: dict[int, dict[int, _Watch]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._of_session.values()))

    def __bool__(self) -> bool:
        return bool(self._of_session)

    def open(
        self, session: int, ticket: int, prefix: str, own: bytes | None, stretch: Stretch, revision: int
    ) -> Replies:
        """Begin a watch with a snapshot: the key `prefix` itself, where it is set, and all keys below it."""
        watches = self._of_session.get(session, {})
        if len(watches) >= self._limits.watches:
            return [(session, refusals.too_many_watches(ticket, prefix, self._limits.watches))]
        snapshot = _Snapshot(None if own is None else (prefix, own), stretch, revision)
        watch = _Watch(session, ticket, prefix, snapshot, _Backlog(self._done))
        self._of_session.setdefault(session, {})[ticket] = watch
        if prefix not in self._of_prefix:
            self._of_prefix[prefix] = {}
            insort(self._prefixes, prefix)
        self._of_prefix[prefix][watch] = None
        return self._tell(watch)

    def publish(self, change: KeyChange, replaced: int) -> Replies:
        """Publish a change; the value that it replaced had `replaced` bytes."""
        replies: Replies = []
        for path in directories_of(change.key):
            for watch in list(self._of_prefix.get(path, ())):
                if self._has_room(watch):
                    watch.append(change, replaced)
                    replies += self._tell(watch)
                else:
                    replies += self._end(watch)
        return replies

    def prefixes_below(self, key: str) -> list[str]:
        """Return the watched prefixes within a directory."""
        first, end = (bisect_left(self._prefixes, key + after) for after in "/0")  # 0 comes after the slash
        return self._prefixes[first:end]

    def publish_removed(self, key: str, removed: Removed, below: dict[str, Removed], revision: int) -> Replies:
        """Publish the removal of a key and all keys below it; `below` is the part of it for each prefix within."""
        replies: Replies = []
        parts = [*((path, removed) for path in directories_of(key)), *below.items()]
        for seen in (removed, *below.values()):
            seen.readers += 1  # until all have begun
        for path, seen in parts:
            if not seen.count:
                continue
            for watch in list(self._of_prefix.get(path, ())):
                if self._has_room(watch):
                    watch.append_removed(seen, revision)
                    replies += self._tell(watch)
                else:
                    replies += self._end(watch)
        for seen in (removed, *below.values()):
            self._done(seen)
        return replies

    def more(self, session: int, ticket: int, count: int) -> Replies:
        """Give credit: the reader has taken `count` changes."""
        watch = self._of_session.get(session, {}).get(ticket)
        if watch is None:
            return []
        watch.taken(count)
        return self._tell(watch)

    def cancel(self, session: int, ticket: int) -> None:
        """End a watch, if it is open."""
        watch = self._of_session.get(session, {}).get(ticket)
        if watch is not None:
            self._forget(watch)

    def close_session(self, session: int) -> None:
        """End all watches of a session."""
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
        waiting = (len(watch.backlog), watch.kept_bytes())
        self._forget(watch)
        allowed = (self._limits.backlog, self._limits.backlog_bytes)
        return [(watch.session, refusals.too_slow(watch.ticket, watch.prefix, waiting, allowed))]

    def _done(self, removed: Removed) -> None:
        removed.readers -= 1
        if not removed.readers:
            self._let_go(removed)

    def _forget(self, watch: _Watch) -> None:
        watch.backlog.clear()
        watches = self._of_session[watch.session]
        del watches[watch.ticket]
        if not watches:
            del self._of_session[watch.session]
        followers = self._of_prefix[watch.prefix]
        del followers[watch]
        if not followers:
            del self._of_prefix[watch.prefix]
            del self._prefixes[bisect_left(self._prefixes, watch.prefix)]


def _size(change: KeyChange) -> int:
    return _CHANGE_BYTES + bytes_of(change.key) + (0 if change.value is None else len(change.value))
