"""A backend that is made by its own thread: to find or to import it may block."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .base import DeviceBackend, Discovery, Health, Interruptible, LocalDevice


class DeferredBackend:
    """Stands for a backend that `open` makes, and passes all calls on to it.

    Args:
        device_type: what it is called until then.
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
