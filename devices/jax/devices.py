"""Conversion of jax's devices to devices of a job. Does not import jax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ...errors import ConfigurationError
from ..base import CoreLocation, LocalDevice


class JaxDevice(Protocol):
    """The part of `jax.Device` that every platform has. Those of TPUs have `coords`, `core_on_chip` as well."""

    @property
    def id(self) -> int:
        """The id, unique among the processes that jax knows of."""
        ...

    @property
    def platform(self) -> str:
        """`cpu`, `gpu`, `tpu`, ..."""
        ...

    @property
    def device_kind(self) -> str:
        """The model."""
        ...


def local_devices_of(
    chosen: Sequence[JaxDevice],
    everything: Sequence[JaxDevice],
    *,
    is_global: bool,
    fingerprints: Sequence[str] | None = None,
) -> tuple[LocalDevice, ...]:
    """Return the devices of a client, in the order that is given.

    Ids and locations are jax's own where its view is that of the whole job. Where jax knows of this process alone,
    every client's ids begin with 0, and so do the coordinates: they say nothing about the job, and are left out.

    Args:
        chosen: the jax devices that this client brings to the job.
        everything: all jax devices of all processes that jax knows of.
        is_global: whether those processes are the clients of the job.
        fingerprints: of each device, where any is known.
    """
    depth = 1 + max((place.z for place in map(_coordinates, everything) if place is not None), default=0)
    return tuple(
        LocalDevice(
            kind=device.device_kind or device.platform,
            core_id=device.id if is_global else None,
            location=_location(device, depth) if is_global else None,
            fingerprint=fingerprint,
        )
        for device, fingerprint in zip(chosen, fingerprints or [""] * len(chosen), strict=True)
    )


def describe_devices(devices: Sequence[JaxDevice]) -> str:
    """Return a summary of devices: `8 of platform cpu (cpu)`."""
    kinds = sorted({f"{device.platform} ({device.device_kind})" for device in devices})
    return f"{len(devices)} of platform {', '.join(kinds)}"


def refuse_megacore(devices: Sequence[JaxDevice], client_id: int) -> None:
    """Raise `ConfigurationError` where the two cores of a chip are separate devices, which jax cannot join."""
    if any((place := _coordinates(device)) is not None and place.core for device in devices):
        raise ConfigurationError(
            f"enable_megacore=True on client {client_id}: jax has each core of these chips "
            f"({describe_devices(devices)}) as a device of its own, and does not join them; leave enable_megacore out."
        )


def _location(device: JaxDevice, depth: int) -> CoreLocation | None:
    """Return where a device is. Several slices are stacked along z, as each has coordinates of its own."""
    place = _coordinates(device)
    return None if place is None else place._replace(z=place.z + depth * int(getattr(device, "slice_index", 0) or 0))


def _coordinates(device: JaxDevice) -> CoreLocation | None:
    coords = getattr(device, "coords", None)
    if coords is None:
        return None
    x, y, z = (*map(int, coords), 0, 0, 0)[:3]
    return CoreLocation(x, y, z, int(getattr(device, "core_on_chip", 0) or 0))
