"""The configuration of a peer in unit tests."""

from __future__ import annotations

from typing import Any

from bringup.runtime.machines.peer.config import PeerConfig


def peer_config(num_clients: int, **changes: Any) -> PeerConfig:
    """Return the configuration of client 1 on host `node-1`, with a heartbeat a second."""
    defaults: dict[str, Any] = {
        "client_id": 1,
        "job_name": "worker",
        "coordinator_address": "h0:9000",
        "addresses": None,
        "device_type": "SIM",
        "incarnation": 1001,
        "hostname": "node-1",
        "pid": 77,
        "package_version": "0",
        "initialization_timeout": 30.0,
        "heartbeat_interval": 1.0,
        "heartbeat_timeout": 10.0,
        "shutdown_timeout": 5.0,
    }
    return PeerConfig(num_clients=num_clients, **{**defaults, **changes})
