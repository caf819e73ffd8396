"""Conversion of libtpu's devices to devices of a job. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...errors import ConfigurationError, DeviceInitializationError
from ..base import CoreLocation
from .environment import TpuEnvironment
from .slices import MULTISLICE_IDS, SliceCore

# Kinds of TPU whose chips have two cores that libtpu can show as one device.
_TWO_CORES_IN_ONE = ("TPU v4", "TPU v5")


@dataclass(frozen=True, slots=True)
class JobCore:
    """A device of this client, as the job knows it.

    Attributes:
        core_id: unique in the job; `None` where libtpu knows only a part of the job.
        location: where it is; `None` as well then.
        members: which of the devices that libtpu gave it stands for, by position.
    """

    core_id: int | None
    location: CoreLocation | None
    members: tuple[int, ...]


def core_of(device: object) -> SliceCore:
    """Return the fields of a TPU device of jax, or of a device in libtpu's description of a slice.

    Raises:
        DeviceInitializationError: it lacks an attribute, or one is not what it should be.
    """
    try:
        x, y, z = (int(value) for value in (*device.coords, 0)[:3])  # type: ignore[attr-defined]
        core = SliceCore(
            id=int(device.id),  # type: ignore[attr-defined]
            process_index=int(device.process_index),  # type: ignore[attr-defined]
            coords=(x, y, z),
            core_on_chip=int(getattr(device, "core_on_chip", None) or 0),
            slice_index=int(getattr(device, "slice_index", None) or 0),
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise DeviceInitializationError(
            f"libtpu gave a device {str(device)[:80]!r} that does not say where it is: {error}. "
            "Install versions of jax and libtpu that belong together.",
            cause=str(error),
        ) from None
    if min(core.id, core.process_index, *core.coords, core.core_on_chip, core.slice_index) < 0:
        raise DeviceInitializationError(
            f"libtpu gave a device {str(device)[:80]!r} with a negative id or coordinate. "
            "This is likely a hardware failure: restart the job without that host.",
            cause=f"{core} is not possible",
        )
    return core


def cores_of_job(
    local: Sequence[SliceCore], everything: Iterable[SliceCore], num_clients: int, environment: TpuEnvironment
) -> tuple[JobCore, ...]:
    """Return the devices of a client as the job sees them, in libtpu's order.

    Where libtpu knows all clients of the job, ids are its own, and so are locations, but that slices are stacked along
    z. Where it knows the clients of this slice alone, and the environment tells which of the job's slices that is, both
    are what libtpu would give to several. Else its ids and coordinates begin with 0 on clients that it does not know
    of: there are none then.

    Args:
        local: the devices of this client.
        everything: all devices that libtpu knows of, those included.
        num_clients: how many clients the job has.
        environment: what is said of the job's slices.
    """
    known = list(everything)
    processes, slices = len({core.process_index for core in known}), {core.slice_index for core in known}
    cores = list(local)
    if processes != num_clients:
        if slices != {0} or processes * environment.num_slices != num_clients:
            return tuple(JobCore(None, None, (index,)) for index in range(len(cores)))
        cores = [_moved(core, environment.slice_id) for core in cores]
    depth = slice_depth(known)
    return tuple(JobCore(core.id, stacked_location(core, depth), (index,)) for index, core in enumerate(cores))


def slice_depth(cores: Iterable[SliceCore]) -> int:
    """Return the number of chips of a slice along z; the slices of a job are alike."""
    return 1 + max((core.coords[2] for core in cores), default=0)


def stacked_location(core: SliceCore, depth: int) -> CoreLocation:
    """Return the location of a core; slices are stacked along z, as a location has no slice number."""
    x, y, z = core.coords
    return CoreLocation(x, y, z + depth * core.slice_index, core.core_on_chip)


def join_chips(cores: Sequence[JobCore], kind: str, owner: str) -> tuple[JobCore, ...]:
    """Join the two cores of each chip to one device, for `enable_megacore`, in the order of the first cores.

    It has the location of the first core, and the id that TensorFlow's dtensor gives it: twice the chip's, which is
    that of the chip's first core. Where libtpu joins the cores by itself, its ids count chips, and are doubled.

    Args:
        cores: the devices of this client.
        kind: what libtpu calls them.
        owner: who has them, for errors.

    Raises:
        ConfigurationError: the chips have one core, or one of a chip's two is not this client's.
    """
    located = [core for core in cores if core.location is not None]
    if len(located) < len(cores):
        raise ConfigurationError(
            f"enable_megacore=True: libtpu does not know all clients of the job, so that {owner} cannot tell which "
            "cores share a chip; make the clients those of whole slices, or leave enable_megacore out."
        )
    chips: dict[tuple[int, ...], list[JobCore]] = {}
    for core in located:
        assert core.location is not None
        chips.setdefault(core.location[:3], []).append(core)
    if len(chips) == len(cores) and not any(core.location and core.location.core for core in located):
        return _doubled(located, kind, owner)
    return tuple(_joined(on_chip, owner) for on_chip in chips.values())


def _moved(core: SliceCore, slice_index: int) -> SliceCore:
    return core._replace(id=core.id + MULTISLICE_IDS * (slice_index + 1), slice_index=slice_index)


def _joined(on_chip: Sequence[JobCore], owner: str) -> JobCore:
    first, *others = sorted(on_chip, key=lambda core: core.location or ())
    assert first.location is not None
    if len(others) != 1 or first.location.core:
        raise ConfigurationError(
            f"enable_megacore=True joins the two cores of a chip, but {owner} has {len(on_chip)} core of the chip at "
            f"{first.location[:3]}; give the client whole chips, or leave enable_megacore out."
        )
    return JobCore(first.core_id, first.location, (*first.members, *others[0].members))


def _doubled(cores: Sequence[JobCore], kind: str, owner: str) -> tuple[JobCore, ...]:
    if kind not in _TWO_CORES_IN_ONE:
        raise ConfigurationError(
            f"enable_megacore=True joins the two cores of a chip, but the chips of {owner} are {kind}, with one core "
            "each; leave enable_megacore out."
        )
    return tuple(JobCore(_twice(core.core_id), core.location, core.members) for core in cores)


def _twice(core_id: int | None) -> int | None:
    if core_id is None:
        return None
    # The ids of a slice among several begin at a multiple, which is to stay.
    return core_id + core_id % MULTISLICE_IDS
