"""The GPUs visible to this process, in CUDA's order: `CUDA_VISIBLE_DEVICES`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .inventory import Gpu, MigDevice

VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"
COMMON_VISIBLE_VARIABLE = "BRINGUP_HOST_CUDA_VISIBLE_DEVICES"
"""The launcher's own value of the variable, equal for all its clients on this host; not set where it had none."""
_ORDER_VARIABLE = "CUDA_DEVICE_ORDER"


@dataclass(frozen=True, slots=True)
class VisibleGpu:
    """A device of CUDA: a GPU, or a MIG device."""

    gpu: Gpu
    mig: MigDevice | None = None

    def __str__(self) -> str:
        return str(self.gpu) if self.mig is None else f"{self.mig.name} ({self.mig.uuid}) on {self.gpu}"

    @property
    def uuid(self) -> str:
        """The UUID that CUDA gives it."""
        return self.gpu.uuid if self.mig is None else self.mig.uuid

    @property
    def kind(self) -> str:
        """The model."""
        return self.gpu.name if self.mig is None else self.mig.name


@dataclass(frozen=True, slots=True)
class Visible:
    """The visible devices.

    Attributes:
        gpus: in CUDA's order.
        note: what the variable says, and what CUDA makes of it; empty where it is not set.
        is_cut_short: whether it names something that is not there, which was hardly meant.
        is_certain: whether these GPUs are meant: numbers are CUDA's, which count along the PCI bus only if told to.
    """

    gpus: tuple[VisibleGpu, ...]
    note: str = ""
    is_cut_short: bool = False
    is_certain: bool = True


def is_own_choice(environment: Mapping[str, str]) -> bool:
    """Whether the variable was set for this client alone: then its devices are not shared with other clients."""
    chosen = environment.get(VISIBLE_VARIABLE)
    return chosen is not None and chosen != environment.get(COMMON_VISIBLE_VARIABLE)


def visible_gpus(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> Visible:
    """Parse the variable as CUDA does.

    Its parts are numbers, or UUIDs of GPUs or of MIG devices, or their beginnings, as the first part is. CUDA stops at
    the first that it does not know (`-1` is given for that on purpose), and shows nothing where one is given twice.

    Args:
        gpus: all of the host, along the PCI bus.
        environment: of the process.
    """
    value = environment.get(VISIBLE_VARIABLE)
    if value is None:
        return Visible(tuple(map(_whole, gpus)))
    told = f"{VISIBLE_VARIABLE}={value!r}"
    if not value.strip():
        return Visible((), f"{told} hides all GPUs")
    parts = value.split(",")
    by_number = not parts[0].startswith(("GPU-", "MIG-"))
    found: list[VisibleGpu] = []
    note, is_cut_short = told, False
    for part in parts:
        device = _numbered(part, gpus) if by_number else _named(part, parts[0][:4], gpus)
        if device is None:
            if _number(part) != -1:
                is_cut_short = True
                note = f"{told}: CUDA ignores it from {part.strip()!r} on, as there is no such GPU"
            break
        if device in found:
            return Visible((), f"{told} hides all GPUs, as it names {part.strip()!r} twice", True)
        found.append(device)
    if by_number and _is_ordered_by_speed(gpus, environment):
        note += f"; its numbers count from the fastest GPU on, as {_ORDER_VARIABLE}=PCI_BUS_ID is not set"
    return Visible(tuple(found), note, is_cut_short, not by_number or _is_ordered_by_bus(environment))


def _whole(gpu: Gpu) -> VisibleGpu:
    """Return what CUDA makes of a GPU: of one in MIG mode, its first MIG device."""
    return VisibleGpu(gpu, gpu.mig[0] if gpu.mig else None)


def _number(part: str) -> int | None:
    """Return the number at the beginning of a part, as strtol would: `1gpu` is 1."""
    match = re.match(r"\s*([+-]?[0-9]+)", part)
    return int(match.group(1)) if match else None


def _numbered(part: str, gpus: Sequence[Gpu]) -> VisibleGpu | None:
    number = _number(part)
    return _whole(gpus[number]) if number is not None and 0 <= number < len(gpus) else None


def _named(part: str, kind: str, gpus: Sequence[Gpu]) -> VisibleGpu | None:
    """Return the only device whose UUID begins as given."""
    name = part.strip()
    if not name.startswith(kind):
        return None
    if kind == "GPU-":
        found = [_whole(gpu) for gpu in gpus if gpu.uuid.startswith(name)]
    else:
        found = [VisibleGpu(gpu, mig) for gpu in gpus for mig in gpu.mig or () if _is_called(gpu, mig, name)]
    return found[0] if len(found) == 1 else None


def _is_called(gpu: Gpu, mig: MigDevice, name: str) -> bool:
    """Whether a MIG device is meant, by its UUID or in the form of drivers before 470: `MIG-GPU-<uuid>/1/0`."""
    return mig.uuid.startswith(name) or name == f"MIG-{gpu.uuid}/{mig.gpu_instance}/{mig.compute_instance}"


def _is_ordered_by_speed(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> bool:
    return len({gpu.name for gpu in gpus}) > 1 and not _is_ordered_by_bus(environment)


def _is_ordered_by_bus(environment: Mapping[str, str]) -> bool:
    return environment.get(_ORDER_VARIABLE, "").strip() == "PCI_BUS_ID"
