"""NVIDIA GPUs in sysfs, procfs and /dev, for errors where NVML is unavailable."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_PCI = "sys/bus/pci/devices"
_VENDOR = "0x10de"
# VGA and 3D controllers; the same cards also have audio and USB functions, and switches that are no GPUs.
_CLASSES = ("0x0300", "0x0302")


@dataclass(frozen=True, slots=True)
class GpuTraces:
    """The traces of NVIDIA GPUs in the file systems of the kernel.

    Attributes:
        nodes: device nodes by which this process reaches GPUs, e.g. `/dev/nvidia0`.
        pci: GPUs on the PCI bus of the host, which a container may see without being able to use them.
        driver: the version of the loaded kernel driver, empty without one.
    """

    nodes: tuple[str, ...]
    pci: tuple[str, ...]
    driver: str

    def __str__(self) -> str:
        nodes = ", ".join(self.nodes) or "no /dev/nvidia0 or other device node"
        driver = f"kernel driver {self.driver}" if self.driver else "no kernel driver (/proc/driver/nvidia/version)"
        pci = f"NVIDIA GPUs on the PCI bus: {', '.join(self.pci) or 'none'}"
        return f"{nodes}; {driver}; {pci}"


def find_gpu_traces(root: Path = Path("/")) -> GpuTraces:
    """Find traces of GPUs; unreadable files count as absent.

    Args:
        root: the directory that holds `dev`, `proc` and `sys`.
    """
    nodes = (path.name for path in _listed(root / "dev") if re.fullmatch(r"nvidia[0-9]+", path.name))
    pci = (path.name for path in _listed(root / _PCI) if _is_gpu(path))
    version = re.search(r"\b[0-9]{3,}\.[0-9.]+\b", _read(root / "proc/driver/nvidia/version"))
    return GpuTraces(
        nodes=tuple(f"/dev/{name}" for name in sorted(nodes, key=lambda name: int(name.removeprefix("nvidia")))),
        pci=tuple(sorted(pci)),
        driver=version.group() if version else "",
    )


def numa_node_of(pci: str, root: Path = Path("/")) -> int | None:
    """Return the NUMA node that a PCI device is near to, or `None` where the kernel does not say."""
    text = _read(root / _PCI / pci / "numa_node").strip()
    return int(text) if text.isdecimal() else None


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _is_gpu(path: Path) -> bool:
    return _read(path / "vendor").strip() == _VENDOR and _read(path / "class").startswith(_CLASSES)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
