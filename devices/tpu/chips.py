"""The TPU chips of a host, as far as its file system tells. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

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
    """What there is on a host.

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
        """Whether there is a chip that this process can get at: one with a device file."""
        if any(node.startswith("/dev/accel") for node in self.nodes):
            return True
        # A /dev/vfio/N of its own may be any device's.
        known = [chip.node for chip in self.chips if chip.node]
        return bool(set(known) & set(self.nodes)) if known else bool(self.chips and self.nodes)

    def chips_of_process(self, visible: Collection[int] | None) -> tuple[TpuChip, ...]:
        """Return the chips that this process can use: a container sees the buses of the whole host.

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
