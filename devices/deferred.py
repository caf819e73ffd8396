"""Backends that are constructed in their own thread or in a child process, as construction may block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from .base import BackendConfig, DeviceBackend, Discovery, Health, Interruptible, LocalDevice
from .registry import create_backend, type_name


def prepare_backend(device_type: str | None, config: BackendConfig, *, isolate: bool = False) -> DeviceBackend:
    """Return a backend for `BackendThread.open`, which then constructs it as `create_backend` does; does not block.

    To make a backend may take an import or a search that hangs; and where it fails, the other clients are to hear of it
    as of any failure of devices.

    Args:
        device_type: the type, in any case; `None` for the first of TPU, GPU and CPU that is present.
        config: handed to the factory.
        isolate: run the backend in a child process, which then makes it, of whatever type.
    """
    if isolate:
        from .isolation.backend import IsolatedBackend

        return IsolatedBackend(device_type, config)
    return DeferredBackend(type_name(device_type), partial(create_backend, device_type, config))


class DeferredBackend:
    """A proxy of a backend that `open` constructs.

    Args:
        device_type: its type until then.
        make: makes the backend; may block.
    """

    def __init__(self, device_type: str, make: Callable[[], DeviceBackend]) -> None:
        self._device_type = device_type
        self._make = make
        self._backend: DeviceBackend | None = None

    @property
    def device_type(self) -> str:
        """The type; right after `open`."""
        return self._device_type if self._backend is None else self._backend.device_type

    @property
    def simulated(self) -> bool:
        """Whether the devices do not exist; right after `open`."""
        return self._backend is not None and self._backend.simulated

    def open(self) -> None:
        """Make the backend."""
        self._opened()

    def discover(self) -> Discovery:
        """Look for devices."""
        return self._opened().discover()

    def start(self) -> Sequence[LocalDevice]:
        """Bring the devices up."""
        return self._opened().start()

    def check_health(self) -> Health:
        """Check the devices."""
        return self._opened().check_health()

    def stop(self) -> None:
        """Release the devices."""
        if self._backend is not None:
            self._backend.stop()

    def interrupt(self) -> None:
        """Cut the running call short, where the backend can."""
        backend: object = self._backend
        if isinstance(backend, Interruptible):
            backend.interrupt()

    def _opened(self) -> DeviceBackend:
        if self._backend is None:
            self._backend = self._make()
        return self._backend
