"""What a client that is started here is told of its job: addresses on this machine, and who it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...transport.listening import free_ports

__all__ = ["IDENTITY", "client_environment", "free_addresses"]

# What says who the clients are, to bringup and to others: a client must see this job and no other.
IDENTITY = (
    "DTENSOR_JOBS",
    "DTENSOR_CLIENT_ID",
    "DTENSOR_NUM_CLIENTS",
    "DTENSOR_JOB_NAME",
    "KERAS_DISTRIBUTION_JOB_ADDRESSES",
    "KERAS_DISTRIBUTION_NUM_PROCESSES",
    "KERAS_DISTRIBUTION_PROCESS_ID",
    "JAX_COORDINATOR_ADDRESS",
    "JAX_NUM_PROCESSES",
    "JAX_PROCESS_ID",
)


def free_addresses(count: int) -> tuple[str, ...]:
    """Return `count` loopback addresses whose ports are free at this moment, all different."""
    return tuple(f"127.0.0.1:{port}" for port in free_ports(count))


def client_environment(environ: Mapping[str, str], addresses: Sequence[str], client_id: int) -> dict[str, str]:
    """Return the environment of one client: who it is, and no variable that says otherwise."""
    kept = {name: value for name, value in environ.items() if name not in IDENTITY}
    return kept | {
        "BRINGUP_JOBS": ",".join(addresses),
        "BRINGUP_CLIENT_ID": str(client_id),
        "BRINGUP_NUM_CLIENTS": str(len(addresses)),
        # Its output is a pipe: Python would keep it back until there are kilobytes of it.
        "PYTHONUNBUFFERED": "1",
    }
