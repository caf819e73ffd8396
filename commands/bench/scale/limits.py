"""The limits of this machine and of this user on the number of clients that run at once."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ....devices.cpu.cgroups import control_groups, read_words
from ....devices.cpu.memory import find_memory_limit, format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FILES, TASKS, MEMORY = "open files in one process", "threads", "of memory"

# The host has a pipe and a file of each client; client 0 has its connection.
_FILES = (64, 2)
_TASKS = (64, 12)  # 11 seen, most of them gRPC's
_MEMORY = (256 << 20, 14 << 20)  # 11 MiB seen for a forked client that is up
_NEEDS = {FILES: _FILES, TASKS: _TASKS, MEMORY: _MEMORY}


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit on something that clients need.

    Attributes:
        what: `FILES`, `TASKS` or `MEMORY`.
        most: Its number, or bytes.
        source: The setting, by the name under which a person finds it.
    """

    what: str
    most: int
    source: str


def shortage(clients: int, limits: Sequence[Limit]) -> str | None:
    """A sentence with the first limit that a number of clients exceeds; `None` where there is none."""
    for limit in limits:
        apart, each = _NEEDS[limit.what]
        need = apart + clients * each
        if need > limit.most:
            write = format_bytes if limit.what == MEMORY else str
            return (
                f"{clients} clients need about {write(need)} {limit.what}, and {limit.source} allows "
                f"{write(limit.most)}. Raise it, or measure fewer clients (--clients)."
            )
    return None


def find_limits(root: Path = Path("/")) -> Iterator[Limit]:
    """Yield the limits that apply to this process.

    Args:
        root: The directory that holds `proc` and the mounted hierarchies of cgroups.
    """
    yield from _resource_limit(FILES, resource.RLIMIT_NOFILE, "ulimit -n")
    if os.geteuid() != 0:  # the kernel exempts root
        yield from _resource_limit(TASKS, resource.RLIMIT_NPROC, "ulimit -u")
    for name in ("pid_max", "threads-max"):
        yield from _number(TASKS, root / "proc/sys/kernel" / name, f"/proc/sys/kernel/{name}")
    for group in control_groups("pids", root):
        yield from _number(TASKS, group.folder / "pids.max", str(group.directory / "pids.max"))
    if (limit := find_memory_limit(root)) is not None:
        yield Limit(MEMORY, limit.bytes, limit.source)
    yield from _available_memory(root / "proc/meminfo")


def _resource_limit(what: str, number: int, source: str) -> Iterator[Limit]:
    soft, _ = resource.getrlimit(number)
    if soft != resource.RLIM_INFINITY:
        yield Limit(what, soft, f"`{source}`")


def _number(what: str, path: Path, source: str) -> Iterator[Limit]:
    words = read_words(path)
    if words and words[0].isdecimal():
        yield Limit(what, int(words[0]), source)


def _available_memory(path: Path) -> Iterator[Limit]:
    words = read_words(path)
    if "MemAvailable:" in words:
        yield Limit(MEMORY, int(words[words.index("MemAvailable:") + 1]) << 10, "this machine's free memory")
