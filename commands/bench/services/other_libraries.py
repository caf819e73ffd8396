"""The clients of the other libraries: jax's distributed client and torch's TCPStore, imported by name where used."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..libraries import JAX, TORCH, join_jax
from ..worker import LOOPBACK
from .work import Face, Meet, Orders, allow_files, meet_in_threads, take_part

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..libraries import Library
    from ..worker import Assignment, HostPipe

_TIMEOUT = 300


@dataclass(frozen=True, slots=True)
class Other:
    """A library with blocking calls; the `Program` of its clients.

    Attributes:
        library: The library.
        join: Brings one client up; returns its services, and a call that leaves.
        serve: Serves a crowd of so many clients; returns an object that must be kept alive.
        connect: Connects one client of a crowd, given their number and its id, and meets the others.
    """

    library: Library
    join: Callable[[Assignment], tuple[Face, Callable[[], None]]]
    serve: Callable[[Assignment, int], object]
    connect: Callable[[Assignment, int, int], Meet]

    def load(self) -> None:
        """Import the library."""
        self.library.load()

    def work(self, assignment: Assignment, host: HostPipe) -> None:
        """Do one client's part."""
        orders = Orders.of(assignment)
        clients = orders.task.clients
        if orders.task.kind != "crowd":
            self._take_part(assignment, host)
            return
        allow_files(clients)
        if assignment.client_id == 0:
            kept = self.serve(assignment, clients)
            host.say("serving", None)
            threading.Event().wait()
            del kept
        else:
            host.wait_for_order()
            found = meet_in_threads(clients, orders.rounds, lambda number: self.connect(assignment, clients, number))
            host.say("measured", found)
            threading.Event().wait()

    def _take_part(self, assignment: Assignment, host: HostPipe) -> None:
        face, leave = self.join(assignment)
        host.say("measured", asyncio.run(take_part(face, assignment)))
        host.wait_for_order()
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


def _join_jax(assignment: Assignment) -> tuple[Face, Callable[[], None]]:
    distributed = join_jax(assignment)
    client = importlib.import_module("jax._src.distributed").global_state.client
    return _JaxServices(client), distributed.shutdown


def _jax_runtime() -> Any:
    return importlib.import_module("jax._src.lib")._jax


def _serve_jax(assignment: Assignment, clients: int) -> object:
    return _jax_runtime().get_distributed_runtime_service(assignment.jobs[0], clients)


def _connect_jax(assignment: Assignment, clients: int, client_id: int) -> Meet:
    client = _jax_runtime().get_distributed_runtime_client(
        assignment.jobs[0], client_id, init_timeout=_TIMEOUT, use_compression=True
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
    """Meet by the store's own barrier, where it has one, or by a counter and a key that the last client sets."""
    if hasattr(store, "barrier"):
        store.barrier(name, clients)
        return
    if store.add(f"{name}/count", 1) == clients:
        store.set(f"{name}/all", b"")
    store.wait([f"{name}/all"])


def _open_store(assignment: Assignment, *, hosts: bool) -> Any:
    store = importlib.import_module("torch.distributed").TCPStore
    return store(LOOPBACK, assignment.ports[0], is_master=hosts, wait_for_workers=False)


def _join_torch(assignment: Assignment) -> tuple[Face, Callable[[], None]]:
    store = _open_store(assignment, hosts=assignment.client_id == 0)
    return _TorchServices(store, assignment.num_clients), lambda: None


def _serve_torch(assignment: Assignment, clients: int) -> object:
    return _open_store(assignment, hosts=True)


def _connect_torch(assignment: Assignment, clients: int, client_id: int) -> Meet:
    store = _open_store(assignment, hosts=False)
    _meet_at(store, "crowd/connected", clients)
    return lambda number: _meet_at(store, f"crowd/{number}", clients)


TCPSTORE = dataclasses.replace(TORCH, name="TCPStore")
JAX_SERVICES = Other(JAX, _join_jax, _serve_jax, _connect_jax)
TORCH_SERVICES = Other(TCPSTORE, _join_torch, _serve_torch, _connect_torch)
