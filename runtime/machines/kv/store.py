"""The key-value store of a job: one order of calls, that of `handle`, which makes it linearizable.

All state lies in plain dictionaries. The store itself holds at most `max_bytes`: keys, values and what the bookkeeping
takes for each key and directory; nothing is ever evicted. Gets that wait, and watches, have bounds of their own.

The empty key is a key like any other; as a prefix it is the whole store, so that `list("")` and `watch("")` see every
key. `delete("")` deletes that one key only, as in the original: a prefix that is empty by mistake must not cost a job
all its keys.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import Any

from ....transport.wire.services import (
    CancelCall,
    CompareAndSet,
    DeleteKeys,
    Done,
    GetKey,
    IncrementKey,
    KeyChange,
    ListKeys,
    MoreChanges,
    Number,
    Refusal,
    ServiceReply,
    SetKey,
    Value,
    WatchKeys,
)
from . import refusals as refusals
from .keys import bytes_of, key_fault, normalize, value_fault
from .lists import Lists
from .pending_gets import PendingGets
from .removals import Removed
from .table import Stretch, Table
from .watches import Watches, WatchLimits

KeyValueRequest = (
    SetKey | GetKey | ListKeys | DeleteKeys | IncrementKey | CompareAndSet | WatchKeys | MoreChanges | CancelCall
)
Replies = list[tuple[int, ServiceReply]]
"""Sessions, and what to answer in them."""

_KEY_BYTES = 256
"""Memory of a key beside its text and its value: an estimate, on the high side."""

_WAITING_BYTES_MAX = 128 * 1024 * 1024
"""Of all pending gets: 200,000, or 40 of each client of a large job."""

_BLOCKS_FREED = 16
"""At a time: freeing a large directory at once would hold up every other call."""

_NUMBER_BYTES_MAX = 64
"""Of the text of a number: 19 digits and a sign, and room for white space and leading zeros."""

_NUMBER = re.compile(rb"\s*[+-]?[0-9]+\s*")
_INTEGER_MIN, _INTEGER_MAX = -(2**63), 2**63 - 1
_WATCH_LIMITS = WatchLimits()


class StoreMachine:
    """The store; takes one call after the other.

    Args:
        max_bytes: what it may hold; the option `kv_max_bytes`.
        watch_limits: what one watch may hold.

    Attributes:
        used_bytes: memory in use.
    """

    def __init__(self, max_bytes: int, watch_limits: WatchLimits = _WATCH_LIMITS) -> None:
        self.used_bytes = 0
        self._max_bytes = max_bytes
        self._table = Table()
        self._lists = Lists()
        self._garbage: deque[Stretch | Removed] = deque()
        self._revision = 0
        self._pending = PendingGets()
        self._watches = Watches(watch_limits, self._free)

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self._table)

    def handle(self, session: int, request: KeyValueRequest) -> Replies:
        """Take in one request of a session; returns the replies.

        Tickets are a session's own; one that is used again while its call is open ends that call.
        """
        return _HANDLERS[type(request)](self, session, request)

    def close_session(self, session: int) -> None:
        """Drop the pending gets, lists and watches of a session that has ended."""
        self._pending.close_session(session)
        self._watches.close_session(session)
        self._lists.close_session(session)

    def give_up_waiting(self, session: int) -> Replies:
        """End the pending gets of a session: no other client is left that could set their keys."""
        waiting = self._pending.of_session(session)
        self._pending.close_session(session)
        return [(session, refusals.nobody_left(ticket, key)) for ticket, key in waiting]

    # Calls on one key.

    def _get(self, session: int, request: GetKey) -> Replies:
        key = normalize(request.key)
        value = self._table.get(key)
        if value is None and request.wait:
            return self._wait(session, request.ticket, key)
        return [(session, Value(request.ticket, value))]

    def _wait(self, session: int, ticket: int, key: str) -> Replies:
        if (fault := key_fault(key)) is not None:
            return [(session, refusals.faulty(ticket, fault))]
        self._forget(session, ticket)
        if self._pending.used_bytes + self._pending.cost(key) > _WAITING_BYTES_MAX:
            return [(session, refusals.too_many_waiting(ticket, key, self._pending.count, _WAITING_BYTES_MAX))]
        self._pending.add(session, ticket, key)
        return []

    def _set(self, session: int, request: SetKey) -> Replies:
        key = normalize(request.key)
        held = self._table.get(key)
        if held is not None and not request.overwrite:
            return [(session, refusals.key_exists(request.ticket, key, len(held)))]
        return self._put(session, key, held, request.value, Done(request.ticket))

    def _compare_and_set(self, session: int, request: CompareAndSet) -> Replies:
        key = normalize(request.key)
        held = self._table.get(key)
        if held != request.expected:
            return [(session, Number(request.ticket, 0))]
        return self._put(session, key, held, request.value, Number(request.ticket, 1))

    def _increment(self, session: int, request: IncrementKey) -> Replies:
        key, by, ticket = normalize(request.key), request.by, request.ticket
        if (fault := key_fault(key)) is not None:
            return [(session, refusals.faulty(ticket, fault))]
        held = self._table.get(key)
        number = 0 if held is None else _number(held)
        if number is None:
            return [(session, refusals.not_a_number(ticket, key, held or b""))]
        total = number + by
        if not (_INTEGER_MIN <= by <= _INTEGER_MAX and _INTEGER_MIN <= total <= _INTEGER_MAX):
            return [(session, refusals.out_of_range(ticket, key, number, by))]
        if by == 0:
            return [(session, Number(ticket, number))]
        return self._put(session, key, held, b"%d" % total, Number(ticket, total))

    def _put(self, session: int, key: str, held: bytes | None, value: bytes, reply: Done | Number) -> Replies:
        """Set a key that holds `held`, if there is room; answers pending gets and watches."""
        fault = key_fault(key) or value_fault(key, len(value))
        if fault is not None:
            return [(session, refusals.faulty(reply.ticket, fault))]
        more = _KEY_BYTES + bytes_of(key) + len(value) if held is None else len(value) - len(held)
        if more > 0 and self.used_bytes + more > self._max_bytes:
            return [(session, self._over_quota(reply.ticket, key, more))]
        self.used_bytes += more
        self._table.put(key, value)
        self._revision += 1
        replies: Replies = [(session, reply)]
        if held is None and self._pending.count:
            replies += [(waiter, Value(ticket, value)) for waiter, ticket in self._pending.pop(key)]
        if self._watches:
            replies += self._watches.publish(KeyChange(key, value, self._revision), len(held or b""))
        return replies

    def _over_quota(self, ticket: int, key: str, more: int) -> Refusal:
        return refusals.over_quota(ticket, key, more, self.used_bytes, len(self._table), self._max_bytes)

    # Calls on a directory.

    def _list(self, session: int, request: ListKeys) -> Replies:
        self._lists.add(session, request.ticket, self._table.below(normalize(request.prefix)))
        # Short ones are answered at once; of several of one session, each when its turn comes.
        return self._next_items(session) if self._lists.count_of(session) == 1 else []

    def _next_items(self, session: int) -> Replies:
        return [(session, self._lists.next(session))]

    def _delete(self, session: int, request: DeleteKeys) -> Replies:
        key = normalize(request.key)
        seen = self._seen_removed(key) if self._watches else None
        before = len(self._table)
        if self._table.get(key) is not None:
            self.used_bytes -= _KEY_BYTES + bytes_of(key) + self._table.remove(key)
        if key:
            removed = self._table.cut(key)
            self.used_bytes -= _KEY_BYTES * len(removed) + removed.key_bytes + removed.value_bytes
            self._free(removed)
        self._revision += before - len(self._table)
        replies: Replies = [(session, Done(request.ticket))]
        return replies + self._watches.publish_removed(key, *seen, self._revision) if seen is not None else replies

    def _free(self, garbage: Stretch | Removed) -> None:
        """Free some of it now, and the rest in `work`."""
        if garbage.drop(_BLOCKS_FREED):
            self._garbage.append(garbage)

    def _seen_removed(self, key: str) -> tuple[Removed, dict[str, Removed]]:
        """Return the keys that are removed with `key`, and those of them at or below each watched prefix."""
        if not key:
            return Removed(key, self._table.get(key), Stretch([], 0, 0)), {}
        return self._removed(key), {prefix: self._removed(prefix) for prefix in self._watches.prefixes_below(key)}

    def _removed(self, key: str) -> Removed:
        return Removed(key, self._table.get(key), self._table.below(key))

    def _watch(self, session: int, request: WatchKeys) -> Replies:
        prefix, ticket = normalize(request.prefix), request.ticket
        if (fault := key_fault(prefix)) is not None:
            return [(session, refusals.faulty(ticket, fault))]
        self._forget(session, ticket)
        own = self._table.get(prefix)
        return self._watches.open(session, ticket, prefix, own, self._table.below(prefix), self._revision)

    # Long calls.

    def has_work(self, has_room: Callable[[int], bool]) -> bool:
        """Return whether `work` has something to do."""
        return bool(self._garbage) or self._lists.next_session(has_room) is not None

    def work(self, has_room: Callable[[int], bool]) -> Replies:
        """Continue long calls for some milliseconds; other requests may come in between.

        A list is of the moment at which it was begun, whatever is set or deleted before it is told to its end.

        Args:
            has_room: whether a session takes more replies by now.
        """
        if self._garbage and not self._garbage[0].drop(_BLOCKS_FREED):
            self._garbage.popleft()
        session = self._lists.next_session(has_room)
        return [] if session is None else self._next_items(session)

    # Calls on calls.

    def _more(self, session: int, request: MoreChanges) -> Replies:
        return self._watches.more(session, request.ticket, request.count)

    def _cancel(self, session: int, request: CancelCall) -> Replies:
        self._forget(session, request.ticket)
        return []

    def _forget(self, session: int, ticket: int) -> None:
        self._lists.cancel(session, ticket)
        self._pending.cancel(session, ticket)
        self._watches.cancel(session, ticket)


def _number(value: bytes) -> int | None:
    """Return the 64-bit integer whose decimal text a value is, white space round it allowed; or `None`."""
    if len(value) > _NUMBER_BYTES_MAX or _NUMBER.fullmatch(value) is None:
        return None
    number = int(value)
    return number if _INTEGER_MIN <= number <= _INTEGER_MAX else None


_HANDLERS: dict[type, Callable[[StoreMachine, int, Any], Replies]] = {
    SetKey: StoreMachine._set,
    GetKey: StoreMachine._get,
    ListKeys: StoreMachine._list,
    DeleteKeys: StoreMachine._delete,
    IncrementKey: StoreMachine._increment,
    CompareAndSet: StoreMachine._compare_and_set,
    WatchKeys: StoreMachine._watch,
    MoreChanges: StoreMachine._more,
    CancelCall: StoreMachine._cancel,
}
