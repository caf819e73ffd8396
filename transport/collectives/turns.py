"""The order of one client's collectives: each call, from any thread, takes its place when it is made."""

from __future__ import annotations

import asyncio
import concurrent.futures
import enum
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_REASON_CHARACTERS_MAX = 300
"""Of an exception's text in the call of a `Withdrawn`: it fits into a frame with the calls of other clients."""


@dataclass(frozen=True, slots=True, eq=False)
class Contribution:
    """One client's part of a collective.

    Attributes:
        call: what was called, as the others are told; those of all clients must be equal.
        reduction: how two buffers become one.
        buffers: flat arrays; the ring writes to them.
    """

    call: str
    reduction: np.ufunc
    buffers: tuple[Array, ...]


@dataclass(frozen=True, slots=True)
class Statement:
    """One client's part of a collection.

    Attributes:
        call: as that of a `Contribution`.
        data: the bytes that this client gives.
        answer: what client 0 makes of all that was given.
    """

    call: str
    data: bytes
    answer: Callable[[bytearray], bytes]


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The place of a call that ended before its turn, so that nobody gets a result.

    Attributes:
        call: what to tell the others.
    """

    call: str

    @classmethod
    def because(cls, error: BaseException) -> Withdrawn:
        """Return the place of a call that ended with `error`."""
        return cls(f"nothing: its call ended before its turn ({_one_line(error)})")


Given = Contribution | Statement
Part = Given | Withdrawn


def _one_line(error: BaseException) -> str:
    """Return the type and text of any exception, in one line that fits into a frame."""
    name = type(error).__name__
    try:
        text = f"{name}: {error}" if str(error) else name
    except Exception:  # noqa: BLE001 - the text is of no weight beside the fact
        text = name
    return " ".join(text.encode(errors="replace").decode().split())[:_REASON_CHARACTERS_MAX]


class _State(enum.Enum):
    EXPECTED = enum.auto()  # the caller is about to give its arrays
    READY = enum.auto()
    RUNNING = enum.auto()
    WITHDRAWN = enum.auto()
    DONE = enum.auto()


class Turn:
    """One call's place in the order.

    The caller either gives its contribution, and then waits for `result`, or withdraws: the calls behind it wait for
    one of both. Its methods may be called on any thread.

    Attributes:
        result: the buffers, reduced; it cannot be cancelled.
    """

    def __init__(self, turns: Turns) -> None:
        self.result: concurrent.futures.Future[tuple[Array, ...]] = concurrent.futures.Future()
        self.result.set_running_or_notify_cancel()
        self._turns = turns
        self._state = _State.EXPECTED
        self._part: Part | None = None

    def give(self, given: Given) -> None:
        """Give what this client contributes, once."""
        with self._turns.lock:
            if self._state is _State.EXPECTED:
                self._state, self._part = _State.READY, given
        self._turns.wake()

    def withdraw(self, error: BaseException) -> None:
        """End the call, whatever it has come to.

        Before its turn that does no harm: the other clients are told, and nobody gets a result. Else they may get one
        that this client has not, and its program could go on with other numbers than theirs: the ring breaks.
        """
        withdrawn = Withdrawn.because(error)
        with self._turns.lock:
            if self._state in (_State.EXPECTED, _State.READY):
                self._state, self._part = _State.WITHDRAWN, withdrawn
            is_half_way = self._state is _State.RUNNING
            is_half_way |= self._state is _State.DONE and self.result.exception() is None
        self._turns.wake()
        if is_half_way:
            self._turns.break_off(error)

    # For the ring.

    @property
    def is_open(self) -> bool:
        """Whether neither a contribution nor a withdrawal has come yet. Hold the lock."""
        return self._state is _State.EXPECTED

    def begin(self) -> Part:
        """Return the part for the ring, now that it is this call's turn. Hold the lock."""
        assert self._part is not None
        if self._state is _State.READY:
            self._state = _State.RUNNING
        part, self._part = self._part, None
        return part

    def finish(self, outcome: tuple[Array, ...] | BaseException) -> None:
        """Give the caller its outcome, unless the call has ended already."""
        with self._turns.lock:
            if self._state is _State.DONE:
                return
            self._state = _State.DONE
            if isinstance(outcome, BaseException):
                self.result.set_exception(outcome)
            else:
                self.result.set_result(outcome)


class Turns:
    """The calls of one client, in their order. Made on the loop that carries them out.

    Args:
        on_half_way: called on that loop where a call ended while the others may get its result.

    Attributes:
        lock: guards the states.
    """

    def __init__(self, on_half_way: Callable[[BaseException], None]) -> None:
        self.lock = threading.RLock()
        self._on_half_way = on_half_way
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Turn] = deque()
        self._running: Turn | None = None
        self._begun = 0
        self._arrived = asyncio.Event()
        self._error: Callable[[], BaseException] | None = None
        self._limit: tuple[int, Callable[[int], BaseException]] | None = None

    @property
    def called(self) -> int:
        """The number of calls so far; they are numbered from 1."""
        with self.lock:
            return self._begun + len(self._waiting)

    @contextmanager
    def enter(self) -> Iterator[Turn]:
        """Take the next place in the order; a call that ends with an exception withdraws.

        Raises:
            BaseException: what `end` was given, or `stop_after`.
        """
        turn = Turn(self)
        try:
            # Ctrl-C may come between any two lines: what has a place in the order is one step.
            with self.lock:
                if self._error is not None:
                    raise self._error()
                number = self.called + 1
                if self._limit is not None and number > self._limit[0]:
                    raise self._limit[1](number)
                self._waiting.append(turn)
            yield turn
        except BaseException as error:
            turn.withdraw(error)
            raise

    async def next(self) -> tuple[int, Part]:
        """Wait for the next call to give its part or to withdraw; returns its number, and that."""
        while True:
            self._arrived.clear()
            with self.lock:
                if self._waiting and not self._waiting[0].is_open:
                    self._running = self._waiting.popleft()
                    self._begun += 1
                    return self._begun, self._running.begin()
            await self._arrived.wait()

    def finish(self, outcome: tuple[Array, ...] | BaseException) -> None:
        """Give the running call its outcome."""
        turn, self._running = self._running, None
        if turn is not None:
            turn.finish(outcome)

    def stop_after(self, last: int, error: Callable[[int], BaseException]) -> None:
        """End all calls beyond the `last`-th, also future ones, with an exception that `error` makes of their number.

        That is for calls that another client never makes. Of several such limits the lowest holds.
        """
        with self.lock:
            if self._error is not None or (self._limit is not None and self._limit[0] <= last):
                return
            self._limit = last, error
            beyond: list[tuple[int, Turn]] = []
            while self._waiting and self.called > last:
                beyond.append((self.called, self._waiting.pop()))
            if self._running is not None and self._begun > last:
                beyond.append((self._begun, self._running))
        for number, turn in beyond:
            turn.finish(error(number))

    def end(self, error: Callable[[], BaseException]) -> None:
        """End all calls, pending and future, with an exception that `error` makes. Idempotent."""
        with self.lock:
            if self._error is not None:
                return
            self._error = error
            turns = [*self._waiting] if self._running is None else [self._running, *self._waiting]
        for turn in turns:
            turn.finish(error())

    def wake(self) -> None:
        """Have `next` look at the first call again."""
        self._call_soon(self._arrived.set)

    def break_off(self, error: BaseException) -> None:
        """Tell the loop that a call ended with `error` half-way."""
        self._call_soon(self._on_half_way, error)

    def _call_soon(self, callback: Callable[..., object], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:  # the loop is closed: all calls have ended
            return
