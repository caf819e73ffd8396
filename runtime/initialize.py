"""The entry point: `await initialize()`, or `async with initialize() as system`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator, Sequence
from types import TracebackType
from typing import Any

from ..devices.base import BackendConfig
from ..devices.registry import create_backend
from ..errors import NotInitializedError
from .client import ACTIVE, Client
from .configuration.options import Options
from .configuration.plan import OnFailure, make_plan
from .system import System

__all__ = ["Initialization", "current", "initialize", "not_up", "preferred_device_type", "resolve_client"]


def preferred_device_type() -> str:
    """Return the type that `initialize()` brings up where none is given: the first of TPU, GPU and CPU present here.

    Looks at the machine, and blocks as long as that takes.

    Raises:
        DeviceNotFoundError: there is none of them; the message says what was looked at.
        DeviceInitializationError: the backend of an installed distribution is broken.
    """
    return create_backend(None, BackendConfig(environment=dict(os.environ))).device_type


def initialize(
    device_type: str | None = None,
    *,
    jobs: str | Sequence[str] | None = None,
    client_id: int | None = None,
    num_clients: int | None = None,
    job_name: str | None = None,
    local_device_ids: int | Sequence[int] | None = None,
    num_logical_cpu_devices: int | None = None,
    enable_coordination_service: bool = True,
    enable_megacore: bool = False,
    reset: bool = False,
    resolver: object | None = None,
    on_failure: OnFailure = "raise",
    options: Options | None = None,
    **overrides: Any,
) -> Initialization:
    """Bring this client up together with all others of its job. Follows DTensor's `initialize_accelerator_system`.

    The result can be awaited, and is an asynchronous context manager. Cancelling it is safe at any point, and leaves
    nothing behind; the other clients are told.

    Args:
        device_type: `CPU`, `GPU`, `TPU`, `JAX`, `SIM`, or a backend registered in the entry-point group
            `bringup.backends`; any case.
            `None`: the first present of TPU, GPU, CPU.
        jobs: one `host:port` for each client, comma-separated or a sequence, in client order; or the coordinator's
            alone, together with `num_clients`. `None`: from the environment.
        client_id: this client, `0 .. num_clients - 1`.
        num_clients: how many clients there are.
        job_name: `localhost` with one client, else `worker`, where it is `None`.
        local_device_ids: bring up only these devices of this client, by local index.
        num_logical_cpu_devices: logical CPU devices of this client.
        enable_coordination_service: without it there are no barriers and no key-value store.
        enable_megacore: let the two cores of a TPU chip act as one device.
        reset: shut an active system of this process down first, instead of refusing.
        resolver: a cluster resolver, or its name.
        on_failure: what happens when the job fails later: `raise` (pending and later calls raise), `exit` (the process
            ends with status 70), or a callable, which gets the exception in a thread of its own.
        options: an `Options`.
        **overrides: any field of `Options`.

    Raises, when awaited:
        ConfigurationError: a setting is wrong; says which and where it came from.
        AlreadyInitializedError: this process has an active system.
        RendezvousTimeoutError: not all clients came in time; says who.
        RegistrationRefusedError: the coordinator refused this client; says why.
        DeviceError: the devices did not come up.
        TopologyError: the merged table of devices is not sound.
        PeerFailedError: another client failed meanwhile.
    """
    return Initialization(
        {
            "device_type": device_type,
            "jobs": jobs,
            "client_id": client_id,
            "num_clients": num_clients,
            "job_name": job_name,
            "local_device_ids": local_device_ids,
            "num_logical_cpu_devices": num_logical_cpu_devices,
            "enable_coordination_service": enable_coordination_service,
            "enable_megacore": enable_megacore,
            "resolver": resolver,
            "on_failure": on_failure,
            "options": options,
            "overrides": overrides,
        },
        reset=reset,
    )


def current() -> System:
    """Return the active system of this process.

    Raises:
        NotInitializedError: there is none.
    """
    client = ACTIVE.demand()
    up = client.settled.value
    if up is None:
        raise client.end() if client.is_over else not_up(client)
    return System(client, up)


def not_up(client: Client) -> NotInitializedError:
    """Return the error for a client whose `initialize()` has not returned yet."""
    return NotInitializedError(f"initialize() has not returned yet in this process: it is {client.describe()}")


def resolve_client(arguments: dict[str, Any]) -> Client:
    """Return the client that the arguments of `initialize()` and the environment describe, not started."""
    return Client(make_plan(**arguments, environ=os.environ))


class Initialization:
    """What `initialize()` returns: await it for the system, or enter it."""

    def __init__(self, arguments: dict[str, Any], *, reset: bool) -> None:
        self._arguments = arguments
        self._reset = reset
        self._system: System | None = None

    def __await__(self) -> Generator[Any, None, System]:
        return self._run().__await__()

    async def __aenter__(self) -> System:
        self._system = await self._run()
        return self._system

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._system is not None:
            await self._system.__aexit__(kind, error, traceback)

    async def _run(self) -> System:
        client = resolve_client(self._arguments)
        incumbent = ACTIVE.get()
        if incumbent is not None and incumbent.failed.is_set:
            await incumbent.finish()
        elif incumbent is not None and self._reset:
            await _end(incumbent)
        client.start()
        try:
            up = await client.settled.wait()
        except asyncio.CancelledError:
            client.abort(asyncio.CancelledError("initialize() was cancelled"))
            await client.finish()
            ACTIVE.release(client)
            raise
        if up is None:
            await client.finish()
            raise client.end()
        return System(client, up)


async def _end(incumbent: Client) -> None:
    up = incumbent.settled.value
    if up is not None:
        return await System(incumbent, up).shutdown()
    incumbent.abort(asyncio.CancelledError("another initialize(reset=True) replaced it"))
    return await incumbent.finish()
