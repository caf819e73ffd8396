"""Search for TPU chips in the file system: no device is opened, libtpu is not loaded."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from .chips import PCI_DEVICES, VENDOR, TpuChip, TpuFindings

# PCI device -> what libtpu calls it. v2 and v3 have one id, and differ in that of their subsystem.
_KINDS = {
    "0x0056": "TPU v4 lite",
    "0x005e": "TPU v4",
    "0x0062": "TPU v5",
    "0x0063": "TPU v5 lite",
    "0x006f": "TPU v6 lite",
    "0x0076": "TPU7x",
}
_OLD_DEVICE = "0x0027"
_OLD_KINDS = {"0x004e": "TPU v2", "0x004f": "TPU v3"}

_ACCEL_CLASS = "sys/class/accel"
_NODES = (("dev", re.compile(r"accel[0-9]+")), ("dev/vfio", re.compile(r"[0-9]+")))


def find_tpus(root: Path = Path("/")) -> TpuFindings:
    """Find the chips of this host.

    Args:
        root: the directory that holds `dev` and `sys`.
    """
    nodes = tuple(_nodes(root))
    paths = (root / node.lstrip("/") for node in nodes)
    denied = tuple(node for node, path in zip(nodes, paths, strict=True) if not os.access(path, os.R_OK | os.W_OK))
    return TpuFindings(_chips(root), nodes, denied)


def is_off_the_bus(chip: TpuChip, root: Path = Path("/")) -> bool:
    """Return whether a chip is gone from its bus, or does not answer: its configuration then reads as all ones."""
    device = root / PCI_DEVICES / chip.pci_address
    if _read(device / "vendor") != VENDOR:
        return True
    try:
        with (device / "config").open("rb") as config:
            return config.read(4) == b"\xff" * 4
    except OSError:
        return False


def boot_id(root: Path) -> str:
    """Return the kernel's boot id, the same in all containers of a host; empty where there is none."""
    return _read(root / "proc/sys/kernel/random/boot_id")


def _chips(root: Path) -> tuple[TpuChip, ...]:
    through_accel = _accel_nodes(root)
    found: dict[str, tuple[str, str, str]] = {}
    for device in _listed(root / PCI_DEVICES):
        if _read(device / "vendor") != VENDOR or not (kind := _kind(device)):
            continue
        # The functions of one chip differ in what follows the dot; the first is named.
        address = device.name
        node = through_accel.get(address) or _vfio_node(device)
        found.setdefault(address.rpartition(".")[0] or address, (kind, address, node))
    return tuple(TpuChip(index, *chip) for index, chip in enumerate(found.values()))


def _kind(device: Path) -> str:
    number = _read(device / "device")
    if number == _OLD_DEVICE:
        return _OLD_KINDS.get(_read(device / "subsystem_device"), "TPU v3")
    return _KINDS.get(number, "")


def _accel_nodes(root: Path) -> dict[str, str]:
    """Return which /dev/accelN is whose, by PCI address."""
    owners = ((entry.name, _link(entry / "device")) for entry in _listed(root / _ACCEL_CLASS))
    return {address: f"/dev/{name}" for name, address in owners if address}


def _vfio_node(device: Path) -> str:
    group = _link(device / "iommu_group")
    return f"/dev/vfio/{group}" if group.isdecimal() else ""


def _nodes(root: Path) -> Iterable[str]:
    for folder, pattern in _NODES:
        names = (path.name for path in _listed(root / folder) if pattern.fullmatch(path.name))
        yield from (f"/{folder}/{name}" for name in names)


def _listed(folder: Path) -> list[Path]:
    """Return what is in a folder, `accel2` before `accel10`; nothing where there is none."""
    try:
        return sorted(folder.iterdir(), key=lambda path: [(len(part), part) for part in re.split(r"(\d+)", path.name)])
    except OSError:
        return []


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip().lower()
    except OSError:
        return ""


def _link(path: Path) -> str:
    try:
        return Path(os.readlink(path)).name
    except OSError:
        return ""
