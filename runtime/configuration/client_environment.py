"""The environment of a client on this machine: its job's addresses, its id, and no other job's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...devices.gpu.visible_devices import COMMON_VISIBLE_VARIABLE, VISIBLE_VARIABLE
from ...processes.report import LAUNCHER
from ...transport.tcp.interfaces import free_ports
from .environment import LOCAL_CLIENT_ID, NUM_LOCAL_CLIENTS
from .handed_tokens import TOKEN, TOKEN_FD

# Variables that describe a job to bringup and to others: a client must see this job alone.
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
    """Return `count` different loopback addresses with free ports."""
    return tuple(f"127.0.0.1:{port}" for port in free_ports(count))


def client_environment(
    environ: Mapping[str, str],
    addresses: Sequence[str],
    client_id: int,
    *,
    launcher: str = "",
    token_descriptor: int | None = None,
) -> dict[str, str]:
    """Return the environment of one client.

    Args:
        environ: This process's.
        addresses: Those of all clients.
        client_id: The client's.
        launcher: The prefix of the files in which the client reports to its launcher, or empty.
        token_descriptor: The descriptor, which the client inherits, of the token of the job; `None` where the
            environment says how its clients know each other.
    """
    others = {*IDENTITY, COMMON_VISIBLE_VARIABLE, LAUNCHER, *(() if token_descriptor is None else (TOKEN, TOKEN_FD))}
    kept = {name: value for name, value in environ.items() if name not in others}
    if token_descriptor is not None:
        kept[TOKEN_FD] = str(token_descriptor)
    if launcher:
        kept[LAUNCHER] = launcher
    if VISIBLE_VARIABLE in kept:
        # A client with another value there has been given devices of its own meanwhile, as by a script.
        kept[COMMON_VISIBLE_VARIABLE] = kept[VISIBLE_VARIABLE]
    return kept | {
        "BRINGUP_JOBS": ",".join(addresses),
        "BRINGUP_CLIENT_ID": str(client_id),
        "BRINGUP_NUM_CLIENTS": str(len(addresses)),
        # All clients are on this machine, and divide its devices.
        LOCAL_CLIENT_ID: str(client_id),
        NUM_LOCAL_CLIENTS: str(len(addresses)),
        # Its output is a pipe, which Python would buffer by kilobytes.
        "PYTHONUNBUFFERED": "1",
    }
