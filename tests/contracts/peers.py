"""A job whose peers all run on one event loop, with simulated devices: the drivers, without threads or processes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from bringup.devices.base import BackendConfig
from bringup.devices.sim.backend import SimBackend
from bringup.devices.thread import BackendThread
from bringup.errors import NotInitializedError
from bringup.runtime.client.service_client import ServiceClient, barrier_request
from bringup.runtime.drivers.coordinator import CoordinatorDriver
from bringup.runtime.drivers.health import DeviceWatch
from bringup.runtime.drivers.latch import Latch
from bringup.runtime.drivers.peer import CoordinationPeer
from bringup.runtime.drivers.service_server import ServiceServer
from bringup.runtime.machines.coordinator.config import CoordinatorConfig
from bringup.runtime.machines.coordinator.machine import CoordinatorMachine
from bringup.runtime.machines.failure_errors import fresh
from bringup.runtime.machines.peer import events as ev
from bringup.runtime.machines.peer.config import PeerConfig
from bringup.runtime.machines.peer.machine import PeerMachine
from bringup.runtime.machines.service_machine import ServiceMachine
from bringup.transport.addresses import Address
from bringup.transport.wire.messages import TopologyReply
from bringup.transport.wire.services import ServiceReply, ServiceRequest

from .places import JOB_ID, Place


class JobOfPeers:
    """The peers of one job; each runs from `start` until it ends or the job is closed.

    Args:
        environment: the settings of the SIM backends.
        group_size: as in `CoordinatorConfig`.
        settings: fields of `PeerConfig`.

    Attributes:
        detours: where some clients reach the coordinator, where that is not its own address.
        services: how each client calls the coordination services.
    """

    def __init__(
        self,
        place: Place,
        num_clients: int,
        environment: Mapping[str, str] | None = None,
        group_size: int = 0,
        **settings: Any,
    ) -> None:
        self.peers: dict[int, CoordinationPeer] = {}
        self.runs: dict[int, asyncio.Task[None]] = {}
        self.detours: dict[int, Address] = {}
        self.services: dict[int, ServiceClient] = {}
        self._machine: CoordinatorMachine | None = None
        self._place = place
        self._num_clients = num_clients
        self._environment = environment or {}
        self._group_size = group_size
        self._settings: dict[str, Any] = {
            "initialization_timeout": 10.0,
            "heartbeat_interval": 0.2,
            "heartbeat_timeout": 5.0,
            "shutdown_timeout": 5.0,
        } | settings

    def start(self, *client_ids: int) -> None:
        """Start some clients, or all."""
        for client_id in client_ids or range(self._num_clients):
            peer = self.peers[client_id] = self._make(client_id)
            self.services[client_id] = ServiceClient(peer.service_route, lambda other: f"host-{other}")
            self.runs[client_id] = asyncio.create_task(self._run(peer, self.services[client_id]))

    async def _run(self, peer: CoordinationPeer, services: ServiceClient) -> None:
        async def watch() -> None:
            error = await peer.failed.wait()
            services.end(lambda: fresh(error))

        watching = asyncio.create_task(watch())
        try:
            await peer.run()
        finally:
            watching.cancel()
            await asyncio.wait([watching])
            services.end(lambda: peer.failed.value or NotInitializedError("the system was shut down"))

    async def ups(self) -> list[ev.Up]:
        """Wait until all that were started are up."""
        ups = await asyncio.gather(*(peer.up.wait() for peer in self.peers.values()))
        return [up for up in ups if up is not None]

    async def failures(self, *, but: tuple[int, ...] = ()) -> list[BaseException]:
        """Wait until all that were started, but some, have failed."""
        return await asyncio.gather(*(peer.failed.wait() for i, peer in self.peers.items() if i not in but))

    async def all_have_registered_but(self, *absent: int) -> None:
        """Wait until all that were started know that only `absent` are still to come."""
        while any(set(peer.machine.progress(0.0).missing) != set(absent) for peer in self.peers.values()):  # noqa: ASYNC110 - pure: it tells nobody
            await asyncio.sleep(0.001)

    @property
    def registered(self) -> set[int]:
        """The clients that the coordinator knows."""
        return set() if self._machine is None else {member.client_id for member in self._machine._members}

    async def barrier(self, *client_ids: int, name: str = "all", timeout: float = 10.0) -> None:
        """Let some clients, or all, meet."""
        who = client_ids or tuple(self.peers)
        await asyncio.gather(*(self.call(i, barrier_request(name, None, timeout)) for i in who))

    async def call(self, client_id: int, make: Callable[[int], ServiceRequest]) -> ServiceReply:
        """Let a client make a call."""
        return await self.services[client_id].call(make)

    async def leave(self) -> list[tuple[int, ...]]:
        """Shut all down; returns whom each missed."""
        return await asyncio.gather(*(peer.leave() for peer in self.peers.values()))

    def _make(self, client_id: int) -> CoordinationPeer:
        network = self._place.peer(client_id)
        coordinator = services = None
        if client_id == 0:
            machine = self._machine = CoordinatorMachine(self._coordinator_config())
            services = ServiceServer(
                ServiceMachine(self._num_clients, 2**20, machine.whereabouts, machine.dead),
                lambda sender: machine.is_member(sender.client_id, sender.incarnation),
                time.monotonic,
            )
            coordinator = CoordinatorDriver(
                machine,
                network,
                time.monotonic,
                lambda: TopologyReply((), b"", "there is no such job"),
                services.leave,
            )
        config = BackendConfig(client_id=client_id, num_clients=self._num_clients, environment=self._environment)
        return CoordinationPeer(
            PeerMachine(self._peer_config(client_id), time.monotonic()),
            up=Latch(),
            failed=Latch(),
            devices=DeviceWatch(
                BackendThread(SimBackend(config), name=f"devices-{client_id}", client_id=client_id),
                client_id,
                opening_timeout=10.0,
                device_timeout=10.0,
                interval=30.0,
            ),
            network=network,
            coordinator=coordinator,
            advertise_host=None,
            clock=time.monotonic,
            services=services,
        )

    def _coordinator_config(self) -> CoordinatorConfig:
        return CoordinatorConfig(
            num_clients=self._num_clients,
            job_name="worker",
            job_id=JOB_ID,
            heartbeat_interval=self._settings["heartbeat_interval"],
            heartbeat_timeout=self._settings["heartbeat_timeout"],
            group_size=self._group_size,
        )

    def _peer_config(self, client_id: int) -> PeerConfig:
        return PeerConfig(
            client_id=client_id,
            num_clients=self._num_clients,
            job_name="worker",
            coordinator_address=str(self.detours.get(client_id, self._place.coordinator)),
            addresses=None,
            device_type="SIM",
            incarnation=1000 + client_id,
            hostname=f"host-{client_id}",
            pid=client_id,
            package_version="0",
            **self._settings,
        )


@contextlib.asynccontextmanager
async def job_of_peers(place: Place, num_clients: int, **settings: Any) -> AsyncIterator[JobOfPeers]:
    """Yield a job, and end what is left of it afterwards."""
    job = JobOfPeers(place, num_clients, **settings)
    try:
        yield job
    finally:
        for client_id, running in job.runs.items():
            if not running.done():
                job.peers[client_id].abort(RuntimeError("the test is over"))
        await asyncio.gather(*job.runs.values())
