"""The libraries that are measured side by side: bringup, jax, torch and tensorflow's dtensor, each on CPU and loopback.

They are imported by name, where they are used: none but bringup itself is a dependency. torch asks the machine's
resolver for the name of 127.0.0.1 while it starts; its figures hold where that answers at once, or where there is none.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .worker import Place, Station

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


@dataclass(frozen=True, slots=True)
class Measured:
    """A library that is measured; the harness's `Library`.

    Attributes:
        name: What the table calls it.
        modules: What a client imports before it is ready, the library itself first.
        distributions: The packages whose versions belong to the result.
        worker: Brings one client up, reports it, waits until told, and leaves.
    """

    name: str
    modules: tuple[str, ...]
    distributions: tuple[str, ...]
    worker: Callable[[Place, Station], None]

    def available(self) -> str | None:
        """Why the library cannot be measured here; `None` where it can."""
        module = self.modules[0]
        return None if importlib.util.find_spec(module) else f"the package {module!r} is not installed"

    def load(self) -> None:
        """Import all modules."""
        for module in self.modules:
            importlib.import_module(module)

    def work(self, place: Place, station: Station) -> None:
        """Run the worker."""
        self.worker(place, station)


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment less all variables that configure one of the libraries or a proxy between the clients."""
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(_SETTINGS) and not name.lower().endswith("_proxy")
    }


def client_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a measured client: no settings, no accelerator, no thread pools."""
    return without_settings(environment) | _CLIENT


def _bringup(place: Place, station: Station) -> None:
    asyncio.run(_bring_up(place, station))


async def _bring_up(place: Place, station: Station) -> None:
    bringup = importlib.import_module("bringup")
    system = await bringup.initialize("SIM", jobs=place.jobs, client_id=place.client_id)
    station.returned()
    await asyncio.to_thread(station.wait_until_told)
    await system.shutdown()


def _jax(place: Place, station: Station) -> None:
    jax = importlib.import_module("jax")
    address = place.jobs[0]
    jax.distributed.initialize(address, place.num_clients, place.client_id, coordinator_bind_address=address)
    jax.devices()
    station.returned()
    station.wait_until_told()
    jax.distributed.shutdown()


def _torch(place: Place, station: Station) -> None:
    distributed = importlib.import_module("torch.distributed")
    distributed.init_process_group(
        "gloo",
        init_method=f"tcp://{place.jobs[0]}",
        world_size=place.num_clients,
        rank=place.client_id,
        timeout=timedelta(seconds=300),
    )
    station.returned()
    station.wait_until_told()
    distributed.destroy_process_group()


def _dtensor(place: Place, station: Station) -> None:
    os.environ["DTENSOR_JOBS"] = ",".join(place.jobs)
    os.environ["DTENSOR_CLIENT_ID"] = str(place.client_id)
    dtensor = importlib.import_module("tensorflow").experimental.dtensor
    dtensor.initialize_accelerator_system("CPU")
    station.returned()
    # It has no shutdown for more than one client: the process just ends.
    station.wait_until_told()


BRINGUP = Measured(
    "bringup",
    ("bringup", "bringup.runtime.client.startup", "bringup.transport.network", "bringup.devices.sim.backend", "uvloop"),
    ("grpcio", "protobuf", "numpy", "uvloop"),
    _bringup,
)
JAX = Measured("jax", ("jax", "jax.distributed"), ("jax", "jaxlib"), _jax)
TORCH = Measured("torch gloo", ("torch", "torch.distributed"), ("torch",), _torch)
DTENSOR = Measured("tf dtensor", ("tensorflow",), ("tensorflow", "tensorflow-cpu"), _dtensor)

LIBRARIES: Mapping[str, Measured] = {"BRINGUP": BRINGUP, "JAX": JAX, "TORCH": TORCH, "DTENSOR": DTENSOR}


def spec(attribute: str) -> str:
    """The harness's name of a library of `LIBRARIES`."""
    return f"{__name__}:{attribute}"
