"""What `initialize()` does once it is awaited, and how the active system is found again."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

from ...devices.base import BackendConfig
from ...devices.registry import create_backend
from ...errors import ConfigurationError, NotInitializedError
from ..configuration.plan import make_plan
from ..system import System
from .client import ACTIVE, Client

_log = logging.getLogger("bringup")


def preferred_device_type() -> str:
    """Return the type that `initialize()` brings up where none is given: the first of TPU, GPU and CPU present here.

    Looks at the machine, and blocks as long as that takes.

    Raises:
        DeviceNotFoundError: there is none of them; the message says what was looked at.
        DeviceInitializationError: the backend of an installed distribution is broken.
    """
    return create_backend(None, BackendConfig(environment=dict(os.environ))).device_type


async def bring_up(arguments: dict[str, Any], *, reset: bool) -> System:
    """Carry out `initialize()`, on any event loop; see there."""
    if _running_loop() is None:
        raise ConfigurationError(
            "bringup.initialize() is awaited where no asyncio event loop runs, under trio for example: call "
            "bringup.sync.initialize() in a thread instead"
        )
    client = resolve_client(arguments)
    incumbent = ACTIVE.get()
    if incumbent is not None and incumbent.failed.is_set:
        await incumbent.finish()
        incumbent.failure_notice.note_given()
    elif incumbent is not None and reset:
        await _end(incumbent)
    client.imports.serve(asyncio.get_running_loop())
    client.start()
    try:
        up = await client.settled.wait()
    except asyncio.CancelledError:
        client.abort(asyncio.CancelledError("initialize() was cancelled"))
        await client.finish()
        ACTIVE.release(client)
        raise
    except BaseException as error:  # its event loop ends with it
        client.abort(error)
        client.finish_blocking()
        ACTIVE.release(client)
        raise
    if up is None:
        await client.finish()
        raise client.end()
    return System(client, up)


def current() -> System:
    """Return the active system of this process; its methods are awaited. `bringup.sync.current()` has the blocking one.

    Raises:
        NotInitializedError: there is none.
    """
    client = ACTIVE.demand()
    up = client.settled.value
    if up is None:
        raise client.end() if client.is_over else not_up(client)
    if client.is_blocking and _running_loop() is None:
        client.is_blocking = False  # said once
        _log.warning(
            "client %d: bringup.current() returns a system to be awaited, and this program came up with "
            "bringup.sync.initialize(): bringup.sync.current() returns the blocking one",
            client.job.client_id,
        )
    return System(client, up)


def not_up(client: Client) -> NotInitializedError:
    """Return the error for a client whose `initialize()` has not returned yet."""
    return NotInitializedError(f"initialize() has not returned yet in this process: it is {client.describe()}")


def resolve_client(arguments: dict[str, Any], *, is_blocking: bool = False) -> Client:
    """Return the client that the arguments of `initialize()` and the environment describe, not started."""
    return Client(make_plan(**arguments, environ=os.environ), is_blocking=is_blocking)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def _end(incumbent: Client) -> None:
    up = incumbent.settled.value
    if up is not None:
        return await System(incumbent, up).shutdown(raise_on_failure=False)
    incumbent.abort(asyncio.CancelledError("another initialize(reset=True) replaced it"))
    return await incumbent.finish()
