"""What a client that is started here is told of its job: addresses on this machine, and who it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..devices.gpu.visible_devices import COMMON_VISIBLE_VARIABLE, VISIBLE_VARIABLE
from ..processes.report import LAUNCHER
from ..runtime.configuration.local_clients import LOCAL_CLIENT_ID, NUM_LOCAL_CLIENTS
from ..transport.tcp.interfaces import free_ports

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


def client_environment(
    environ: Mapping[str, str], addresses: Sequence[str], client_id: int, *, launcher: str = ""
) -> dict[str, str]:
    """Return the environment of one client: who it is, and no variable that says otherwise.

    `launcher` is where it is to tell its launcher how it fares, or empty; see `process_report`.
    """
    others = (*IDENTITY, COMMON_VISIBLE_VARIABLE, LAUNCHER)
    kept = {name: value for name, value in environ.items() if name not in others}
    if launcher:
        kept[LAUNCHER] = launcher
    if VISIBLE_VARIABLE in kept:
        # A client that finds another value there has been given devices of its own meanwhile, as by a script.
        kept[COMMON_VISIBLE_VARIABLE] = kept[VISIBLE_VARIABLE]
    return kept | {
        "BRINGUP_JOBS": ",".join(addresses),
        "BRINGUP_CLIENT_ID": str(client_id),
        "BRINGUP_NUM_CLIENTS": str(len(addresses)),
        # All on this machine: they divide its devices.
        LOCAL_CLIENT_ID: str(client_id),
        NUM_LOCAL_CLIENTS: str(len(addresses)),
        # Its output is a pipe: Python would keep it back until there are kilobytes of it.
        "PYTHONUNBUFFERED": "1",
    }
