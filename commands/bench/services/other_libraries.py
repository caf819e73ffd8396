"""The clients of the other libraries: jax's distributed client and torch's TCPStore, imported by name where used."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..libraries import JAX, TORCH
from ..worker import LOOPBACK
from .crowd import Meet, allow_files, meet_in_threads
from .work import Face, Orders, take_part

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..libraries import Measured
    from ..worker import Place, Station

_TIMEOUT = 300


@dataclass(frozen=True, slots=True)
class Other:
    """A library whose calls block; the harness's `Library`.

    Attributes:
        measured: The library as it is.
        join: Brings one client up; returns its services, and how it leaves.
        serve: Serves a crowd, given its place and how many they are; returns what must be kept alive.
        connect: Connects one client of a crowd and meets the others, given the place, how many they are, and its id.
    """

    measured: Measured
    join: Callable[[Place], tuple[Face, Callable[[], None]]]
    serve: Callable[[Place, int], object]
    connect: Callable[[Place, int, int], Meet]

    def load(self) -> None:
        """Import the library."""
        self.measured.load()

    def work(self, place: Place, station: Station) -> None:
        """Do one client's part."""
        orders = Orders.of(place)
        clients = orders.task.clients
        if orders.task.kind == "crowd":
            allow_files(clients)
        if orders.task.kind != "crowd":
            self._take_part(place, station)
        elif place.client_id == 0:
            kept = self.serve(place, clients)
            station.say("serving", None)
            threading.Event().wait()
            del kept
        else:
            station.wait_until_told()
            told = meet_in_threads(clients, orders.rounds, lambda number: self.connect(place, clients, number))
            station.say("measured", told)
            threading.Event().wait()

    def _take_part(self, place: Place, station: Station) -> None:
        face, leave = self.join(place)
        station.say("measured", asyncio.run(take_part(face, place)))
        station.wait_until_told()
        leave()


@dataclass(frozen=True, slots=True)
class _JaxServices:
    client: Any

    async def get(self, key: str) -> bytes:
        value: bytes = self.client.key_value_try_get_bytes(key)
        return value

    async def set(self, key: str, value: bytes) -> None:
        self.client.key_value_set_bytes(key, value, allow_overwrite=True)

    async def meet(self, name: str, number: int) -> None:
        self.client.wait_at_barrier(f"{name}/{number}", _TIMEOUT * 1000)

    def blocking(self) -> None:
        return None


def _join_jax(place: Place) -> tuple[Face, Callable[[], None]]:
    distributed = importlib.import_module("jax").distributed
    address = place.jobs[0]
    distributed.initialize(address, place.num_clients, place.client_id, coordinator_bind_address=address)
    client = importlib.import_module("jax._src.distributed").global_state.client
    return _JaxServices(client), distributed.shutdown


def _jax_runtime() -> Any:
    return importlib.import_module("jax._src.lib")._jax


def _serve_jax(place: Place, clients: int) -> object:
    return _jax_runtime().get_distributed_runtime_service(place.jobs[0], clients)


def _connect_jax(place: Place, clients: int, client_id: int) -> Meet:
    client = _jax_runtime().get_distributed_runtime_client(
        place.jobs[0], client_id, init_timeout=_TIMEOUT, use_compression=True
    )
    client.connect()  # returns when all have connected
    return lambda number: client.wait_at_barrier(f"crowd/{number}", _TIMEOUT * 1000)


@dataclass(frozen=True, slots=True)
class _TorchServices:
    store: Any
    clients: int

    async def get(self, key: str) -> bytes:
        value: bytes = self.store.get(key)
        return value

    async def set(self, key: str, value: bytes) -> None:
        self.store.set(key, value)
        self.store.check([key])  # a set alone is not acknowledged

    async def meet(self, name: str, number: int) -> None:
        _meet_at(self.store, f"{name}/{number}", self.clients)

    def blocking(self) -> None:
        return None


def _meet_at(store: Any, name: str, clients: int) -> None:
    """Meet in the way that the store has: one call, where it has that, or a counter and a key that the last sets."""
    if hasattr(store, "barrier"):
        store.barrier(name, clients)
        return
    if store.add(f"{name}/count", 1) == clients:
        store.set(f"{name}/all", b"")
    store.wait([f"{name}/all"])


def _open_store(place: Place, *, hosts: bool) -> Any:
    store = importlib.import_module("torch.distributed").TCPStore
    return store(LOOPBACK, place.ports[0], is_master=hosts, wait_for_workers=False)


def _join_torch(place: Place) -> tuple[Face, Callable[[], None]]:
    store = _open_store(place, hosts=place.client_id == 0)
    return _TorchServices(store, place.num_clients), lambda: None


def _serve_torch(place: Place, clients: int) -> object:
    return _open_store(place, hosts=True)


def _connect_torch(place: Place, clients: int, client_id: int) -> Meet:
    store = _open_store(place, hosts=False)
    _meet_at(store, "crowd/connected", clients)
    return lambda number: _meet_at(store, f"crowd/{number}", clients)


TCPSTORE = dataclasses.replace(TORCH, name="TCPStore")
JAX_SERVICES = Other(JAX, _join_jax, _serve_jax, _connect_jax)
TORCH_SERVICES = Other(TCPSTORE, _join_torch, _serve_torch, _connect_torch)
