"""Imports for a device backend, done in the thread that called `initialize()` instead of the backend's own.

Two threads that import one large package at the same time, one of them by a module within it, can deadlock on their
import locks. Python breaks the deadlock by handing one of them a partly initialised module: `import jax.numpy` in the
user's thread then fails with "partially initialized module". A package that the program may import too is therefore
imported in the program's thread, which cannot import anything else meanwhile.
"""

from __future__ import annotations

import asyncio
import importlib
import queue
import sys
import threading
import time
from collections.abc import Callable
from types import ModuleType

# Seconds until the backend's thread imports after all: a caller that is busy for longer (a training step, a download)
# must not hold up the devices, and by then hardly begins the same import.
_PATIENCE = 10.0

# Seconds between two checks whether the caller has imported it of its own accord: short beside any import of that size.
_INTERVAL = 0.1


class CallerImports:
    """Requests to import, from the backend's thread to the caller's. Before `serve` the backend imports by itself."""

    def __init__(self) -> None:
        # Reentrant: a signal handler may close it.
        self._lock = threading.RLock()
        self._is_closed = False
        self._pending: list[_Import] = []
        self._blocking: queue.SimpleQueue[_Import | None] = queue.SimpleQueue()
        self._deliver: Callable[[_Import], object] | None = None

    def serve(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Import on an event loop, between two of its steps, or, without one, in `serve_blocking`."""
        if loop is None:
            self._deliver = self._blocking.put
        else:
            self._deliver = lambda request: loop.call_soon_threadsafe(request.run)

    def serve_blocking(self) -> None:
        """Import in this thread, until `close`."""
        while (request := self._blocking.get()) is not None:
            request.run()

    def close(self) -> None:
        """Refuse all pending and later requests. Any thread; idempotent."""
        with self._lock:
            self._is_closed = True
            pending, self._pending = self._pending, []
        for request in pending:
            request.refuse()
        self._blocking.put(None)

    def import_module(self, name: str) -> ModuleType:
        """Import a module in the caller's thread, or here where there is none; called in the backend's thread.

        Raises:
            Exception: what the import raises.
            ImportError: `initialize()` is over.
        """
        if _is_imported(name):
            return importlib.import_module(name)
        request = _Import(name)
        with self._lock:
            if self._is_closed:
                raise ImportError(f"{name} is not needed any more: initialize() is over")
            deliver = self._deliver
            if deliver is not None:
                self._pending.append(request)
        if deliver is None:
            return importlib.import_module(name)
        try:
            deliver(request)
        except RuntimeError:  # the loop is closed: nobody imports there
            request.claim()
            return importlib.import_module(name)
        patience = time.monotonic() + _PATIENCE
        while not request.begun.wait(_INTERVAL):
            # A caller that is at it already must not be joined; one that has done it may be busy with something else.
            is_due = name not in sys.modules and time.monotonic() >= patience
            if (is_due or _is_imported(name)) and request.claim():
                return importlib.import_module(name)
        return request.result()


class _Import:
    def __init__(self, name: str) -> None:
        self._name = name
        self._claim = threading.Lock()
        self.begun = threading.Event()
        self._done = threading.Event()
        self._module: ModuleType | None = None
        self._error: BaseException | None = None

    def claim(self) -> bool:
        """Return whether the caller may import: true for the first one that asks."""
        return self._claim.acquire(blocking=False)

    def run(self) -> None:
        """Import, in this thread, unless that was done or refused."""
        if not self.claim():
            return
        self.begun.set()
        try:
            self._module = importlib.import_module(self._name)
        except BaseException as error:
            self._error = error
            if not isinstance(error, Exception):
                raise
        finally:
            self._done.set()

    def refuse(self) -> None:
        """Raise `ImportError` in the waiting thread, unless the import has begun."""
        if self.claim():
            self._error = ImportError(f"{self._name} is not needed any more: initialize() is over")
            self.begun.set()
            self._done.set()

    def result(self) -> ModuleType:
        """Wait for the module."""
        self._done.wait()
        if self._module is None:
            error = self._error
            if isinstance(error, Exception):
                raise error
            raise ImportError(f"the import of {self._name} was interrupted: {type(error).__name__}")
        return self._module


def _is_imported(name: str) -> bool:
    module = sys.modules.get(name)
    return module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False)
