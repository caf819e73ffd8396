"""The cgroups of this process, versions 1 and 2, and the folders of their limits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """One cgroup of this process, or an ancestor of it.

    Attributes:
        directory: where its files are, as this process sees the machine.
        folder: the same, below the root that was given.
        version: of the hierarchy, 1 or 2.
    """

    directory: PurePosixPath
    folder: Path
    version: int


@dataclass(frozen=True, slots=True)
class _Mount:
    """A mounted hierarchy: what of it is mounted, where, and its version."""

    root: PurePosixPath
    point: PurePosixPath
    version: int


def control_groups(controller: str, root: Path = Path("/")) -> Iterator[ControlGroup]:
    """Yield the cgroups that a controller limits this process by: its own, then their ancestors.

    What cannot be read is left out: a limit is a fact to report, not a condition.

    Args:
        controller: its name, e.g. `cpu`.
        root: the directory that holds `proc` and the mounted hierarchies.
    """
    groups = _groups(_read(root / "proc/self/cgroup"), controller)
    for mount in _mounts(_read(root / "proc/self/mountinfo"), controller):
        if (group := groups.get(mount.version)) is None:
            continue
        # In a container the mount may show only the part below the container's own group.
        inside = group.relative_to(mount.root) if group.is_relative_to(mount.root) else PurePosixPath()
        for part in (inside, *inside.parents):
            directory = mount.point / part
            yield ControlGroup(directory, root / directory.relative_to("/"), mount.version)


def read_words(path: Path) -> list[str]:
    """Return the words of a file, none where it cannot be read."""
    return _read(path).split()


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _groups(text: str, controller: str) -> dict[int, PurePosixPath]:
    """Parse `/proc/self/cgroup`: this process's group in the hierarchy of each version."""
    groups: dict[int, PurePosixPath] = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            groups[2] = PurePosixPath(path)
        elif controller in controllers.split(","):
            groups[1] = PurePosixPath(path)
    return groups


def _mounts(text: str, controller: str) -> Iterator[_Mount]:
    """Parse `/proc/self/mountinfo`: the mounts of the hierarchies that a controller may be in."""
    for line in text.splitlines():
        mount, _, kind = line.partition(" - ")
        fields, kinds = mount.split(), kind.split()
        if len(fields) < 5 or len(kinds) < 3:
            continue
        root, point = PurePosixPath(fields[3]), PurePosixPath(fields[4])
        if kinds[0] == "cgroup2":
            yield _Mount(root, point, 2)
        elif kinds[0] == "cgroup" and controller in kinds[2].split(","):
            yield _Mount(root, point, 1)
