"""The CPU quota of this process, from its cgroups of versions 1 and 2."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from .cgroups import ControlGroup, control_groups, read_words


@dataclass(frozen=True, slots=True)
class CpuQuota:
    """A limit on processor time.

    Attributes:
        cpus: processor seconds per second, e.g. 1.5.
        source: the file that sets it.
    """

    cpus: float
    source: str

    @property
    def whole_cpus(self) -> int:
        """The quota as a number of CPUs, rounded up, at least 1."""
        return max(1, math.ceil(self.cpus))


def find_cpu_quota(root: Path = Path("/")) -> CpuQuota | None:
    """Return the tightest quota among the cgroups of this process and their ancestors, or `None`.

    Args:
        root: the directory that holds `proc` and the mounted hierarchies.
    """
    quotas = (_quota(group) for group in control_groups("cpu", root))
    return min((quota for quota in quotas if quota is not None), key=lambda quota: quota.cpus, default=None)


def _quota(group: ControlGroup) -> CpuQuota | None:
    if group.version == 2:
        name, words = "cpu.max", read_words(group.folder / "cpu.max")
    else:
        name = "cpu.cfs_quota_us"
        words = [*read_words(group.folder / name), *read_words(group.folder / "cpu.cfs_period_us")]
    # "max" and -1 both say that there is no limit.
    if len(words) != 2 or not all(word.isdecimal() and int(word) > 0 for word in words):
        return None
    return CpuQuota(int(words[0]) / int(words[1]), str(group.directory / name))
