"""Restricting a client to some of its devices; every backend does it in the same way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from ..errors import ConfigurationError

__all__ = ["select_local_devices"]

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
