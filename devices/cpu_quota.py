"""How much processor time the cgroups of this process allow it, with cgroup versions 1 and 2."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

__all__ = ["CpuQuota", "find_cpu_quota"]


@dataclass(frozen=True, slots=True)
class CpuQuota:
    """A limit on processor time.

    Attributes:
        cpus: processor seconds per second, e.g. 1.5.
        source: the file that sets it.
    """

    cpus: float
    source: str


@dataclass(frozen=True, slots=True)
class _Mount:
    """A mounted hierarchy that controls processor time: what of it is mounted, where, and its version."""

    root: PurePosixPath
    point: PurePosixPath
    version: int


def find_cpu_quota(root: Path = Path("/")) -> CpuQuota | None:
    """Return the tightest quota among the cgroups of this process and their ancestors, or `None`.

    What cannot be read counts as no limit: a quota is a fact to report, not a condition.

    Args:
        root: the directory that holds `proc` and the mounted hierarchies.
    """
    groups = _groups(_read(root / "proc/self/cgroup"))
    quotas: list[CpuQuota] = []
    for mount in _mounts(_read(root / "proc/self/mountinfo")):
        group = groups.get(mount.version)
        if group is not None:
            quotas += _quotas(root, mount, group)
    return min(quotas, key=lambda quota: quota.cpus, default=None)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _groups(text: str) -> dict[int, PurePosixPath]:
    """Parse `/proc/self/cgroup`: this process's group in the hierarchy of each version."""
    groups: dict[int, PurePosixPath] = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            groups[2] = PurePosixPath(path)
        elif "cpu" in controllers.split(","):
            groups[1] = PurePosixPath(path)
    return groups


def _mounts(text: str) -> Iterator[_Mount]:
    """Parse `/proc/self/mountinfo`: the mounts of hierarchies that control processor time."""
    for line in text.splitlines():
        mount, _, kind = line.partition(" - ")
        fields, kinds = mount.split(), kind.split()
        if len(fields) < 5 or len(kinds) < 3:
            continue
        root, point = PurePosixPath(fields[3]), PurePosixPath(fields[4])
        if kinds[0] == "cgroup2":
            yield _Mount(root, point, 2)
        elif kinds[0] == "cgroup" and "cpu" in kinds[2].split(","):
            yield _Mount(root, point, 1)


def _quotas(root: Path, mount: _Mount, group: PurePosixPath) -> Iterator[CpuQuota]:
    # In a container the mount may show only the part below the container's own group.
    inside = group.relative_to(mount.root) if group.is_relative_to(mount.root) else PurePosixPath()
    for part in (inside, *inside.parents):
        directory = mount.point / part
        quota = _quota(root, directory, mount.version)
        if quota is not None:
            yield quota


def _quota(root: Path, directory: PurePosixPath, version: int) -> CpuQuota | None:
    folder = root / directory.relative_to("/")
    if version == 2:
        source, words = directory / "cpu.max", _read(folder / "cpu.max").split()
    else:
        source = directory / "cpu.cfs_quota_us"
        words = [*_read(folder / "cpu.cfs_quota_us").split(), *_read(folder / "cpu.cfs_period_us").split()]
    # "max" and -1 both say that there is no limit.
    if len(words) != 2 or not all(word.isdecimal() and int(word) > 0 for word in words):
        return None
    return CpuQuota(int(words[0]) / int(words[1]), str(source))
