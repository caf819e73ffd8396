"""The daemon thread in which a backend's blocking calls run, for callers on an event loop."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from ..errors import BringupError, DeviceNotFoundError, DeviceTimeoutError
from .answers import checked_devices, checked_discovery, checked_health
from .base import DeviceBackend, Discovery, Health, Interruptible, LocalDevice, Openable
from .calls import Call
from .texts import text_of
from .thread_errors import ThreadErrors
from .thread_stack import whereabouts

T = TypeVar("T")

# The result of a call, or the error to raise for it.
_Outcome: TypeAlias = tuple[T | None, BringupError | None]

# Seconds that `close` leaves an abandoned thread to end after all, and an ended one to leave the list of threads.
_LATE_END = 0.1
_EXIT = 1.0

_log = logging.getLogger("bringup")


class BackendThread:
    """Runs the calls of one backend one at a time, in a daemon thread of its own.

    The thread is made by the first call. No executor is used: its threads are joined when the interpreter exits, and
    native code may hang for ever. After a call that timed out, or whose task was cancelled, the backend is not used
    any further: when that call returns, if it does, `stop` follows (where it was opened or started) and the thread
    ends by itself. Until then it holds up neither an event loop nor the end of the process.

    Calls may be awaited from any event loop. What a backend raises arrives as it is if it is a `BringupError`,
    and else as a `DeviceInitializationError` with the original as its `__cause__`.

    Args:
        backend: the backend; nobody else may call it, its `interrupt` apart.
        name: the name of the thread, for logs and debuggers.
        client_id: the client that the devices belong to, for errors; `None` before it is known.
        allow_empty: take a backend without devices for one that is up with none of them.
    """

    def __init__(
        self, backend: DeviceBackend, *, name: str, client_id: int | None = None, allow_empty: bool = False
    ) -> None:
        self._backend = backend
        self._name = name
        self._client_id = client_id
        self._allow_empty = allow_empty
        self._device_type = backend.device_type
        self._errors = ThreadErrors(self._device_type, client_id, name)
        # The lock guards what follows; no code of the backend runs under it.
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[Call[Any] | None] = queue.SimpleQueue()
        self._pending: list[Call[Any]] = []
        self._waiters: list[Call[None]] = []
        self._running = ""
        self._ending = ""
        self._abandoned = False
        self._ended = False
        self._start_asked = False
        self._open_error: BringupError | None = None
        # Up, but without devices: there is nothing to check then.
        self._is_empty = False
        # Between an opening or a start that began and a stop; only the thread touches it.
        self._may_be_up = False
        self._thread: threading.Thread | None = None

    @property
    def abandoned(self) -> bool:
        """Whether a call did not return in time, so that the thread was left behind."""
        return self._abandoned

    @property
    def device_type(self) -> str:
        """The type of the backend; of one that is `Openable`, right once `open` has returned."""
        return self._device_type

    @property
    def simulated(self) -> bool:
        """Whether the devices do not exist; of a backend that is `Openable`, right once `open` has returned."""
        return self._backend.simulated

    async def open(self, timeout: float) -> None:
        """Find out what the backend is, where making it may block; to be called first, or not at all.

        Where it fails, the thread ends: there is no backend to call, and `start` raises the same.

        Args:
            timeout: how long the call may take, in seconds.

        Raises:
            ConfigurationError: there is no such backend, or its settings are wrong.
            DeviceNotFoundError: there is no device of a preferred type.
            DeviceInitializationError: the backend could not be made.
            DeviceTimeoutError: the call did not return in time.
        """
        try:
            await self._call("open", self._open, timeout)
        except BringupError as error:
            self._open_error = error
            self._end("it could not be opened")
            raise

    async def discover(self, timeout: float) -> Discovery:
        """Look for devices. `timeout` is in seconds; errors are those of `start`."""
        return await self._call("discover", lambda: checked_discovery(self._backend.discover()), timeout)

    async def start(self, timeout: float) -> tuple[LocalDevice, ...]:
        """Bring the devices up; to be called once.

        Args:
            timeout: how long the call may take, in seconds, the wait for calls before it included.

        Raises:
            ConfigurationError: the settings make no sense together.
            DeviceNotFoundError: there is no device, and `allow_empty` is false.
            DeviceInitializationError: the backend failed, or the thread is closed.
            DeviceTimeoutError: the call did not return in time, or an earlier one did not.
        """
        assert not self._start_asked, "a backend is started at most once"
        self._start_asked = True
        if self._open_error is not None:
            raise self._open_error
        return await self._call("start", self._start, timeout)

    async def check_health(self, timeout: float) -> Health:
        """Check the devices. `timeout` is in seconds; errors are those of `start`."""
        return await self._call("check_health", self._check_health, timeout)

    async def stop(self, timeout: float) -> None:
        """Release the devices, and keep the thread. `timeout` is in seconds; errors are those of `start`."""
        await self._call("stop", self._stop, timeout)

    async def close(self, timeout: float) -> bool:
        """Let the running call finish, stop the backend where it was opened or started, and end the thread.

        Calls that wait behind the running one fail. A thread that does not end in time is abandoned, and named in
        the log. Idempotent.

        Args:
            timeout: how long to wait for the end, in seconds.

        Returns:
            Whether the thread has ended.
        """
        thread = self._end("it is closed")
        if thread is None:
            return True
        given_up = self._abandoned
        if not await self._wait_for_end(min(timeout, _LATE_END) if given_up else timeout):
            if not given_up:
                self._abandon(f"{self._running or 'its thread'} did not return within {timeout:g} s of closing")
            return False
        # The thread said so in its last statement: this waits for microseconds, and bounds even those.
        thread.join(_EXIT)
        return True

    async def _call(self, what: str, function: Callable[[], T], timeout: float) -> T:
        call = Call(what, function, asyncio.get_running_loop())
        self._submit(call)
        try:
            await asyncio.wait({call.future}, timeout=timeout)
        except asyncio.CancelledError:
            # A result that nobody will see must not keep devices up.
            call.drop()
            self._end(f"{what} was cancelled")
            raise
        if not call.future.done():
            call.drop()
            running = self._running
            behind = f" (it waited behind {running})" if running and running != what else ""
            raise self._abandon(f"{what} did not return within {timeout:g} s{behind}")
        return call.future.result()

    async def _wait_for_end(self, timeout: float) -> bool:
        waiter: Call[None] = Call("close", _nothing, asyncio.get_running_loop())
        with self._lock:
            if self._ended:
                return True
            self._waiters.append(waiter)
        await asyncio.wait({waiter.future}, timeout=timeout)
        return waiter.future.done()

    def _submit(self, call: Call[Any]) -> None:
        with self._lock:
            if self._abandoned:
                raise self._errors.abandoned(f"{call.what} was refused, because {self._ending}")
            if self._ending:
                raise self._errors.failed(f"{call.what} was refused, because {self._ending}")
            if self._thread is None:
                self._thread = self._make_thread()
            self._pending.append(call)
            self._queue.put(call)

    def _make_thread(self) -> threading.Thread:
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            raise self._errors.failed(f"no thread could be started: {error}; check the limits on processes") from error
        return thread

    def _end(self, reason: str, *, abandon: bool = False) -> threading.Thread | None:
        """Accept no further calls, and have the thread end after the running one; return it while it exists."""
        with self._lock:
            first, self._ending = not self._ending, self._ending or reason
            # What ends a thread that is closing already may be a stop that hangs.
            cut_short = first or (abandon and not self._abandoned)
            self._abandoned |= abandon
            running = self._running
            if first:
                self._queue.put(None)
        if cut_short and running and isinstance(self._backend, Interruptible):
            try:
                self._backend.interrupt()
            except Exception:  # noqa: BLE001 - the call was to be given up in any case
                _log.warning("%s: interrupting %s failed", self._errors.owner, running, exc_info=True)
        return self._thread

    def _abandon(self, reason: str) -> DeviceTimeoutError:
        """Give the thread up: fail every call that waits, and return the error to raise."""
        # Before it is interrupted: then it is somewhere else.
        at = whereabouts(self._thread)
        self._end(reason, abandon=True)
        _log.warning("%s: %s; thread %s is abandoned", self._errors.owner, reason, self._name)
        with self._lock:
            pending, self._pending = self._pending, []
        for call in pending:
            call.deliver(error=self._errors.abandoned(f"{call.what} was given up, because {reason}"))
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
                self._ended = True
                waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                waiter.deliver()

    def _execute(self, call: Call[Any]) -> None:
        with self._lock:
            refusal = self._ending
            self._running = "" if refusal else call.what
        if refusal:
            outcome: _Outcome[Any] = None, self._errors.failed(f"{call.what} was given up, because {refusal}")
        else:
            outcome = self._outcome(call.what, call.function)
        with self._lock:
            # Before the outcome is known outside, or closing at once would interrupt a call that has returned.
            self._running = ""
            if call in self._pending:
                self._pending.remove(call)
            abandoned = self._abandoned
        if abandoned and outcome[1] is not None:
            notes = "".join(f"; {note}" for note in getattr(outcome[1], "__notes__", ()))
            _log.warning("%s: %s ended after all: %s%s", self._errors.owner, call.what, text_of(outcome[1]), notes)
        if not call.deliver(*outcome):
            self._end("the event loop of a call was closed")

    def _outcome(self, what: str, function: Callable[[], T]) -> _Outcome[T]:
        try:
            return function(), None
        except BaseException as raised:  # noqa: BLE001 - whoever waits gets it, and the thread must go on
            return None, self._error(what, raised)

    def _error(self, what: str, raised: BaseException) -> BringupError:
        try:
            return self._errors.raised(what, raised)
        except Exception:  # noqa: BLE001 - an exception may be of any class: whoever waits is told in any case
            return self._errors.failed(f"{what} raised an exception that cannot be described")

    def _open(self) -> None:
        if isinstance(self._backend, Openable):
            self._may_be_up = True
            self._backend.open()
            self._device_type = self._backend.device_type
            self._errors = ThreadErrors(self._device_type, self._client_id, self._name)

    def _start(self) -> tuple[LocalDevice, ...]:
        self._may_be_up = True
        try:
            devices = checked_devices(self._backend.start())
            if not devices:
                raise DeviceNotFoundError(
                    f"{self._errors.owner} came up without a device. Check what it was given to use."
                )
        except DeviceNotFoundError as error:
            if not self._allow_empty:
                raise
            _log.info("%s has no devices: %s", self._errors.owner, text_of(error))
            self._is_empty = True
            return ()
        return devices

    def _check_health(self) -> Health:
        if self._is_empty:
            return Health(ok=True, detail="no devices")
        return checked_health(self._backend.check_health())

    def _stop(self) -> None:
        # First: a stop that fails is not tried again.
        self._may_be_up = False
        self._backend.stop()

    def _release(self) -> None:
        if not self._may_be_up:
            return
        with self._lock:
            self._running = "stop"
        try:
            self._stop()
        except BaseException:  # noqa: BLE001 - nobody waits for it any more
            _log.warning("%s: stopping it failed", self._errors.owner, exc_info=True)


def _nothing() -> None:
    return None
