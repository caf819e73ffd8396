"""What tells the TPU chips of all hosts apart: the address on the bus, and the kernel that gave it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .chips import TpuChip
from .slices import SliceCore


def boot_id(root: Path) -> str:
    """Return what the running kernel drew when it started, alike in all containers of a host; nothing without one."""
    try:
        return (root / "proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def chip_fingerprints(booted: str, chips: Sequence[TpuChip], cores: Sequence[SliceCore]) -> list[str]:
    """Return a text for each core, the same for those of one chip.

    Nothing says which chip on the bus is which of libtpu's. Where a process has all of both, the order does not matter:
    each chip is claimed once. Where the numbers differ, nothing is claimed, and all texts are empty.

    Args:
        booted: the kernel's `boot_id`.
        chips: those on the bus that this process uses.
        cores: all of libtpu's in this process.
    """
    places = sorted({(core.slice_index, core.coords) for core in cores})
    if not booted or len(places) != len(chips):
        return [""] * len(cores)
    texts = {place: f"{booted}/{chip.pci_address}" for place, chip in zip(places, chips, strict=True)}
    return [texts[core.slice_index, core.coords] for core in cores]
