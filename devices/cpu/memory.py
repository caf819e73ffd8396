"""The memory of this machine: its size, the limits of this process, and its errors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .cgroups import ControlGroup, control_groups, read_words

_KIB = 1024
# In version 1 a number near the largest page count stands for "no limit".
_NO_LIMIT = 1 << 60


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """A limit on memory.

    Attributes:
        bytes: how much may be used.
        source: the file that sets it.
    """

    bytes: int
    source: str


@dataclass(frozen=True, slots=True)
class MemoryErrors:
    """Memory errors of this machine since it started.

    Attributes:
        uncorrectable: errors that the memory controllers could not correct.
        retired: bytes that the kernel has taken out of use.
    """

    uncorrectable: int
    retired: int


def memory_total(path: Path) -> int | None:
    """Return the `MemTotal` of a `meminfo` file (the machine's, or a NUMA node's) in bytes, or `None`."""
    return _kilobytes(path, "MemTotal:")


def find_memory_limit(root: Path = Path("/")) -> MemoryLimit | None:
    """Return the tightest limit among the cgroups of this process and their ancestors, or `None`.

    Args:
        root: the directory that holds `proc` and the mounted hierarchies.
    """
    limits = (_limit(group) for group in control_groups("memory", root))
    return min((limit for limit in limits if limit is not None), key=lambda limit: limit.bytes, default=None)


def read_memory_errors(root: Path = Path("/")) -> MemoryErrors:
    """Return the kernel's counts so far; 0 where it does not say.

    Args:
        root: the directory that holds `proc` and `sys`.
    """
    counts = (read_words(path) for path in (root / "sys/devices/system/edac/mc").glob("mc*/ue_count"))
    uncorrectable = sum(int(words[0]) for words in counts if words and words[0].isdecimal())
    return MemoryErrors(uncorrectable, _kilobytes(root / "proc/meminfo", "HardwareCorrupted:") or 0)


def format_bytes(count: int) -> str:
    """Write a number of bytes for a person: `1.5 GiB`."""
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.3g} {unit}" if value < 1000 else f"{value:.0f} {unit}"


def _limit(group: ControlGroup) -> MemoryLimit | None:
    name = "memory.max" if group.version == 2 else "memory.limit_in_bytes"
    words = read_words(group.folder / name)
    if len(words) != 1 or not words[0].isdecimal() or int(words[0]) >= _NO_LIMIT:
        return None
    return MemoryLimit(int(words[0]), str(group.directory / name))


def _kilobytes(path: Path, name: str) -> int | None:
    """Return the value of a line of a `meminfo` file, in bytes."""
    words = read_words(path)
    try:
        return int(words[words.index(name) + 1]) * _KIB
    except (ValueError, IndexError):
        return None
