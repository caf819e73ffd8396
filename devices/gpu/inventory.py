"""The NVIDIA GPUs of this host, as NVML describes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..cpu.memory import format_bytes
from .nvml import LINKS_MAX, Nvml, NvmlCallError
from .sysfs import numa_node_of

_MIG_ENABLED = 1
_REMOTE_IS_SWITCH = 2


@dataclass(frozen=True, slots=True)
class MigDevice:
    """A MIG device: a part of a GPU in MIG mode.

    Attributes:
        uuid: `MIG-...`.
        gpu_instance: the number of its GPU instance.
        compute_instance: the number of its compute instance in that.
        name: e.g. `NVIDIA H100 80GB HBM3 MIG 1g.10gb`.
    """

    uuid: str
    gpu_instance: int
    compute_instance: int
    name: str


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU.

    Attributes:
        index: its number in the library and in `nvidia-smi`: they count along the PCI bus.
        uuid: `GPU-...`.
        name: the model.
        pci: its PCI address, as the kernel writes it, e.g. `0000:41:00.0`.
        memory: in bytes; `None` where the driver does not say.
        numa_node: the NUMA node that it is near to; `None` where the kernel does not say.
        links: how many NVLinks lead straight to which other GPU, by PCI address.
        switch_links: how many NVLinks lead to switches.
        mig: its MIG devices; `None` where it is not in MIG mode.
    """

    index: int
    uuid: str
    name: str
    pci: str
    memory: int | None = None
    numa_node: int | None = None
    links: tuple[tuple[str, int], ...] = ()
    switch_links: int = 0
    mig: tuple[MigDevice, ...] | None = None

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.name}, PCI {self.pci}, {self.uuid})"


@dataclass(frozen=True, slots=True)
class Inventory:
    """The GPUs of this host and their problems.

    Attributes:
        gpus: the GPUs that answer, by index.
        driver: the version of the driver.
        problems: a sentence on each that does not answer.
        denied: the numbers of those that this process may not use.
    """

    gpus: tuple[Gpu, ...]
    driver: str
    problems: tuple[str, ...] = ()
    denied: tuple[int, ...] = ()

    def describe(self, gpu: Gpu) -> str:
        """Return a description of a GPU."""
        parts = [gpu.uuid, f"PCI {gpu.pci}"]
        if gpu.numa_node is not None:
            parts.append(f"NUMA node {gpu.numa_node}")
        if gpu.memory is not None:
            parts.append(format_bytes(gpu.memory))
        numbers = {other.pci: other.index for other in self.gpus}
        parts += [f"{count} NVLinks to {_end(numbers.get(pci), pci)}" for pci, count in gpu.links]
        if gpu.switch_links:
            parts.append(f"{gpu.switch_links} NVLinks to switches")
        if gpu.mig is not None:
            parts.append(f"MIG mode, with {len(gpu.mig)} MIG devices")
        return f"GPU {gpu.index}: {gpu.name} ({', '.join(parts)})"


def read_inventory(nvml: Nvml, root: Path = Path("/")) -> Inventory:
    """Return the inventory of all GPUs that this process may see.

    Args:
        nvml: a session.
        root: the directory that holds `sys`.

    Raises:
        NvmlCallError: the library fails as a whole.
    """
    gpus: list[Gpu] = []
    problems: list[str] = []
    denied: list[int] = []
    for index in range(nvml.ask("nvmlDeviceGetCount") or 0):
        try:
            handle = nvml.ask("nvmlDeviceGetHandleByIndex", index)
            if handle is None:
                denied.append(index)
            else:
                gpus.append(_read(nvml, handle, index, root))
        except NvmlCallError as error:
            problems.append(f"GPU {index} does not answer: {error} (error {error.code} of libnvidia-ml)")
    driver = nvml.ask("nvmlSystemGetDriverVersion") or "of unknown version"
    return Inventory(tuple(gpus), driver, tuple(problems), tuple(denied))


def _end(number: int | None, pci: str) -> str:
    return f"PCI {pci}" if number is None else f"GPU {number}"


def _read(nvml: Nvml, handle: Any, index: int, root: Path) -> Gpu:
    pci = _address(nvml.ask("nvmlDeviceGetPciInfo", handle))
    memory = nvml.ask_optional("nvmlDeviceGetMemoryInfo", handle)
    ends = Counter(_link_ends(nvml, handle))
    switch_links = ends.pop("", 0)
    mode = nvml.ask_optional("nvmlDeviceGetMigMode", handle)
    return Gpu(
        index=index,
        uuid=nvml.ask("nvmlDeviceGetUUID", handle) or f"GPU {index}, of unknown UUID",
        name=nvml.ask("nvmlDeviceGetName", handle) or "NVIDIA GPU",
        pci=pci,
        memory=None if memory is None else int(memory.total),
        numa_node=numa_node_of(pci, root),
        links=tuple(sorted(ends.items())),
        switch_links=switch_links,
        mig=tuple(_mig_devices(nvml, handle)) if mode is not None and mode[0] == _MIG_ENABLED else None,
    )


def _address(info: Any) -> str:
    """Write a PCI address as the kernel does: the library gives the domain more digits."""
    return "" if info is None else f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0"


def _link_ends(nvml: Nvml, handle: Any) -> Iterator[str]:
    """Yield, for each NVLink that is up, the address of the GPU at its other end, or nothing for a switch."""
    for link in range(LINKS_MAX):
        is_up = nvml.ask_optional("nvmlDeviceGetNvLinkState", handle, link)
        if is_up is None:
            return
        if is_up:
            kind = nvml.ask_optional("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
            is_switch = kind == _REMOTE_IS_SWITCH
            yield "" if is_switch else _address(nvml.ask_optional("nvmlDeviceGetNvLinkRemotePciInfo", handle, link))


def _mig_devices(nvml: Nvml, handle: Any) -> Iterator[MigDevice]:
    for index in range(nvml.ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
        device = nvml.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
        if device is not None:
            yield MigDevice(
                uuid=nvml.ask("nvmlDeviceGetUUID", device) or "",
                gpu_instance=nvml.ask("nvmlDeviceGetGpuInstanceId", device) or 0,
                compute_instance=nvml.ask("nvmlDeviceGetComputeInstanceId", device) or 0,
                name=nvml.ask("nvmlDeviceGetName", device) or "NVIDIA MIG device",
            )
