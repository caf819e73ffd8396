"""The clients of bringup: real systems where each is a process, and real service channels where one process has all."""

from __future__ import annotations

import asyncio
import importlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..libraries import BRINGUP
from ..worker import LOOPBACK
from .crowd import allow_files, crowd_result
from .work import Face, Orders, run_on, take_part

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ....runtime.blocking import SyncSystem
    from ....runtime.client.service_client import ServiceClient
    from ....runtime.drivers.service_transport import Way
    from ....runtime.system import System
    from ....transport.ports import LinkIdentity, ServiceLink, ServiceReceiver
    from ..worker import Place, Station

_JOB_ID = "b" * 32


class _Services:
    """A system's."""

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


class Bringup:
    """The harness's `Library`.

    Attributes:
        measured: The library as it is.
        orderly: Whether its clients leave one another in order at the end of a run of processes.
    """

    measured = BRINGUP

    def load(self) -> None:
        """Import all that a run needs."""
        self.measured.load()
        importlib.import_module("bringup.sync").initialize  # noqa: B018 - the name loads its module
        importlib.import_module("....runtime.drivers.service_server", __package__)

    def work(self, place: Place, station: Station) -> None:
        """Do one client's part."""
        orders = Orders.of(place)
        if orders.task.kind != "crowd":
            run_on(orders.loop, lambda: _take_part(place, station))
        elif place.client_id == 0:
            run_on("uvloop" if _has_uvloop() else "asyncio", lambda: _serve(place, station, orders.task.clients))
        else:
            run_on(orders.loop, lambda: _meet_as_crowd(place, station, orders))


BRINGUP_SERVICES = Bringup()


def _has_uvloop() -> bool:
    return importlib.util.find_spec("uvloop") is not None


async def _take_part(place: Place, station: Station) -> None:
    bringup = importlib.import_module("bringup")
    system = await bringup.initialize("SIM", jobs=place.jobs, client_id=place.client_id)
    station.say("measured", await take_part(_Services(system), place))
    await asyncio.to_thread(station.wait_until_told)
    await system.shutdown()


# One process has all clients. It has one peer at most, so what is below a peer is used as a peer uses it.


def identity(client_id: int) -> LinkIdentity:
    """Who a client of a crowd is."""
    from ....transport.ports import LinkIdentity

    return LinkIdentity(_JOB_ID, 1, client_id, 1000 + client_id)


async def _serve(place: Place, station: Station, clients: int) -> None:
    """Serve as client 0's runtime does, for as long as this process lives."""
    from ....runtime.configuration.options import Options
    from ....runtime.drivers.service_server import ServiceServer
    from ....runtime.machines.service_machine import Services
    from ....transport.network import GrpcNetwork

    allow_files(clients)
    machine = Services(clients, Options().kv_max_bytes, lambda _: "in a crowd", lambda: range(clients))
    server = ServiceServer(machine, lambda sender: sender == identity(sender.client_id), time.monotonic)
    network = GrpcNetwork(own=None, loopback=True, bind_address=LOOPBACK, ring_port=place.ports[0])
    listener = await network.serve_links(identity(0).incarnation, server.welcome)
    station.say("serving", None)
    await listener.accept(identity(0), identity(clients - 1))


def make_client(place: Place, client_id: int) -> ServiceClient:
    """Return one client of a crowd, whose link is made when it first calls."""
    from ....runtime.client.service_client import ServiceClient
    from ....runtime.drivers.service_transport import RemoteWay
    from ....transport.addresses import Address
    from ....transport.network import GrpcNetwork

    network = GrpcNetwork(own=None, loopback=True)
    address = Address(LOOPBACK, place.ports[0])

    def connect(receiver: ServiceReceiver) -> Coroutine[Any, Any, ServiceLink]:
        return network.connect_services(address, identity(client_id), identity(0), receiver)

    def make_way(deliver: Callable[[Any], None]) -> Way:
        return RemoteWay(connect, deliver)

    return ServiceClient(make_way, lambda other: f"client {other}")


async def _meet_as_crowd(place: Place, station: Station, orders: Orders) -> None:
    clients = orders.task.clients
    allow_files(clients)
    crowd = [make_client(place, client_id) for client_id in range(clients)]
    station.wait_until_told()
    began = time.monotonic()
    results = await asyncio.gather(*(_meet(client, orders.rounds) for client in crowd))
    station.say("measured", crowd_result(began, results))


async def _meet(client: ServiceClient, rounds: int) -> list[tuple[float, float]]:
    """Meet all others over and over; returns when this client came, and was let go, by round."""
    from ....runtime.client.service_client import barrier_request

    stamps = []
    for _ in range(rounds + 1):
        came = time.monotonic()
        await client.call(barrier_request("crowd", None, None))
        stamps.append((came, time.monotonic()))
    return stamps
