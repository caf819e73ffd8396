"""The libraries that are measured side by side, each on CPU and loopback: bringup, jax, torch, tensorflow's dtensor.

They are imported by name, where they are used: none but bringup itself is a dependency. torch asks the machine's
resolver for the name of 127.0.0.1 while it starts; its figures hold where that answers at once, or where there is none.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import os
import time
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from .floor import meet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .worker import Assignment, HostPipe

_SETTINGS = ("BRINGUP_", "DTENSOR_", "GLOO_", "GRPC_", "JAX_", "KERAS_", "MASTER_", "TF_", "TORCH_", "XLA_")
_CLIENT = {
    "CUDA_VISIBLE_DEVICES": "",
    "GLOO_SOCKET_IFNAME": "lo",
    "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo",
    "JAX_PLATFORMS": "cpu",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    # numpy's and torch's thread pools start on import; a process with threads cannot be forked.
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
_JAX_HEARTBEAT_TIMEOUT = 10  # seconds; the default of 100 would make every run last as long
_TEXT_CHARACTERS_MAX = 2000

PATIENCE = 120.0
"""Seconds from a fault until a survivor of another library that has noticed nothing counts as hung."""


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment less all variables that configure one of the libraries or a proxy between the clients."""
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(_SETTINGS) and not name.lower().endswith("_proxy")
    }


def measured_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a measured client: no settings, no accelerator, no thread pools."""
    return without_settings(environment) | _CLIENT


@dataclass(frozen=True, slots=True)
class Library:
    """A library that is measured, and the `Program` of its clients in `bringup bench startup`.

    Attributes:
        name: Its name in tables.
        modules: The imports of a client before it is ready, the library itself first.
        distributions: The packages whose versions belong to the result.
        bring_up: Brings one client up, reports `returned`, waits for the order to leave, and leaves.
    """

    name: str
    modules: tuple[str, ...]
    distributions: tuple[str, ...]
    bring_up: Callable[[Assignment, HostPipe], None]

    def available(self) -> str | None:
        """The reason why the library cannot be measured here; `None` where it can."""
        module = self.modules[0]
        return None if importlib.util.find_spec(module) else f"the package {module!r} is not installed"

    def load(self) -> None:
        """Import all modules."""
        for module in self.modules:
            importlib.import_module(module)

    def work(self, assignment: Assignment, host: HostPipe) -> None:
        self.bring_up(assignment, host)


def _bringup(assignment: Assignment, host: HostPipe) -> None:
    asyncio.run(_bring_up(assignment, host, insecure=False))


def _bringup_insecure(assignment: Assignment, host: HostPipe) -> None:
    asyncio.run(_bring_up(assignment, host, insecure=True))


async def _bring_up(assignment: Assignment, host: HostPipe, *, insecure: bool) -> None:
    bringup = importlib.import_module("bringup")
    place = {"jobs": assignment.jobs, "client_id": assignment.client_id}
    system = await bringup.initialize("SIM", **place, insecure=insecure)
    host.returned()
    await asyncio.to_thread(host.wait_for_order)
    await system.shutdown()


def _jax(assignment: Assignment, host: HostPipe) -> None:
    distributed = join_jax(assignment)
    importlib.import_module("jax").devices()
    host.returned()
    host.wait_for_order()
    distributed.shutdown()


def join_jax(assignment: Assignment, **options: int) -> Any:
    """Bring jax's distributed runtime up; returns its module."""
    distributed = importlib.import_module("jax").distributed
    known = inspect.signature(distributed.initialize).parameters
    options = {name: value for name, value in options.items() if name in known}  # older releases lack some
    address = assignment.jobs[0]
    distributed.initialize(
        address, assignment.num_clients, assignment.client_id, coordinator_bind_address=address, **options
    )
    return distributed


def _torch(assignment: Assignment, host: HostPipe) -> None:
    distributed = _join_torch(assignment, timedelta(seconds=300))
    host.returned()
    host.wait_for_order()
    distributed.destroy_process_group()


def _join_torch(assignment: Assignment, timeout: timedelta) -> Any:
    distributed = importlib.import_module("torch.distributed")
    distributed.init_process_group(
        "gloo",
        init_method=f"tcp://{assignment.jobs[0]}",
        world_size=assignment.num_clients,
        rank=assignment.client_id,
        timeout=timeout,
    )
    return distributed


def _dtensor(assignment: Assignment, host: HostPipe) -> None:
    os.environ["DTENSOR_JOBS"] = ",".join(assignment.jobs)
    os.environ["DTENSOR_CLIENT_ID"] = str(assignment.client_id)
    dtensor = importlib.import_module("tensorflow").experimental.dtensor
    dtensor.initialize_accelerator_system("CPU")
    host.returned()
    # It has no shutdown for more than one client: the process just ends.
    host.wait_for_order()


BRINGUP = Library(
    "bringup",
    (
        "bringup",
        "bringup.runtime.initialize",
        "bringup.runtime.system",
        "bringup.transport.network",
        "bringup.transport.security.tls_credentials",
        "bringup.devices.sim.backend",
        "uvloop",
    ),
    ("grpcio", "protobuf", "numpy", "uvloop"),
    _bringup,
)
INSECURE = replace(BRINGUP, name="bringup, insecure", bring_up=_bringup_insecure)
"""The same over plain TCP."""
GRPC = Library("grpc.aio", ("grpc.aio", "bringup.transport.grpc.settings", "uvloop"), ("grpcio", "uvloop"), meet)
JAX = Library("jax", ("jax", "jax.distributed"), ("jax", "jaxlib"), _jax)
TORCH = Library("torch gloo", ("torch", "torch.distributed"), ("torch",), _torch)
DTENSOR = Library("tf dtensor", ("tensorflow",), ("tensorflow", "tensorflow-cpu"), _dtensor)

LIBRARIES: Mapping[str, Library] = {"BRINGUP": BRINGUP, "GRPC": GRPC, "JAX": JAX, "TORCH": TORCH, "DTENSOR": DTENSOR}


@dataclass(frozen=True, slots=True)
class OtherSurvivor:
    """The `Program` of another library's clients in `bringup bench failure`.

    Attributes:
        library: The library.
        phase: The call that is pending at the fault, as the table has it.
        wait: Brings one client up, reports `placed`, and makes the call that the fault is to end.
    """

    library: Library
    phase: str
    wait: Callable[[Assignment, HostPipe], None]

    def load(self) -> None:
        """Import the library."""
        self.library.load()

    def work(self, assignment: Assignment, host: HostPipe) -> None:
        """Wait for the fault, and report the exception; the library may end the process instead."""
        try:
            self.wait(assignment, host)
        except Exception as error:  # noqa: BLE001 - each library has exceptions of its own for this
            host.say("told", {"at": time.monotonic(), **describe(error)})


def describe(error: BaseException) -> Mapping[str, Any]:
    """The fields of a `Notice` that depend on the exception alone."""
    return {
        "error": type(error).__name__,
        "text": str(error)[:_TEXT_CHARACTERS_MAX],
        "client_id": getattr(error, "client_id", None),
        "cause": getattr(error, "cause", "")[:_TEXT_CHARACTERS_MAX],
        "missing": sorted(getattr(error, "missing", ())),
    }


def _jax_idle(assignment: Assignment, host: HostPipe) -> None:
    join_jax(assignment, heartbeat_timeout_seconds=_JAX_HEARTBEAT_TIMEOUT)
    host.say("placed", None)
    host.wait_for_order()


def _torch_barrier(assignment: Assignment, host: HostPipe) -> None:
    distributed = _join_torch(assignment, timedelta(seconds=PATIENCE))
    host.say("placed", None)
    if assignment.orders["part"] == "survivor":
        distributed.barrier()
    host.wait_for_order()


JAX_IDLE = OtherSurvivor(JAX, "idle", _jax_idle)
TORCH_BARRIER = OtherSurvivor(TORCH, "barrier", _torch_barrier)
