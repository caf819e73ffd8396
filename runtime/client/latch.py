"""A value that is set once, for whoever waits: any thread, any event loop, or none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Latch(Generic[T]):
    """Set at most once, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._event = threading.Event()
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._value: T | None = None
        self._value_is_taken = False
        self._callbacks: list[Callable[[T], object]] = []

    def on_set(self, callback: Callable[[T], object]) -> None:
        """Have `callback` called with the value by whoever sets it, before anybody else hears of it.

        Called before the latch is shared.
        """
        self._callbacks.append(callback)

    @property
    def is_set(self) -> bool:
        """Whether there is a value."""
        return self._event.is_set()

    @property
    def value(self) -> T | None:
        """The value, or `None` while there is none."""
        return self._value

    def set(self, value: T) -> bool:
        """Set the value; returns whether this call did."""
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
                self._event.set()
                waiters, self._waiters = self._waiters, []
        for loop, waiter in waiters:
            try:
                loop.call_soon_threadsafe(_release, waiter)
            except RuntimeError:  # that loop is closed: nobody waits there
                continue
        return True

    async def wait(self) -> T:
        """Wait for the value, on any event loop. Cancelling is safe."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        with self._lock:
            if not self._event.is_set():
                self._waiters.append((loop, waiter))
            else:
                waiter.set_result(None)
        try:
            await waiter
        finally:
            with self._lock:
                self._waiters = [(other, kept) for other, kept in self._waiters if kept is not waiter]
        return self._value  # type: ignore[return-value]

    def wait_blocking(self, timeout: float | None = None) -> bool:
        """Block this thread until there is a value, or for `timeout` seconds; returns whether there is one."""
        return self._event.wait(timeout)


async def first_set(*latches: Latch[Any]) -> None:
    """Wait until one of several has a value, on any event loop. Cancelling is safe."""
    waits = [asyncio.ensure_future(latch.wait()) for latch in latches]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
