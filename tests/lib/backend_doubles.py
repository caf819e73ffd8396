"""A device backend for tests of its thread, with any behaviour in its calls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

from bringup.devices.base import Discovery, Health, LocalDevice
from bringup.devices.thread import BackendThread

LONG = 60.0
"""Seconds: longer than anything takes, and short enough to end a test that hangs."""

SHORT = 0.02
"""Seconds, for calls that are to time out."""


class Backend:
    """Runs a given function in each call, and records the calls with their threads."""

    device_type = "TEST"
    simulated = True

    def __init__(self, **behaviour: Callable[[], Any]) -> None:
        self.behaviour = behaviour
        self.calls: list[str] = []
        self.threads: set[threading.Thread] = set()
        self.overlap = threading.Lock()
        self.stopped = threading.Event()

    def _call(self, what: str, default: Any) -> Any:
        assert self.overlap.acquire(blocking=False), "two calls at once"
        try:
            self.calls.append(what)
            self.threads.add(threading.current_thread())
            return self.behaviour[what]() if what in self.behaviour else default
        finally:
            self.overlap.release()

    def discover(self) -> Discovery:
        return self._call("discover", Discovery(present=True, detail="here"))

    def start(self) -> Sequence[LocalDevice]:
        return self._call("start", [LocalDevice("test")])

    def check_health(self) -> Health:
        return self._call("check_health", Health(ok=True))

    def stop(self) -> None:
        try:
            self._call("stop", None)
        finally:
            self.stopped.set()


class Gate:
    """A blocking call: sets an event on entry, and returns once the gate is opened."""

    def __init__(self, result: Any = None) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()
        self.result = result

    def __call__(self) -> Any:
        self.entered.set()
        assert self.opened.wait(LONG)
        return self.result

    async def wait_entered(self) -> None:
        assert await asyncio.to_thread(self.entered.wait, LONG)


def failing(error: BaseException) -> Callable[[], Any]:
    def call() -> Any:
        raise error

    return call


def make(backend: Any, client_id: int | None = 7) -> BackendThread:
    return BackendThread(backend, name="backend-under-test", client_id=client_id)


def threads_under_test() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "backend-under-test"]


async def threads_end() -> None:
    """Wait for the end of all threads that `make` has made."""
    for thread in threads_under_test():
        await asyncio.to_thread(thread.join, LONG)
        assert not thread.is_alive()
