"""The clients of bringup: real systems where each is a process, and real service channels where one process has all."""

from __future__ import annotations

import asyncio
import importlib
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..libraries import BRINGUP, INSECURE
from ..worker import LOOPBACK
from .work import Face, Orders, allow_files, crowd_result, run_on, take_part

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ....runtime.blocking import SyncSystem
    from ....runtime.client.service_client import ServiceClient
    from ....runtime.drivers.service_transport import Route
    from ....runtime.system import System
    from ....transport.ports import LinkIdentity, ServiceLink, ServiceReceiver
    from ....transport.security.token import Token
    from ..libraries import Library
    from ..worker import Assignment, HostPipe

_JOB_ID = "b" * 32


class _Services:
    """The services of a system."""

    def __init__(self, system: System) -> None:
        self._system = system
        self.get = system.kv.get

    async def set(self, key: str, value: bytes) -> None:
        await self._system.kv.set(key, value, overwrite=True)

    async def meet(self, name: str, number: int) -> None:
        await self._system.barrier(name)

    def blocking(self) -> Face:
        return _BlockingServices(importlib.import_module("bringup.sync").current())


@dataclass(frozen=True, slots=True)
class _BlockingServices:
    system: SyncSystem

    async def get(self, key: str) -> bytes:
        return self.system.kv.get(key)

    async def set(self, key: str, value: bytes) -> None:
        self.system.kv.set(key, value, overwrite=True)

    async def meet(self, name: str, number: int) -> None:
        self.system.barrier(name)

    def blocking(self) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Bringup:
    """The `Program` of bringup's clients.

    Attributes:
        library: The library, with TLS or without.
    """

    library: Library

    def load(self) -> None:
        """Import all that a run needs."""
        self.library.load()
        importlib.import_module("bringup.sync").initialize  # noqa: B018 - the name loads its module
        importlib.import_module("....runtime.drivers.service_server", __package__)

    def work(self, assignment: Assignment, host: HostPipe) -> None:
        """Do one client's part."""
        orders = Orders.of(assignment)
        if orders.task.kind != "crowd":
            run_on(orders.loop, lambda: _take_part(assignment, host, insecure=self.library is INSECURE))
            return
        token = None if self.library is INSECURE else _token()
        if assignment.client_id == 0:
            run_on(
                "uvloop" if _has_uvloop() else "asyncio", lambda: _serve(assignment, host, orders.task.clients, token)
            )
        else:
            run_on(orders.loop, lambda: _meet_as_crowd(assignment, host, orders, token))


BRINGUP_SERVICES = Bringup(BRINGUP)
INSECURE_SERVICES = Bringup(INSECURE)


def _token() -> Token:
    """The token of this user, which clients of loopback jobs use."""
    from ....runtime.configuration.user_token import user_token

    return user_token(os.environ)


def _has_uvloop() -> bool:
    return importlib.util.find_spec("uvloop") is not None


async def _take_part(assignment: Assignment, host: HostPipe, *, insecure: bool) -> None:
    bringup = importlib.import_module("bringup")
    place = {"jobs": assignment.jobs, "client_id": assignment.client_id}
    system = await bringup.initialize("SIM", **place, insecure=insecure)
    host.say("measured", await take_part(_Services(system), assignment))
    await asyncio.to_thread(host.wait_for_order)
    await system.shutdown()


# A crowd. A process has one peer at most, so its clients use the layer below a peer as a peer does.


def identity(client_id: int) -> LinkIdentity:
    """The identity of a client of a crowd."""
    from ....transport.ports import LinkIdentity

    return LinkIdentity(_JOB_ID, 1, client_id, 1000 + client_id)


async def _serve(assignment: Assignment, host: HostPipe, clients: int, token: Token | None) -> None:
    """Serve as client 0's runtime does, until this process is killed."""
    from ....runtime.configuration.options import Options
    from ....runtime.drivers.service_server import ServiceServer
    from ....runtime.machines.service_machine import ServiceMachine
    from ....transport.credentials import credentials_of
    from ....transport.network import GrpcNetwork

    allow_files(clients)
    machine = ServiceMachine(clients, Options().kv_max_bytes, lambda _: "in a crowd", tuple)
    server = ServiceServer(machine, lambda sender: sender == identity(sender.client_id), time.monotonic)
    network = GrpcNetwork(
        own=None,
        loopback=True,
        bind_address=LOOPBACK,
        ring_port=assignment.ports[0],
        num_clients=clients,
        credentials=credentials_of(token, 0),
    )
    listener = await network.serve_links(identity(0).incarnation, server.welcome, is_host=True)
    host.say("serving", None)
    await listener.accept(identity(0), identity(clients - 1))


def make_client(assignment: Assignment, client_id: int, token: Token | None) -> ServiceClient:
    """One client of a crowd, which links at its first call."""
    from ....runtime.client.service_client import ServiceClient
    from ....runtime.drivers.service_transport import RemoteRoute
    from ....transport.addresses import Address
    from ....transport.credentials import credentials_of
    from ....transport.network import GrpcNetwork

    clients, credentials = Orders.of(assignment).task.clients, credentials_of(token, client_id)
    network = GrpcNetwork(own=None, loopback=True, num_clients=clients, credentials=credentials)
    address = Address(LOOPBACK, assignment.ports[0])

    def connect(receiver: ServiceReceiver) -> Coroutine[Any, Any, ServiceLink]:
        return network.connect_services(address, identity(client_id), identity(0), receiver)

    def make_route(deliver: Callable[[Any], None]) -> Route:
        return RemoteRoute(connect, deliver)

    return ServiceClient(make_route, lambda other: f"client {other}")


async def _meet_as_crowd(assignment: Assignment, host: HostPipe, orders: Orders, token: Token | None) -> None:
    clients = orders.task.clients
    allow_files(clients)
    crowd = [make_client(assignment, client_id, token) for client_id in range(clients)]
    host.wait_for_order()
    began = time.monotonic()
    results = await asyncio.gather(*(_meet(client, orders.rounds) for client in crowd))
    host.say("measured", crowd_result(began, results))


async def _meet(client: ServiceClient, rounds: int) -> list[tuple[float, float]]:
    """Meet all others over and over; returns the times at which this client came to each round, and left it."""
    from ....runtime.client.service_client import barrier_request

    stamps = []
    for _ in range(rounds + 1):
        came = time.monotonic()
        await client.call(barrier_request("crowd", None, None))
        stamps.append((came, time.monotonic()))
    return stamps
