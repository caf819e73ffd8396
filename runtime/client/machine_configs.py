"""What the machines of a client are told of its plan."""

from __future__ import annotations

import os
import secrets
import socket

from ... import __version__
from ...devices.registry import known_type
from ..configuration.plan import Plan
from ..machines.coordinator.admission import CoordinatorConfig
from ..machines.peer.job_view import PeerConfig


def coordinator_config(plan: Plan) -> CoordinatorConfig:
    """Return what the coordinator of a job is told, which gets its id by that."""
    options, job = plan.options, plan.job
    return CoordinatorConfig(
        num_clients=job.num_clients,
        job_name=job.job_name,
        job_id=secrets.token_hex(16),
        addresses=job.jobs,
        heartbeat_interval=options.heartbeat_interval,
        heartbeat_timeout=options.heartbeat_timeout,
        stall_timeout=options.stall_timeout,
        has_services=plan.enable_coordination_service,
    )


def peer_config(plan: Plan) -> PeerConfig:
    """Return what a peer is told, which gets its incarnation by that."""
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
        share_devices=options.share_devices,
    )
