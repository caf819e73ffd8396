"""The TPU chips of a host, as far as its file system tells, and their fingerprints. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from .slices import SliceCore

VENDOR = "0x1ae0"
PCI_DEVICES = "sys/bus/pci/devices"


@dataclass(frozen=True, slots=True)
class TpuChip:
    """One chip of this host.

    Attributes:
        index: its position among the host's chips, in the order of their addresses.
        kind: what libtpu calls its devices, e.g. `TPU v5 lite`.
        pci_address: e.g. `0000:00:04.0`; of several functions, the first.
        node: the device file it is used through, e.g. `/dev/vfio/0`; empty where nothing says which it is.
    """

    index: int
    kind: str
    pci_address: str
    node: str = ""

    def __str__(self) -> str:
        node = f", {self.node}" if self.node else ""
        return f"chip {self.index} ({self.kind}, PCI {self.pci_address}{node})"


@dataclass(frozen=True, slots=True)
class TpuFindings:
    """The TPU chips and device files of a host.

    Attributes:
        chips: the chips on its PCI buses.
        nodes: the device files that may be chips', e.g. `/dev/accel0`, `/dev/vfio/0`.
        denied: those of them that this process may not read and write.
    """

    chips: tuple[TpuChip, ...] = ()
    nodes: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether there is a chip with a device file, which this process may open."""
        if any(node.startswith("/dev/accel") for node in self.nodes):
            return True
        # A /dev/vfio/N of its own may be any device's.
        known = [chip.node for chip in self.chips if chip.node]
        return bool(set(known) & set(self.nodes)) if known else bool(self.chips and self.nodes)

    def chips_of_process(self, visible: Collection[int] | None) -> tuple[TpuChip, ...]:
        """Return the chips that this process may use: a container sees the buses of the whole host.

        Args:
            visible: the indices that the environment allows; `None` for all.
        """
        return tuple(
            chip
            for chip in self.chips
            if (not chip.node or (chip.node in self.nodes and chip.node not in self.denied))
            and (visible is None or chip.index in visible)
        )

    def __str__(self) -> str:
        kinds = sorted({chip.kind for chip in self.chips})
        on_bus = f"{len(self.chips)} ({', '.join(kinds)})" if self.chips else "none"
        text = f"PCI devices of vendor {VENDOR} in /{PCI_DEVICES}: {on_bus}"
        text += f"; /dev/accel* and /dev/vfio/*: {', '.join(self.nodes) or 'none'}"
        if self.denied:
            text += f" (no permission for {', '.join(self.denied)})"
        return text


def chip_fingerprints(booted: str, chips: Sequence[TpuChip], cores: Sequence[SliceCore]) -> list[str]:
    """Return the fingerprint of each core, the same for the cores of a chip.

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
