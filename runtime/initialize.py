"""The entry point of the package: `await initialize()`, or `async with initialize() as system`."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import sys
import threading
import warnings
from collections.abc import Generator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Unpack

from .configuration.request import Request

if TYPE_CHECKING:
    from .configuration.options import OptionOverrides, Options
    from .configuration.request import OnFailure
    from .system import System


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
    **overrides: Unpack[OptionOverrides],
) -> Initialization:
    """Bring this client up together with all others of its job. Follows DTensor's `initialize_accelerator_system`.

    The result can be awaited, and is an asynchronous context manager. Cancelling is safe at any point, leaves nothing
    behind, and is reported to the other clients.

    Args:
        device_type: `CPU`, `GPU`, `TPU`, `JAX`, `SIM`, or a backend registered in the entry-point group
            `bringup.backends`; any case. `None`: the first present of TPU, GPU, CPU.
        jobs: one `host:port` for each client, comma-separated or a sequence, in client order; or the coordinator's
            alone, together with `num_clients`. `None`: from the environment.
        client_id: the id of this client, `0 .. num_clients - 1`.
        num_clients: the number of clients.
        job_name: `None`: `localhost` with one client, else `worker`.
        local_device_ids: bring up only these devices of this client, by local index.
        num_logical_cpu_devices: logical CPU devices of this client.
        enable_coordination_service: without it there are no barriers and no key-value store.
        enable_megacore: let the two cores of a TPU chip act as one device.
        reset: shut down an active system of this process first, instead of raising.
        resolver: a cluster resolver, or the name of one, `slurm` for example, to ask it alone; `none` for local mode
            under a launcher of several processes.
        on_failure: the action when the job fails later: `raise` (pending and later calls raise), `exit` (the process
            ends with status 70), or a callable, which gets the exception in a thread of its own; the latter two after
            the other clients have been told.
        options: an `Options`.
        **overrides: any field of `Options`.

    Raises, when awaited:
        ConfigurationError: a setting is wrong; names it, and its origin.
        AlreadyInitializedError: this process has an active system.
        RendezvousTimeoutError: not all clients came in time; names the missing ones.
        RegistrationRefusedError: the coordinator refused this client; has the reason.
        DeviceError: the devices did not come up.
        TopologyError: the merged table of devices is inconsistent.
        PeerFailedError: another client failed meanwhile.
    """
    return Initialization(Request(**locals()))


def preferred_device_type() -> str:
    """Return the type that `initialize()` brings up where none is given: the first of TPU, GPU and CPU present here.

    Looks at the machine, and blocks as long as that takes.

    Raises:
        DeviceNotFoundError: there is none of them; the message lists the places that were searched.
        DeviceInitializationError: the backend of an installed distribution is broken.
    """
    from ..devices.base import BackendConfig
    from ..devices.registry import create_backend

    return create_backend(None, BackendConfig(environment=dict(os.environ))).device_type


class Initialization:
    """The result of `initialize()`: await it for the system, or enter it with `async with`."""

    _was_used = True  # for `__del__`, where `__init__` has not been reached

    def __init__(self, request: Request) -> None:
        self._request = request
        self._system: System | None = None
        self._was_used = False

    def __await__(self) -> Generator[Any, None, System]:
        self._was_used = True
        return self._run().__await__()

    async def __aenter__(self) -> System:
        self._was_used = True
        self._system = await self._run()
        return self._system

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._system is not None:
            await self._system.__aexit__(kind, error, traceback)

    async def _run(self) -> System:
        system_module = await _import_off_loop(f"{__package__}.system")
        system: System = await system_module.bring_up(self._request)
        return system

    def __repr__(self) -> str:
        return f"<bringup.initialize({self._request.device_type or ''!r}), which is not a system yet: {_ADVICE}>"

    def __del__(self) -> None:
        if not self._was_used:
            warnings.warn(f"{self!r} was never awaited", RuntimeWarning, stacklevel=2, source=self)

    if not TYPE_CHECKING:  # type checkers refuse these by themselves

        def __enter__(self) -> NoReturn:
            self._was_used = True
            raise TypeError(f"`with bringup.initialize()` cannot wait for the other clients: {_ADVICE}")

        def __exit__(self, *ignored: object) -> None:
            """Never called; a `with` statement requires it."""

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            self._was_used = True
            raise AttributeError(f"bringup.initialize() has no {name!r} before it is awaited: {_ADVICE}")


_ADVICE = (
    "in a coroutine write `system = await bringup.initialize(...)` or `async with bringup.initialize(...) as system`; "
    "elsewhere use bringup.sync.initialize(...), which blocks"
)


async def _import_off_loop(name: str) -> Any:
    """Return module `name`; where it has yet to be loaded, a thread does that while the running loop goes on.

    Cancelling is safe: the thread ends the import by itself.

    Raises:
        ImportError: it cannot be loaded.
    """
    if name not in sys.modules:
        with contextlib.suppress(RuntimeError):  # no asyncio loop runs here: none is held up
            await _load(name, asyncio.get_running_loop())
    return importlib.import_module(name)


async def _load(name: str, loop: asyncio.AbstractEventLoop) -> None:
    loaded = asyncio.Event()

    def load() -> None:
        try:
            with contextlib.suppress(BaseException):  # the caller's own import raises it again
                importlib.import_module(name)
        finally:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(loaded.set)

    threading.Thread(target=load, daemon=True, name="bringup-import").start()
    await loaded.wait()
