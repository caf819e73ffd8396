"""A daemon thread that runs the blocking calls of one backend, for callers on event loops."""

from __future__ import annotations

import asyncio
import enum
import logging
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

from ..errors import BringupError, DeviceTimeoutError
from .backend_errors import BackendErrors
from .texts import text_of
from .thread_stack import stack_of

T = TypeVar("T")

# The result of a call, or the error to raise for it.
_Outcome: TypeAlias = tuple[T | None, BringupError | None]

# Seconds that `close` leaves an abandoned thread to end after all: it had its time-out already.
_LATE_END_TIMEOUT = 0.1
# Seconds to join a thread that has reported its end in its last statement: microseconds, bounded all the same.
_JOIN_TIMEOUT = 1.0

_log = logging.getLogger("bringup")


class ThreadState(enum.Enum):
    """The life of a `CallThread`. All transitions are in `_TRANSITIONS`."""

    ACCEPTING = "takes calls"
    CLOSING = "refuses calls, and ends after the running one"
    ABANDONED = "refuses calls, after one that did not return in time; ends when that returns, if ever"
    ENDED = "has ended"
    ENDED_LATE = "has ended, after it was abandoned"


class _Event(enum.Enum):
    CLOSE = enum.auto()
    ABANDON = enum.auto()
    EXIT = enum.auto()


# An event that is not listed for a state changes nothing.
_TRANSITIONS: Mapping[tuple[ThreadState, _Event], ThreadState] = {
    (ThreadState.ACCEPTING, _Event.CLOSE): ThreadState.CLOSING,
    (ThreadState.ACCEPTING, _Event.ABANDON): ThreadState.ABANDONED,
    (ThreadState.ACCEPTING, _Event.EXIT): ThreadState.ENDED,
    (ThreadState.CLOSING, _Event.ABANDON): ThreadState.ABANDONED,
    (ThreadState.CLOSING, _Event.EXIT): ThreadState.ENDED,
    (ThreadState.ABANDONED, _Event.EXIT): ThreadState.ENDED_LATE,
    # The last outcome was on its way to an event loop that did not wait for it any longer.
    (ThreadState.ENDED, _Event.ABANDON): ThreadState.ENDED_LATE,
}


class _Call(Generic[T]):
    """A function to run in the thread, and the future of an event loop that its outcome goes to."""

    def __init__(self, name: str, function: Callable[[], T]) -> None:
        self.name = name
        self.function = function
        self.future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.has_expired = False

    def expire(self) -> None:
        """Ignore the outcome, unless it is there: its time is over."""
        if not self.future.done():
            self.has_expired = True
            self.future.cancel()

    def deliver(self, result: Any = None, error: Exception | None = None) -> bool:
        """Hand the outcome over, from any thread; false if the event loop is closed. Late outcomes are ignored."""
        try:
            self.future.get_loop().call_soon_threadsafe(self._settle, result, error)
        except RuntimeError:
            return False
        return True

    def drop(self) -> None:
        """Ignore the outcome, present or future; in the event loop's thread."""
        # Even where it is done: asyncio then no longer logs an error that was never retrieved.
        self.future.cancel()

    def _settle(self, result: T, error: Exception | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


class CallThread:
    """Runs calls one at a time in a daemon thread, which the first call starts.

    No executor is used: its threads are joined when the interpreter exits, and native code may hang for ever. A call
    that times out or is cancelled is the last one. When it returns, if it does, `release` follows and the thread ends
    by itself. Until then it holds up neither an event loop nor the end of the process.

    Args:
        name: the name of the thread, for logs and debuggers.
        errors: makes the errors.
        interrupt: cuts the running call short, from another thread; must not block.
        release: the last call in the thread.
    """

    def __init__(
        self, name: str, errors: BackendErrors, *, interrupt: Callable[[], None], release: Callable[[], None]
    ) -> None:
        self._name = name
        self._errors = errors
        self._interrupt = interrupt
        self._last_call = release
        # The lock guards what follows; no code of the backend runs under it.
        self._lock = threading.Lock()
        self._state = ThreadState.ACCEPTING
        # Why calls are refused, in every state but ACCEPTING.
        self._refusal = ""
        # The name of the running call, empty between two calls.
        self._running = ""
        self._queue: queue.SimpleQueue[_Call[Any] | None] = queue.SimpleQueue()
        self._pending: list[_Call[Any]] = []
        self._waiters: list[_Call[None]] = []
        self._thread: threading.Thread | None = None

    @property
    def is_abandoned(self) -> bool:
        """Whether a call did not return in time."""
        return self._state in (ThreadState.ABANDONED, ThreadState.ENDED_LATE)

    async def call(self, name: str, function: Callable[[], T], timeout: float) -> T:
        """Run a function in the thread and return its result.

        Args:
            name: the call, for errors.
            function: runs in the thread, after the calls before it.
            timeout: how long it may take, in seconds, the wait for calls before it included.

        Raises:
            BringupError: what the function raised, as `BackendErrors.raised` makes it.
            DeviceInitializationError: the thread is closed, or cannot be started.
            DeviceTimeoutError: the call, or an earlier one, did not return in time.
        """
        call = _Call(name, function)
        self._submit(call)
        expiry = call.future.get_loop().call_later(timeout, call.expire)
        try:
            return await call.future
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if call.has_expired and not (task is not None and task.cancelling()):
                running = self._running
                behind = f" (it waited behind {running})" if running and running != name else ""
                raise self._abandon(f"{name} did not return within {timeout:g} s{behind}") from None
            # Its devices must not stay up: nobody will see the result.
            call.drop()
            self.close_soon(f"{name} was cancelled")
            raise
        finally:
            expiry.cancel()

    def close_soon(self, reason: str) -> None:
        """Refuse further calls for this reason, and let the thread end after the running one."""
        self._leave(_Event.CLOSE, reason)

    async def close(self, timeout: float) -> bool:
        """End the thread after the running call and the release, and wait for that.

        Calls behind the running one fail. A thread that does not end in time is abandoned. Idempotent.

        Args:
            timeout: how long to wait for the end, in seconds.

        Returns:
            Whether the thread has ended, or was never started.
        """
        was_abandoned = self.is_abandoned
        self.close_soon("it is closed")
        if self._thread is None:
            return True
        if not await self._wait_for_end(min(timeout, _LATE_END_TIMEOUT) if was_abandoned else timeout):
            if not was_abandoned:
                self._abandon(f"{self._running or 'its thread'} did not return within {timeout:g} s of closing")
            return False
        self._thread.join(_JOIN_TIMEOUT)
        return True

    async def _wait_for_end(self, timeout: float) -> bool:
        waiter: _Call[None] = _Call("close", lambda: None)
        with self._lock:
            if self._state in (ThreadState.ENDED, ThreadState.ENDED_LATE):
                return True
            self._waiters.append(waiter)
        await asyncio.wait({waiter.future}, timeout=timeout)
        return waiter.future.done()

    def _submit(self, call: _Call[Any]) -> None:
        with self._lock:
            if self._state is not ThreadState.ACCEPTING:
                make = self._errors.abandoned if self.is_abandoned else self._errors.failed
                raise make(f"{call.name} was refused, because {self._refusal}")
            if self._thread is None:
                self._thread = self._started_thread()
            self._pending.append(call)
            self._queue.put(call)

    def _started_thread(self) -> threading.Thread:
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            raise self._errors.failed(f"no thread could be started: {error}; check the limits on processes") from error
        return thread

    def _leave(self, event: _Event, reason: str) -> None:
        """Move to a state that refuses calls; a running call is interrupted, again where closing was not enough."""
        with self._lock:
            before = self._state
            self._move(event)
            if before is ThreadState.ACCEPTING:
                self._refusal = reason
                self._queue.put(None)
            running = self._running if self._state is not before else ""
        if running:
            try:
                self._interrupt()
            except Exception:  # noqa: BLE001 - the call is given up in any case
                _log.warning("%s: interrupting %s failed", self._errors.owner, running, exc_info=True)

    def _move(self, event: _Event) -> None:
        self._state = _TRANSITIONS.get((self._state, event), self._state)

    def _abandon(self, reason: str) -> DeviceTimeoutError:
        """Give the thread up: fail every call that waits, and return the error to raise."""
        # Before the interrupt, which moves it on.
        at = stack_of(self._thread)
        self._leave(_Event.ABANDON, reason)
        _log.warning("%s: %s; thread %s is abandoned", self._errors.owner, reason, self._name)
        with self._lock:
            pending, self._pending = self._pending, []
        for call in pending:
            call.deliver(error=self._errors.abandoned(f"{call.name} was given up, because {reason}"))
        return self._errors.abandoned(reason, at)

    def _run(self) -> None:
        try:
            while (call := self._queue.get()) is not None:
                self._execute(call)
                # The next call may be hours away: keep nothing of this one until then.
                del call
            self._release()
        finally:
            with self._lock:
                self._move(_Event.EXIT)
                self._refusal = self._refusal or "its thread has ended"
                waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                waiter.deliver()

    def _execute(self, call: _Call[Any]) -> None:
        with self._lock:
            refusal = self._refusal
            self._running = "" if refusal else call.name
        if refusal:
            outcome: _Outcome[Any] = None, self._errors.failed(f"{call.name} was given up, because {refusal}")
        else:
            outcome = self._outcome(call)
        with self._lock:
            # Before the outcome is known outside, or closing at once would interrupt a call that has returned.
            self._running = ""
            if call in self._pending:
                self._pending.remove(call)
            is_late = self.is_abandoned
        if is_late and outcome[1] is not None:
            notes = "".join(f"; {note}" for note in getattr(outcome[1], "__notes__", ()))
            _log.warning("%s: %s ended after all: %s%s", self._errors.owner, call.name, text_of(outcome[1]), notes)
        if not call.deliver(*outcome):
            self.close_soon("the event loop of a call was closed")

    def _outcome(self, call: _Call[T]) -> _Outcome[T]:
        try:
            return call.function(), None
        except BaseException as raised:  # noqa: BLE001 - the caller gets it, and the thread must go on
            return None, self._errors.raised(call.name, raised)

    def _release(self) -> None:
        with self._lock:
            self._running = "stop"
        try:
            self._last_call()
        except BaseException:  # noqa: BLE001 - nobody waits for it any more
            _log.warning("%s: stopping it failed", self._errors.owner, exc_info=True)
