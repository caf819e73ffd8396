"""Linearizability checker: is there one order of all calls that explains the results of concurrent clients?

`History` records calls as they begin and end. `check` looks for an order in which every call takes effect between its
begin and its end, and all results are those of a plain dictionary. The search is that of Wing and Gong ("Testing and
verifying concurrent objects", 1993) with Lowe's memory of what was tried ("Testing for linearizability", 2017), as in
Porcupine: keys that no call has in common are searched apart, which is sound because linearizability is local.

A call without an end, such as the last of a client that crashed, may have taken effect at any time after its begin, or
never.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

State = dict[str, bytes]


@dataclass(frozen=True, slots=True)
class Refused:
    """The result of a call that the store has refused: the key exists, or holds no number."""


@dataclass(frozen=True, slots=True)
class Get:
    """Wait for a key; the result is its value."""

    key: str


@dataclass(frozen=True, slots=True)
class TryGet:
    """Read a key; the result is its value, or `None`."""

    key: str


@dataclass(frozen=True, slots=True)
class Set:
    """Set a key; the result is `None`, or `Refused()` where it exists and is not to be overwritten."""

    key: str
    value: bytes
    overwrite: bool = False


@dataclass(frozen=True, slots=True)
class Increment:
    """Add to a number; the result is the sum, or `Refused()`."""

    key: str
    by: int = 1


@dataclass(frozen=True, slots=True)
class CompareAndSet:
    """Set a key where it holds what is expected; the result is whether it did."""

    key: str
    expected: bytes | None
    value: bytes


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a key and all below it, the empty one alone; the result is `None`."""

    key: str


@dataclass(frozen=True, slots=True)
class List:
    """Read all keys below a prefix; the result is a dict."""

    key: str


Operation = Get | TryGet | Set | Increment | CompareAndSet | Delete | List
Result = bytes | int | bool | dict[str, bytes] | Refused | None

_READS = (Get, TryGet, List)
_NEVER = 2**63


@dataclass(slots=True)
class Call:
    """One call of one client; `began` and `ended` number the events of the history."""

    client: object
    operation: Operation
    began: int
    ended: int = _NEVER
    result: Result = None

    def __str__(self) -> str:
        if self.ended == _NEVER:
            return f"[{self.began:5} ..      ] client {self.client}: {self.operation} never ended"
        return f"[{self.began:5} .. {self.ended:5}] client {self.client}: {self.operation} -> {self.result!r}"


@dataclass(slots=True)
class History:
    """What the clients called and got, in the order in which it happened. Keys are to be in their normal form."""

    calls: list[Call] = field(default_factory=list)
    events: int = 0

    def invoke(self, client: object, operation: Operation) -> int:
        """Note that a call begins; returns its number."""
        self.events += 1
        self.calls.append(Call(client, operation, self.events))
        return len(self.calls) - 1

    def complete(self, number: int, result: Result) -> None:
        """Note that a call has ended."""
        self.events += 1
        call = self.calls[number]
        assert call.ended == _NEVER, f"{call} ends twice"
        call.ended, call.result = self.events, result


@dataclass(frozen=True, slots=True)
class Violation:
    """No order exists: the keys, the calls that the best attempt has ordered, and those that fit nowhere after them."""

    keys: tuple[str, ...]
    placed: tuple[Call, ...]
    stuck: tuple[Call, ...]
    text: str

    def __str__(self) -> str:
        return self.text


def check(history: History) -> Violation | None:
    """Return where a history is not linearizable; `None` where it is."""
    for keys, calls in _groups(history.calls):
        violation = _search(keys, calls)
        if violation is not None:
            return violation
    return None


def apply(state: State, operation: Operation) -> tuple[Result, State] | None:
    """Return the result of an operation on a state, and the next state; `None` where it has to wait."""
    held = state.get(operation.key)
    match operation:
        case Get():
            return None if held is None else (held, state)
        case TryGet():
            return held, state
        case Set(key, value, overwrite):
            return (Refused(), state) if held is not None and not overwrite else (None, {**state, key: value})
        case CompareAndSet(key, expected, value):
            return (True, {**state, key: value}) if held == expected else (False, state)
        case Increment(key, by):
            return _increment(state, key, by)
        case Delete(key):
            kept = {other for other in state if other != key and not (key and is_below(other, key))}
            return None, {other: value for other, value in state.items() if other in kept}
        case List(key):
            return {other: value for other, value in state.items() if is_below(other, key)}, state


def _increment(state: State, key: str, by: int) -> tuple[Result, State]:
    try:
        total = int(state.get(key, b"0")) + by
    except ValueError:
        return Refused(), state
    return total, {**state, key: b"%d" % total} if by else state


def is_below(key: str, directory: str) -> bool:
    """Return whether a key lies below a directory; the empty one is the root."""
    return key.startswith(f"{directory}/") if directory else key != ""


def _groups(calls: Iterable[Call]) -> list[tuple[tuple[str, ...], list[Call]]]:
    """Return the calls apart that have no key in common, with their keys; those that say nothing are left out."""
    telling = [call for call in calls if call.ended != _NEVER or not isinstance(call.operation, _READS)]
    head = {call.operation.key: call.operation.key for call in telling}

    def find(key: str) -> str:
        while head[key] != key:
            head[key] = key = head[head[key]]
        return key

    spans = {call.operation.key for call in telling if isinstance(call.operation, List)}
    spans |= {call.operation.key for call in telling if isinstance(call.operation, Delete)} - {""}
    for directory in spans:
        for key in head:
            if is_below(key, directory):
                head[find(key)] = find(directory)
    groups: dict[str, list[Call]] = {}
    for call in telling:
        groups.setdefault(find(call.operation.key), []).append(call)
    return [(tuple(sorted({call.operation.key for call in group})), group) for group in groups.values()]


@dataclass(slots=True)
class _Situation:
    """Some calls have their place in an order: which of those that ended, and which of the others, as bits."""

    state: State
    ended: int = 0
    unended: int = 0
    last: Call | None = None
    before: _Situation | None = None

    def order(self) -> list[Call]:
        """Return the calls that have their place."""
        calls: list[Call] = []
        situation: _Situation | None = self
        while situation is not None and situation.last is not None:
            calls.append(situation.last)
            situation = situation.before
        return calls[::-1]


class _Search:
    """The calls of one group, and what was tried to find an order of them."""

    def __init__(self, calls: list[Call]) -> None:
        self.ended = [call for call in calls if call.ended != _NEVER]
        self.unended = [call for call in calls if call.ended == _NEVER]
        self._seen: dict[tuple[int, tuple[tuple[str, bytes], ...]], list[int]] = {}

    def is_new(self, situation: _Situation) -> bool:
        """Note a situation; returns whether it is worth a try.

        It is not where the same was tried, with no more of the calls that never ended: those that are left need not be
        used.
        """
        unended = situation.unended
        seen = self._seen.setdefault((situation.ended, tuple(sorted(situation.state.items()))), [])
        if any(other & ~unended == 0 for other in seen):
            return False
        seen[:] = [other for other in seen if unended & ~other]
        seen.append(unended)
        return True

    def due(self, situation: _Situation) -> int:
        """Return when the first call ends that has no place yet: all that begin later stand behind it."""
        return min((call.ended for _, call in self._left(situation)), default=_NEVER)

    def following(self, situation: _Situation) -> Iterator[_Situation]:
        """Yield the situations that come of one by one more call."""
        due = self.due(situation)
        for number, call in self._left(situation):
            if call.began < due and (outcome := _outcome(situation.state, call)) is not None:
                yield _Situation(outcome, situation.ended | 1 << number, situation.unended, call, situation)
        alike: set[Operation] = set()
        for number, call in enumerate(self.unended):
            if call.began > due:
                break
            # Of those that are the same, the one that began first is placed first.
            if situation.unended >> number & 1 or call.operation in alike:
                continue
            alike.add(call.operation)
            if (outcome := _outcome(situation.state, call)) is not None:
                yield _Situation(outcome, situation.ended, situation.unended | 1 << number, call, situation)

    def _left(self, situation: _Situation) -> Iterator[tuple[int, Call]]:
        """Yield the calls that have no place yet and may be next, and perhaps some more."""
        first = (~situation.ended & situation.ended + 1).bit_length() - 1
        due = _NEVER
        for number in range(first, len(self.ended)):
            if not situation.ended >> number & 1:
                call = self.ended[number]
                if call.began > due:
                    return
                due = min(due, call.ended)
                yield number, call


def _search(keys: tuple[str, ...], calls: list[Call]) -> Violation | None:
    """Try what has most calls placed first, and of that what used the fewest calls that never ended."""
    search = _Search(calls)
    best = start = _Situation({})
    numbers = itertools.count()
    queue = [(0, 0, next(numbers), start)]
    search.is_new(start)
    while queue:
        _, _, _, situation = heapq.heappop(queue)
        if situation.ended.bit_count() == len(search.ended):
            return None
        if situation.ended.bit_count() > best.ended.bit_count():
            best = situation
        for after in search.following(situation):
            if search.is_new(after):
                urgency = (-after.ended.bit_count(), after.unended.bit_count(), next(numbers))
                heapq.heappush(queue, (*urgency, after))
    placed, due = best.order(), search.due(best)
    stuck = [call for number, call in enumerate(search.ended) if call.began < due and not best.ended >> number & 1]
    return Violation(keys, tuple(placed), tuple(stuck), _told(keys, calls, placed, stuck))


def _outcome(state: State, call: Call) -> State | None:
    """Return what a call leaves, if it can take effect now."""
    applied = apply(state, call.operation)
    if applied is None:
        return None
    result, after = applied
    return after if call.ended == _NEVER or (result == call.result and type(result) is type(call.result)) else None


def _told(keys: tuple[str, ...], calls: list[Call], placed: list[Call], stuck: list[Call]) -> str:
    return "\n".join(
        [
            f"not linearizable: {len(calls)} calls on {', '.join(map(repr, keys))}",
            f"an order for {len(placed)} of them was found, which ends with",
            *(f"  {call}" for call in placed[-10:]),
            "of these none can follow",
            *(f"  {call}" for call in stuck),
        ]
    )
