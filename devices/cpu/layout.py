"""The layout of CPUs: physical cores, sockets and NUMA nodes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from .memory import memory_total

_CPUS = "sys/devices/system/cpu"
_NODES = "sys/devices/system/node"


@dataclass(frozen=True, slots=True)
class NumaNode:
    """A NUMA node: CPUs near the same memory.

    Attributes:
        id: the kernel's number of it.
        cpus: its CPUs.
        memory: its memory, in bytes; `None` where the kernel does not say.
    """

    id: int
    cpus: frozenset[int]
    memory: int | None


@dataclass(frozen=True, slots=True)
class CpuLayout:
    """The layout of some CPUs; empty where the kernel does not say.

    Attributes:
        cores: the CPUs of each physical core, ascending.
        sockets: the numbers of the sockets.
        nodes: the NUMA nodes, ascending, with those of the CPUs that are theirs.
    """

    cores: tuple[frozenset[int], ...]
    sockets: frozenset[int]
    nodes: tuple[NumaNode, ...]

    def node_of(self, cpu: int) -> int | None:
        """Return the number of the NUMA node of a CPU, or `None` where the kernel does not say."""
        return next((node.id for node in self.nodes if cpu in node.cpus), None)


def read_layout(cpus: Collection[int], root: Path = Path("/")) -> CpuLayout:
    """Return the layout of the given CPUs.

    Args:
        cpus: their numbers.
        root: the directory that holds `sys`.
    """
    asked = frozenset(cpus)
    topologies = [root / f"{_CPUS}/cpu{cpu}/topology" for cpu in sorted(asked)]
    # The second name is that of kernels before 5.5.
    cores = {read_cpus(path / "core_cpus_list") or read_cpus(path / "thread_siblings_list") for path in topologies}
    sockets = (read_cpus(path / "physical_package_id") for path in topologies)
    return CpuLayout(
        cores=tuple(sorted((core & asked for core in cores if core), key=min)),
        sockets=frozenset().union(*sockets),
        nodes=tuple(_nodes(asked, root)),
    )


def read_cpus(path: Path) -> frozenset[int]:
    """Return the CPU numbers in a file of the kernel, none where it cannot be read."""
    try:
        return parse_cpus(path.read_text(errors="replace"))
    except OSError:
        return frozenset()


def format_cpus(cpus: Collection[int]) -> str:
    """Write CPU numbers as the kernel does: `0-3,8`."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1][-1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(f"{first}-{last}" if first < last else str(first) for first, last in runs) or "none"


def parse_cpus(text: str) -> frozenset[int]:
    """Parse CPU numbers as the kernel writes them; other text is left out."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def _nodes(cpus: frozenset[int], root: Path) -> list[NumaNode]:
    folder = root / _NODES
    nodes = (
        NumaNode(
            number, read_cpus(folder / f"node{number}/cpulist") & cpus, memory_total(folder / f"node{number}/meminfo")
        )
        for number in sorted(read_cpus(folder / "online"))
    )
    return [node for node in nodes if node.cpus]
