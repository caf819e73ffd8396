"""Selection of a client's devices, the same for every backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from ..errors import ConfigurationError
from .base import BackendConfig

T = TypeVar("T")


def select_local_devices(devices: Sequence[T], local_device_ids: Sequence[int] | None, *, owner: str) -> tuple[T, ...]:
    """Keep the devices whose local index is in `local_device_ids`, in the order of their local index.

    Args:
        devices: all devices of this client, by local index.
        local_device_ids: the indices to keep, in any order; `None` for all.
        owner: who has the devices, for errors, e.g. `client 3 (CPU)`.

    Raises:
        ConfigurationError: an index is out of range or given twice, or none is given.
    """
    if local_device_ids is None:
        return tuple(devices)
    given = f"local_device_ids={list(local_device_ids)}"
    valid = f"{owner} has {len(devices)} devices: give distinct ids from 0 to {len(devices) - 1}, or None for all"
    if not local_device_ids:
        raise ConfigurationError(f"{given} leaves no device; {valid}.")
    wanted = sorted(local_device_ids)
    if len(set(wanted)) < len(wanted):
        raise ConfigurationError(f"{given} names a device twice; {valid}.")
    outside = [index for index in wanted if not 0 <= index < len(devices)]
    if outside:
        raise ConfigurationError(f"{given}: no such device: {', '.join(map(str, outside))}; {valid}.")
    return tuple(devices[index] for index in wanted)


def select_local_share(devices: Sequence[T], config: BackendConfig, *, owner: str, variable: str) -> tuple[T, ...]:
    """Keep this client's share of the accelerators of a host, which all its clients see.

    `local_device_ids` says which these are. Else, where the launcher says how many clients the host has, each gets as
    many as every other, in the order of their numbers; and where it does not, a client gets all.

    Args:
        devices: all devices that this client sees, by local index.
        config: of the backend.
        owner: who has the devices, for errors, e.g. `client 3 (GPU)`.
        variable: the environment variable that gives a client devices of its own, for errors.

    Raises:
        ConfigurationError: `local_device_ids` does not fit, or the clients cannot have as many devices each.
    """
    number, count = config.local_client_id, config.num_local_clients
    if config.local_device_ids is not None or number is None or count is None:
        return select_local_devices(devices, config.local_device_ids, owner=owner)
    each, rest = divmod(len(devices), count)
    if rest:
        raise ConfigurationError(
            f"{owner} is one of {count} clients of its host (BRINGUP_NUM_LOCAL_CLIENTS={count}), and the devices that "
            f"it sees, {len(devices)}, cannot be divided equally among them. Start as many clients as get equal "
            f"numbers, or give each client its own: by local_device_ids, or by {variable}, set for each of them; or "
            "let them share devices (share_devices=True)."
        )
    return tuple(devices[number * each : (number + 1) * each])
