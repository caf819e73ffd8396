"""The composition root of a client: which machines, drivers, devices and transport a peer is made of."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType

from ... import __version__
from ...devices.deferred import prepare_backend
from ...devices.registry import known_type
from ...devices.thread import BackendThread
from ...transport.addresses import Address
from ...transport.forks import SOCKETS
from ...transport.ports import Network
from ..configuration.plan import Plan
from ..drivers.coordinator import CoordinatorDriver
from ..drivers.health import DeviceWatch
from ..drivers.latch import Latch
from ..drivers.peer import CoordinationPeer
from ..drivers.service_server import ServiceServer
from ..machines.coordinator.config import CoordinatorConfig
from ..machines.coordinator.machine import CoordinatorMachine
from ..machines.groups import group_size_of
from ..machines.peer.config import PeerConfig
from ..machines.peer.events import Up
from ..machines.peer.machine import PeerMachine
from ..machines.service_machine import ServiceMachine
from .topology_query import topology_reply

# Of `initialization_timeout`, what a backend may take to be made: some must be left to tell the other clients of it.
_OPENING_SHARE = 0.9

# Seconds after `heartbeat_timeout` at which an unanswered link breaks: heartbeats must name the silent client first.
_LINK_GRACE = 1.0


def make_peer(
    plan: Plan,
    network: Network | None,
    import_module: Callable[[str], ModuleType],
    make_machine: Callable[[PeerConfig, float], PeerMachine] = PeerMachine,
    *,
    up: Latch[Up | None],
    failed: Latch[BaseException],
) -> CoordinationPeer:
    """Return the peer of a client, not yet running; called on the event loop that is to run it.

    Args:
        plan: of the client.
        network: reaches the other clients; `None` for a job of one client.
        import_module: imports a module on behalf of the backend's thread.
        make_machine: see `Parts`.
        up: set by the peer once the job is up.
        failed: set by the peer to the exception that ended the job.
    """
    options, job = plan.options, plan.job
    coordinator = services = None
    if job.client_id == 0:
        machine = CoordinatorMachine(coordinator_config(plan))
        services = _make_services(plan, machine) if plan.enable_coordination_service else None
        coordinator = CoordinatorDriver(
            machine,
            network,
            time.monotonic,
            lambda: topology_reply(up.value, job.job_name),
            services.leave if services is not None else lambda _: None,
        )
    return CoordinationPeer(
        make_machine(peer_config(plan), time.monotonic()),
        up=up,
        failed=failed,
        devices=_make_devices(plan, import_module),
        network=network,
        coordinator=coordinator,
        advertise_host=options.advertise_address or _own_host(plan),
        clock=time.monotonic,
        services=services,
    )


def _make_devices(plan: Plan, import_module: Callable[[str], ModuleType]) -> DeviceWatch:
    options, client_id = plan.options, plan.job.client_id
    config = replace(plan.backend, import_module=import_module)
    backend = prepare_backend(plan.device_type, config, isolate=options.isolate_backend)
    return DeviceWatch(
        BackendThread(backend, name="bringup-devices", client_id=client_id, allow_empty=options.allow_empty),
        client_id,
        opening_timeout=min(options.device_timeout, _OPENING_SHARE * options.initialization_timeout),
        device_timeout=options.device_timeout,
        interval=options.health_interval,
    )


def _make_services(plan: Plan, coordinator: CoordinatorMachine) -> ServiceServer:
    machine = ServiceMachine(plan.job.num_clients, plan.options.kv_max_bytes, coordinator.whereabouts, coordinator.dead)
    return ServiceServer(
        machine, lambda sender: coordinator.is_member(sender.client_id, sender.incarnation), time.monotonic
    )


def make_network(plan: Plan) -> Network | None:
    """Return the network of a client; `None` where it is alone in its job and needs none."""
    if plan.job.is_alone:
        return None
    # gRPC takes 60 ms to load: not for a job of one client.
    from ...transport.credentials import credentials_of
    from ...transport.network import GrpcNetwork

    SOCKETS.use_network()
    own, options = plan.job.own_address, plan.options
    return GrpcNetwork(
        own=Address.parse(own) if own is not None else None,
        loopback=plan.job.is_loopback,
        bind_address=options.bind_address,
        ring_port=options.ring_port,
        patience=options.heartbeat_timeout + _LINK_GRACE,
        num_clients=plan.job.num_clients,
        credentials=credentials_of(plan.security, plan.job.client_id, plan.security_source),
    )


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a client that tests replace.

    Attributes:
        make_network: returns the network that reaches the other clients.
        make_machine: returns the machine of the peer, given its configuration and the time.
    """

    make_network: Callable[[Plan], Network | None] = make_network
    make_machine: Callable[[PeerConfig, float], PeerMachine] = PeerMachine


SHIPPED = Parts()


def _own_host(plan: Plan) -> str | None:
    own = plan.job.own_address
    return Address.parse(own).host if own is not None else None


def coordinator_config(plan: Plan) -> CoordinatorConfig:
    """Return the configuration of the job's coordinator, with a fresh job id."""
    options, job = plan.options, plan.job
    return CoordinatorConfig(
        num_clients=job.num_clients,
        job_name=job.job_name,
        job_id=secrets.token_hex(16),
        addresses=job.jobs,
        heartbeat_interval=options.heartbeat_interval,
        heartbeat_timeout=options.heartbeat_timeout,
        stall_timeout=options.stall_timeout,
        group_size=group_size_of(job.num_clients) if options.group_size is None else options.group_size,
        has_services=plan.enable_coordination_service,
    )


def peer_config(plan: Plan) -> PeerConfig:
    """Return the configuration of a client's peer, with a fresh incarnation."""
    options, job = plan.options, plan.job
    return PeerConfig(
        client_id=job.client_id,
        num_clients=job.num_clients,
        job_name=job.job_name,
        coordinator_address=job.coordinator_address or "localhost",
        addresses=job.jobs,
        device_type=known_type(plan.device_type),
        incarnation=secrets.randbits(64),
        hostname=socket.gethostname(),
        pid=os.getpid(),
        package_version=__version__,
        initialization_timeout=options.initialization_timeout,
        heartbeat_interval=options.heartbeat_interval,
        heartbeat_timeout=options.heartbeat_timeout,
        shutdown_timeout=options.shutdown_timeout,
        fails_when_unhealthy=options.unhealthy_action == "fail",
        allow_empty=options.allow_empty,
        share_devices=options.share_devices,
    )
