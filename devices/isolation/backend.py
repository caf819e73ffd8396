"""A backend in a child process, which is killed when native code hangs, and crashes alone."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...errors import BringupError, DeviceInitializationError
from ..answers import OddAnswerError
from ..backend_errors import BackendErrors
from ..base import BackendConfig, Discovery, Health, LocalDevice
from ..registry import type_name
from .frames import (
    ForeignError,
    MalformedPipeFrameError,
    devices_from,
    discovery_from,
    error_from,
    health_from,
    identity_from,
    plain_config,
)
from .process import BackendProcess, CutShortError, ProcessEndedError

T = TypeVar("T")

_log = logging.getLogger("bringup")


class Interruption:
    """The order to give a backend up: from any thread, once, and final.

    It is the backend's, not its process's: an order that comes before the process, or between two calls, stays.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_set = False
        self._wake: Callable[[], None] | None = None

    @property
    def is_set(self) -> bool:
        """Whether the order was given."""
        return self._is_set

    def set(self) -> None:
        """Give the order; never blocks."""
        with self._lock:
            if not self._is_set:
                self._is_set = True
                self._carry_out()

    def attach(self, wake: Callable[[], None]) -> None:
        """Have the order carried out by `wake`, at once where it was given; `wake` must not block."""
        with self._lock:
            self._wake = wake
            if self._is_set:
                self._carry_out()

    def detach(self) -> None:
        """Forget what carries the order out: once this returns, it is not called any more."""
        with self._lock:
            self._wake = None

    def _carry_out(self) -> None:
        if self._wake is not None:
            self._wake()


class IsolatedBackend:
    """Runs a backend in a child process, with the client's environment and import path.

    The devices are the child's: locks and memory that they take are held there, until `stop`. For TPUs this means that
    the client process itself cannot use them meanwhile. The child is started by `open`, or by the first call, from the
    thread that makes it; it dies with that thread. What it prints is kept for errors, up to a bound.

    A call that hangs is ended by `interrupt`, which kills the child; where the child dies by itself, the call raises a
    `DeviceInitializationError` that names the signal, and a health check says so from then on.

    Args:
        device_type: as for `create_backend`; `None` for the first of TPU, GPU and CPU that is present.
        config: handed to the backend.
    """

    def __init__(self, device_type: str | None, config: BackendConfig) -> None:
        self._asked_for = device_type
        self._config = config
        self._device_type = type_name(device_type)
        self._simulated = False
        self._process: BackendProcess | None = None
        self._interruption = Interruption()
        # How the process was lost, for health checks.
        self._end = ""

    @property
    def device_type(self) -> str:
        """The type; until `open`, the one asked for."""
        return self._device_type

    @property
    def simulated(self) -> bool:
        """Whether the devices do not exist; right after `open`."""
        return self._simulated

    @property
    def pid(self) -> int | None:
        """The process id of the child, `None` where there is none."""
        return None if self._process is None else self._process.pid

    def open(self) -> None:
        """Start the child, which constructs the backend.

        Raises:
            ConfigurationError: there is no such backend, or its settings are wrong.
            DeviceNotFoundError: there is no backend of a well-known type, or no device of a preferred one.
            DeviceInitializationError: the child could not be started, or died.
        """
        if self._process is not None:
            return
        try:
            self._process = BackendProcess()
        except (OSError, RuntimeError) as error:
            reason = f"its process could not be started: {error}; mend that, or leave isolate_backend out"
            raise self._errors(None).failed(reason) from error
        self._interruption.attach(self._process.interrupt)
        hello = {"device_type": self._asked_for, "config": plain_config(self._config)}
        try:
            self._device_type, self._simulated = self._ask("open", hello, identity_from)
        except BringupError:
            # One that could not be made takes no calls.
            self._drop_process()
            raise

    def discover(self) -> Discovery:
        """Look for devices, in the child."""
        self.open()
        return self._ask("discover", {"call": "discover"}, discovery_from)

    def start(self) -> Sequence[LocalDevice]:
        """Bring the devices up, in the child.

        Raises:
            DeviceInitializationError: the child died, or was killed by `interrupt`.
            BringupError: what the backend raises.
        """
        self.open()
        return self._ask("start", {"call": "start"}, devices_from)

    def check_health(self) -> Health:
        """Check the devices, in the child; without a child, say why there is none."""
        if self._process is None:
            why = self._end or f"the {self._device_type} backend is not started"
            return Health(ok=False, detail=why, permanent=bool(self._end))
        try:
            return self._ask("check_health", {"call": "check_health"}, health_from)
        except DeviceInitializationError:
            # An error of the backend itself, whose process still runs.
            if not self._end:
                raise
            return Health(ok=False, detail=self._end, permanent=True)

    def stop(self) -> None:
        """Release the devices and end the child."""
        if self._process is None:
            return
        if self._interruption.is_set:
            # The call that was given up has returned before the interrupt: the child is to end all the same.
            self._drop_process()
            return
        try:
            self._ask("stop", {"call": "stop"}, lambda _: None)
        finally:
            self._drop_process()

    def interrupt(self) -> None:
        """Kill the child; callable from any thread, and at any time."""
        self._interruption.set()

    def _ask(self, what: str, message: object, read: Callable[[Any], T]) -> T:
        process = self._process
        assert process is not None
        try:
            answer = process.ask(message)
            if "error" in answer:
                raise self._raised(what, error_from(answer["error"]))
            return read(answer.get("result"))
        except ProcessEndedError as ended:
            raise self._lost(process, f"{ended} during {what}") from None
        except MalformedPipeFrameError as odd:
            raise self._lost(process, f"answered {what} with something else: {odd}; it was killed") from None
        except CutShortError as cut:
            lost = self._lost(process, f"was killed in {what}, which had been given up", said="")
            if str(cut):
                lost.add_note(f"its stack:\n{cut}")
            raise lost from None

    def _drop_process(self) -> None:
        process, self._process = self._process, None
        self._interruption.detach()
        if process is not None and not process.end():
            _log.warning("%s does not die; it is left behind", self._owner(process))

    def _lost(self, process: BackendProcess, how: str, said: str | None = None) -> DeviceInitializationError:
        """Forget a process that is of no use any more, and return the error that says so."""
        printed = process.printed() if said is None else said
        owner = self._owner(process)
        self._process = None
        self._interruption.detach()
        if not process.kill():
            _log.warning("%s does not die; it is left behind", owner)
        words = f" It said: {printed}" if printed else ""
        error = DeviceInitializationError(
            f"{owner} {how}. Look for a defect of the devices of that host, of their driver or its library.{words}",
            client_id=self._config.client_id,
            cause=f"the backend's process {how}",
        )
        self._end = str(error)
        return error

    def _raised(self, what: str, error: BringupError | OddAnswerError | ForeignError) -> BringupError:
        if isinstance(error, BringupError):
            return error
        errors = self._errors(self._process)
        if isinstance(error, OddAnswerError):
            return errors.odd(what, str(error))
        return errors.foreign(what, error.cause, error.at)

    def _errors(self, process: BackendProcess | None) -> BackendErrors:
        own = f" (its own process {process.pid})" if process is not None else ""
        return BackendErrors(self._device_type, self._config.client_id, process=own)

    def _owner(self, process: BackendProcess | None) -> str:
        return self._errors(process).owner
