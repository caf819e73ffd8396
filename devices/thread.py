"""A device backend in a thread of its own, for callers on an event loop."""

from __future__ import annotations

import enum
import logging

from ..errors import BringupError, DeviceNotFoundError
from .answers import checked_devices, checked_health
from .backend_errors import BackendErrors
from .base import DeviceBackend, Health, Interruptible, LocalDevice, Openable
from .call_thread import CallThread
from .texts import text_of

_log = logging.getLogger("bringup")


class _Stage(enum.Enum):
    """The stage of a backend's life. Only its thread changes it."""

    NEW = "nothing to release"
    OPENED = "its opening has begun: to be stopped"
    STARTED = "its start has begun: to be stopped"
    EMPTY = "started, without devices: to be stopped, nothing to check"
    STOPPED = "stopped; a stop that fails is not tried again"


_TO_BE_STOPPED = (_Stage.OPENED, _Stage.STARTED, _Stage.EMPTY)


class BackendThread:
    """Runs the calls of one backend one at a time, in a daemon thread of its own.

    After a call that timed out, or whose task was cancelled, the backend is not used any further: it is interrupted,
    where it can be, and when the call returns, if it does, `stop` follows and the thread ends.

    Calls may be awaited from any event loop. An exception of the backend arrives as it is if it is a `BringupError`,
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
        self._allow_empty = allow_empty
        self._errors = BackendErrors(backend.device_type, client_id, name)
        self._thread = CallThread(name, self._errors, interrupt=self._interrupt, release=self._release)
        self._stage = _Stage.NEW
        self._open_error: BringupError | None = None

    @property
    def abandoned(self) -> bool:
        """Whether a call did not return in time, so that the thread was left behind."""
        return self._thread.is_abandoned

    @property
    def device_type(self) -> str:
        """The type of the backend; of one that is `Openable`, right once `open` has returned."""
        return self._errors.device_type

    @property
    def simulated(self) -> bool:
        """Whether the devices do not exist; of a backend that is `Openable`, right once `open` has returned."""
        return self._backend.simulated

    async def open(self, timeout: float) -> None:
        """Make the backend, where that may block; the first call, or none at all.

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
            await self._thread.call("open", self._open, timeout)
        except BringupError as error:
            self._open_error = error
            self._thread.close_soon("it could not be opened")
            raise

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
        assert self._stage in (_Stage.NEW, _Stage.OPENED), "a backend is started at most once"
        if self._open_error is not None:
            raise self._open_error
        return await self._thread.call("start", self._start, timeout)

    async def check_health(self, timeout: float) -> Health:
        """Check the devices. `timeout` is in seconds; errors are those of `start`."""
        return await self._thread.call("check_health", self._check_health, timeout)

    async def close(self, timeout: float) -> bool:
        """Stop the backend after the running call, where it was opened or started, and end the thread.

        Calls behind the running one fail. A thread that does not end in time is abandoned, and named in the log.
        Idempotent.

        Args:
            timeout: how long to wait for the end, in seconds.

        Returns:
            Whether the thread has ended.
        """
        return await self._thread.close(timeout)

    def _interrupt(self) -> None:
        if isinstance(self._backend, Interruptible):
            self._backend.interrupt()

    # From here on in the thread.

    def _open(self) -> None:
        if isinstance(self._backend, Openable):
            self._stage = _Stage.OPENED
            self._backend.open()
            self._errors.device_type = self._backend.device_type

    def _start(self) -> tuple[LocalDevice, ...]:
        self._stage = _Stage.STARTED
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
            self._stage = _Stage.EMPTY
            return ()
        return devices

    def _check_health(self) -> Health:
        if self._stage is _Stage.EMPTY:
            return Health(ok=True, detail="no devices")
        return checked_health(self._backend.check_health())

    def _release(self) -> None:
        if self._stage in _TO_BE_STOPPED:
            self._stage = _Stage.STOPPED
            self._backend.stop()
