"""A value that is set once and can be waited for in any thread, on any event loop or blocking; and `Steps` of waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Latch(Generic[T]):
    """A value that any thread may set, once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_set = False
        self._blocked: list[threading.Lock] = []
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._value: T | None = None
        self._value_is_taken = False
        self._callbacks: list[Callable[[T], object]] = []

    def on_set(self, callback: Callable[[T], object]) -> None:
        """Have `callback` called with the value in the thread that sets it, before any waiter wakes.

        To be called before the latch is shared between threads.
        """
        self._callbacks.append(callback)

    @property
    def is_set(self) -> bool:
        """Whether there is a value."""
        return self._is_set

    @property
    def value(self) -> T | None:
        """The value, or `None` while there is none."""
        return self._value

    def set(self, value: T) -> bool:
        """Set the value; return whether this call did."""
        with self._lock:
            if self._value_is_taken:
                return False
            self._value_is_taken = True
        try:
            for callback in self._callbacks:
                callback(value)
        finally:
            with self._lock:
                self._value = value
                self._is_set = True
                waiters, self._waiters = self._waiters, []
        for blocked_waiter in list(self._blocked):
            blocked_waiter.release()
        for loop, waiter in waiters:
            try:
                loop.call_soon_threadsafe(_release, waiter)
            except RuntimeError:  # that loop is closed, and its waiters with it
                continue
        return True

    async def wait(self) -> T:
        """Wait for the value, on any event loop. Cancelling is safe."""
        await first_set(self)
        return self._value  # type: ignore[return-value]

    def _add(self, loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[None]) -> None:
        with self._lock:
            if not self._is_set:
                self._waiters.append((loop, waiter))
            else:
                _release(waiter)

    def _remove(self, waiter: asyncio.Future[None]) -> None:
        with self._lock:
            self._waiters = [(other, kept) for other, kept in self._waiters if kept is not waiter]

    def wait_blocking(self, timeout: float | None = None) -> bool:
        """Block this thread until there is a value, or for `timeout` seconds; return whether there is one.

        A signal handler may call it, and may interrupt it by an exception, at any moment.
        """
        # Not by `threading.Event`: its lock is not reentrant, so that a handler that waits for the same event may find
        # it held by the call that it interrupts; and an exception within it may come out as a `RuntimeError`.
        waiter = threading.Lock()
        waiter.acquire()
        self._blocked.append(waiter)
        try:
            if not self._is_set:
                waiter.acquire(timeout=-1 if timeout is None else timeout)
        finally:
            self._blocked.remove(waiter)
        return self._is_set


async def first_set(*latches: Latch[Any]) -> None:
    """Wait until one of several latches has a value, on any event loop. Cancelling is safe."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()
    try:
        for latch in latches:
            latch._add(loop, waiter)
        await waiter
    finally:
        for latch in latches:
            latch._remove(waiter)


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


Steps = Generator[Latch[Any], None, T]
"""A procedure that yields each latch that it waits for: one text for callers that await and callers that block.

psycopg writes its protocol in this way. What interrupts a wait is raised at the `yield`, and the procedure may wait on.
"""


async def awaited(steps: Steps[T]) -> T:
    """Run a procedure on the running event loop, and return its result."""
    try:
        latch = next(steps)
        while True:
            try:
                await latch.wait()
            except GeneratorExit as closed:  # the event loop has ended: nothing can be awaited any more
                return _blocked_from(steps, steps.throw(closed))
            except BaseException as error:  # noqa: BLE001 - the procedure raises it again
                latch = steps.throw(error)
            else:
                latch = next(steps)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def blocked(steps: Steps[T]) -> T:
    """Run a procedure in this thread, and return its result."""
    return _blocked_from(steps, None)


def _blocked_from(steps: Steps[T], latch: Latch[Any] | None) -> T:
    try:
        while True:
            try:
                if latch is not None:
                    latch.wait_blocking()
                latch = next(steps)
            except BaseException as error:
                if steps.gi_frame is None:  # type: ignore[attr-defined] # the procedure raised it, or returned
                    raise
                # Ctrl-C between two waits, too: the procedure must hear of it.
                latch = steps.throw(error)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
