"""Making a backend for its thread: here without blocking, the rest in `BackendThread.open`."""

from __future__ import annotations

from functools import partial

from .base import BackendConfig, DeviceBackend
from .deferred import DeferredBackend
from .registry import create_backend, is_built_in

__all__ = ["prepare_backend"]


def prepare_backend(device_type: str | None, config: BackendConfig, *, isolate: bool = False) -> DeviceBackend:
    """Return a backend to be opened by its own thread, as `create_backend` would make it; does not block.

    Types that are built in are made at once, so that wrong settings show here. Others, and `None`, may have to import
    or to look for something that hangs: they are made when they are opened, and what `create_backend` raises is raised
    there.

    Args:
        device_type: the type, in any case; `None` for the first of TPU, GPU and CPU that is present.
        config: handed to the factory.
        isolate: run the backend in a child process; it is made there then, of whatever type.

    Raises:
        ConfigurationError: a setting of a built-in backend is wrong.
    """
    if isolate:
        from .isolation.backend import IsolatedBackend

        return IsolatedBackend(device_type, config)
    if device_type is not None and is_built_in(device_type):
        return create_backend(device_type, config)
    name = "preferred" if device_type is None else str(device_type).strip().upper()
    return DeferredBackend(name, partial(create_backend, device_type, config))
