"""A model of the key-value store of one job: expected results of calls and changes of watches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bringup.transport.wire.services import Changes, KeyChange, ServiceRequest, WatchKeys

from ..lib.kv_operations import operation_of
from ..lib.linearizability import (
    CompareAndSet,
    Delete,
    History,
    Increment,
    Operation,
    Refused,
    Set,
    apply,
    check,
    is_below,
)
from . import bounds

if TYPE_CHECKING:
    from .process import Process


class Watch:
    """One watch of one client: what it has been told is compared with what it must be told, in order, each once.

    Attributes:
        prefix: what is watched.
        ticket: of the call.
    """

    def __init__(self, process: Process, prefix: str) -> None:
        self.prefix = prefix
        self.ticket = 0
        self.is_over = False
        self._process = process
        self._due: list[KeyChange] = []
        self._num_told = 0
        self._num_snapshot: int | None = None
        self._has_snapshot = False

    def begin(self, snapshot: list[KeyChange]) -> None:
        """The store begins it, with these keys."""
        self._due = snapshot
        self._num_snapshot = len(snapshot)
        self._expect_all()

    def expect(self, changes: list[KeyChange]) -> None:
        """The store changes so."""
        was_behind = self.is_behind
        seen = [change for change in changes if change.key == self.prefix or is_below(change.key, self.prefix)]
        self._due += seen
        if seen and not was_behind:
            self._expect_all()

    def tell(self, reply: Changes) -> None:
        """The client is told some."""
        who = f"{self._process.name}, which watches {self.prefix!r},"
        due = self._due[self._num_told : self._num_told + len(reply.changes)]
        assert list(reply.changes) == due, f"{who} is told {reply.changes}, and not {due}"
        self._num_told += len(due)
        if not self._has_snapshot:
            assert self._num_snapshot is not None, f"{who} is told of a watch that has not begun"
            is_whole = self._num_told == self._num_snapshot
            assert reply.ends_snapshot is is_whole, f"{who} is told {self._num_told} of {self._num_snapshot}: {reply}"
            self._has_snapshot = is_whole
        if self.is_behind:
            self._expect_all()

    def end(self) -> None:
        """The client has cancelled it."""
        self.is_over = True

    @property
    def is_behind(self) -> bool:
        """Whether there is something to tell."""
        return not self._has_told(len(self._due))

    def _expect_all(self) -> None:
        number = len(self._due)
        bounds.call_was_made(
            self._process, f"a change below {self.prefix!r}", lambda: self.is_over or self._has_told(number)
        )

    def _has_told(self, number: int) -> bool:
        return self._has_snapshot and self._num_told >= number


class StoreOracle:
    """A model of one job's store, fed with the requests in the order in which the services take them in.

    Attributes:
        history: the calls of all clients, as they see them.
    """

    def __init__(self) -> None:
        self.history = History()
        self._state: dict[str, bytes] = {}
        self._revision = 0
        self._asked: dict[Process, list[Watch]] = {}
        self._watches: list[Watch] = []

    def watch(self, process: Process, prefix: str) -> Watch:
        """A client asks for a watch."""
        watch = Watch(process, prefix)
        self._asked.setdefault(process, []).append(watch)
        return watch

    def served(self, process: Process, request: ServiceRequest) -> None:
        """The services take in a request of a client."""
        if isinstance(request, WatchKeys):
            watch = next(each for each in self._asked[process] if each.ticket == request.ticket)
            watch.begin(list(self._snapshot(watch.prefix)))
            self._watches.append(watch)
        elif (operation := operation_of(request)) is not None and (changes := self._changes(operation)):
            self._watches = [watch for watch in self._watches if not watch.is_over]
            for watch in self._watches:
                watch.expect(changes)

    def check(self) -> None:
        """Check that all that the clients saw is the work of one store with one order of calls."""
        violation = check(self.history)
        assert violation is None, str(violation)

    def _snapshot(self, prefix: str) -> Iterator[KeyChange]:
        for key in sorted(self._state):
            if key == prefix or is_below(key, prefix):
                yield KeyChange(key, self._state[key], self._revision)

    def _changes(self, operation: Operation) -> list[KeyChange]:
        """Change the model; returns what a watch of everything is told."""
        applied = apply(self._state, operation)
        if applied is None or isinstance(applied[0], Refused):
            return []
        before, (result, self._state) = self._state, applied
        if isinstance(operation, Delete):
            removed = sorted(before.keys() - self._state.keys())
            self._revision += len(removed)
            return [KeyChange(key, None, self._revision) for key in removed]
        is_set = isinstance(operation, Set) or (isinstance(operation, CompareAndSet) and result is True)
        if not is_set and not (isinstance(operation, Increment) and operation.by):
            return []
        self._revision += 1
        return [KeyChange(operation.key, self._state[operation.key], self._revision)]
