"""The runtime's own daemon thread and event loop: heartbeats go on while the caller's loop is busy with training."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from ...errors import BringupError
from ..drivers.latch import Latch
from .output import open_output

T = TypeVar("T")

# Seconds for closing an event loop; uvloop has been seen to hang there, and the thread is a daemon.
_JOIN_TIMEOUT = 1.0

# Seconds for a call to be handed over, which takes microseconds. A handler of SIGTERM that interrupts a call there
# waits for the end of the thread, and the process ends after that.
_LOCK_TIMEOUT = 0.2


class Runner(Protocol):
    """Runs the coroutine of a client, and calls into it from other threads: see `RuntimeThread`."""

    def start(self) -> None:
        """See `RuntimeThread.start`."""
        ...

    def withdraw(self) -> bool:
        """See `RuntimeThread.withdraw`."""
        ...

    def call(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """See `RuntimeThread.call`."""
        ...

    def call_soon(self, callback: Callable[..., object], *args: object) -> bool:
        """See `RuntimeThread.call_soon`."""
        ...

    def join(self) -> None:
        """See `RuntimeThread.join`."""
        ...


class RuntimeThread:
    """Runs one coroutine on a new event loop in a new daemon thread; both end with the coroutine.

    Args:
        main: returns the coroutine.
        name: of the thread.
        on_end: called in the thread once the coroutine has ended, with the exception that ended it, or `None`.
        finished: set after that.
    """

    def __init__(
        self,
        main: Callable[[], Coroutine[Any, Any, None]],
        *,
        name: str,
        on_end: Callable[[BaseException | None], None],
        finished: Latch[None],
    ) -> None:
        self._finished = finished
        self._main = main
        self._on_end = on_end
        self._lock = threading.Lock()
        self._is_over = False
        self._may_run = threading.Lock()  # held by the thread once it runs, or by `withdraw`
        self._calls: set[concurrent.futures.Future[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        # Imported here, as `CallerImports` says; made by the thread, as Ctrl-C in the middle would leak descriptors.
        self._make_loop = _loop_factory()
        self._thread = threading.Thread(target=self._run, daemon=True, name=name)

    def start(self) -> None:
        """Start the thread.

        Where this is interrupted, by Ctrl-C, the thread may run already: see `withdraw`.

        Raises:
            BringupError: there can be no more threads.
        """
        try:
            self._thread.start()
        except RuntimeError as error:
            raise BringupError(
                f"thread {self._thread.name} could not be started: {error}. "
                "Check the limits on processes and threads (ulimit -u)."
            ) from error

    def withdraw(self) -> bool:
        """Keep the thread from running the coroutine; return whether that was in time."""
        return self._may_run.acquire(blocking=False)

    def call(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run `coroutine` on the loop; cancelling the future cancels it. The end of the loop cancels both.

        Raises:
            RuntimeError: the loop has ended, or not begun.
        """
        with self._lock:
            try:
                if self._is_over or self._loop is None:
                    raise RuntimeError("the loop does not run")
                future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
            except BaseException:
                coroutine.close()
                raise
            self._calls.add(future)
        future.add_done_callback(self._calls.discard)
        return future

    def call_soon(self, callback: Callable[..., object], *args: object) -> bool:
        """Call back on the loop; return whether it has begun, and has not ended."""
        if self._loop is None:
            return False
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            return False
        return True

    def join(self) -> None:
        """Wait for the thread, which has set `finished`, to close its loop: microseconds, and bounded."""
        if self._thread.is_alive():
            self._thread.join(_JOIN_TIMEOUT)

    def _run(self) -> None:
        if not self._may_run.acquire(blocking=False):
            return
        failure: BaseException | None = None
        output = open_output(self._thread.name)
        runner = asyncio.Runner(loop_factory=self._make_loop)
        try:
            self._loop = runner.get_loop()
            runner.run(self._main())
        except BaseException as error:  # noqa: BLE001 - whatever it is, `on_end` reports it
            failure = error
        is_free = self._lock.acquire(timeout=_LOCK_TIMEOUT)
        self._is_over = True
        calls = list(self._calls)
        if is_free:
            self._lock.release()
        # Calls of the last moment, which have not begun or not ended.
        for call in calls:
            call.cancel()
        self._on_end(failure)
        output.close()
        self._finished.set(None)  # not after the loop is closed, which may hang
        runner.close()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except (ImportError, RuntimeError):  # the latter where the main thread has ended: Python refuses parts of it then
        return asyncio.new_event_loop
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
