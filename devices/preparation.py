"""What stands for a backend until its thread has made it, in `BackendThread.open`."""

from __future__ import annotations

from functools import partial

from .base import BackendConfig, DeviceBackend
from .deferred import DeferredBackend
from .registry import create_backend, type_name


def prepare_backend(device_type: str | None, config: BackendConfig, *, isolate: bool = False) -> DeviceBackend:
    """Return a backend to be opened by its own thread, which makes it as `create_backend` does; does not block.

    To make one may mean to import or to look for something that hangs; and where it fails, the other clients are to
    hear of it as of any failure of devices.

    Args:
        device_type: the type, in any case; `None` for the first of TPU, GPU and CPU that is present.
        config: handed to the factory.
        isolate: run the backend in a child process; it is made there then, of whatever type.
    """
    if isolate:
        from .isolation.backend import IsolatedBackend

        return IsolatedBackend(device_type, config)
    return DeferredBackend(type_name(device_type), partial(create_backend, device_type, config))
