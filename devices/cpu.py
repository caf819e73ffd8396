"""The `CPU` backend: the processors that this process may use."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from ..errors import ConfigurationError, DeviceNotFoundError
from .base import BackendConfig, Discovery, Health, LocalDevice
from .cpu_quota import find_cpu_quota
from .selection import select_local_devices

__all__ = ["CpuBackend"]

# More than this is a slip of the keyboard, and would only cost memory on every client.
_MAX_LOGICAL_DEVICES = 65_536


class CpuBackend:
    """Logical CPU devices on the processors that the affinity mask of this process allows.

    There are `num_logical_cpu_devices` of them, or one for each usable CPU. They have no hardware ids (the merge
    gives each its position in the job) and no location. A cgroup quota is reported, and changes no count.

    Args:
        config: `num_logical_cpu_devices` and `local_device_ids` matter here.
        root: the directory that holds `proc` and `sys`.

    Raises:
        ConfigurationError: `num_logical_cpu_devices` is out of range.
    """

    device_type = "CPU"
    simulated = False

    def __init__(self, config: BackendConfig, *, root: Path = Path("/")) -> None:
        count = config.num_logical_cpu_devices
        if count is not None and not 1 <= count <= _MAX_LOGICAL_DEVICES:
            raise ConfigurationError(
                f"num_logical_cpu_devices={count} on client {config.client_id}: a client has from 1 to "
                f"{_MAX_LOGICAL_DEVICES} logical CPU devices; leave it out for one for each usable CPU."
            )
        self._config = config
        self._root = root
        self._started_on: frozenset[int] = frozenset()

    def discover(self) -> Discovery:
        """Count the usable CPUs, and say what limits them."""
        usable, online = _usable_cpus(), _online_cpus(self._root)
        detail = f"{len(usable)} CPUs usable by this process ({format_cpus(usable)})"
        if online:
            detail += f" of {len(online)} online"
        detail += f", {self._kind()}"
        quota = find_cpu_quota(self._root)
        if quota is not None:
            detail += f"; the cgroup quota is {quota.cpus:g} CPUs ({quota.source})"
        return Discovery(present=bool(usable), detail=detail)

    def start(self) -> Sequence[LocalDevice]:
        """Make the logical devices.

        Raises:
            ConfigurationError: `local_device_ids` names devices that this client does not have.
            DeviceNotFoundError: this process may use no CPU.
        """
        usable = _usable_cpus()
        if not usable:
            raise DeviceNotFoundError(
                f"client {self._config.client_id} may use no CPU: its affinity mask is empty. Check its cpuset.",
                client_id=self._config.client_id,
            )
        count = self._config.num_logical_cpu_devices or len(usable)
        owner = f"client {self._config.client_id} (CPU)"
        devices = select_local_devices([LocalDevice(self._kind())] * count, self._config.local_device_ids, owner=owner)
        self._started_on = usable
        return devices

    def check_health(self) -> Health:
        """Compute something known, and compare the CPUs with those that `start` found."""
        if not self._started_on:
            return Health(ok=False, detail="the CPU backend is not started")
        if not _arithmetic_is_right():
            return Health(ok=False, detail="a computation with a known result gave another one")
        lost = self._started_on - _usable_cpus()
        if lost == self._started_on:
            return Health(ok=False, detail=f"none of the CPUs that start found ({format_cpus(lost)}) is usable now")
        online = _online_cpus(self._root)
        gone = lost - online if online else frozenset()
        if gone:
            return Health(ok=False, detail=f"CPUs went offline since start: {format_cpus(gone)}")
        if lost:
            # Somebody narrowed the mask on purpose: worth a word, no sign of a defect.
            return Health(ok=True, detail=f"CPUs taken from this process since start: {format_cpus(lost)}")
        return Health(ok=True)

    def stop(self) -> None:
        """Forget the devices: there is nothing to release."""
        self._started_on = frozenset()

    def _kind(self) -> str:
        try:
            # Line by line: the kernel composes this file as it is read, and the first processor will do.
            with (self._root / "proc/cpuinfo").open(errors="replace") as lines:
                values = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
                model = next(filter(None, values), "")
        except OSError:
            model = ""
        return model or platform.processor() or platform.machine() or "cpu"


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
    """Read CPU numbers as the kernel writes them; what is not a number is left out."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def _usable_cpus() -> frozenset[int]:
    if sys.platform != "linux":
        return frozenset(range(os.cpu_count() or 1))
    return frozenset(os.sched_getaffinity(0))


def _online_cpus(root: Path) -> frozenset[int]:
    """Return the CPUs that the kernel runs, or nothing where it does not say."""
    try:
        return parse_cpus((root / "sys/devices/system/cpu/online").read_text(errors="replace"))
    except OSError:
        return frozenset()


def _arithmetic_is_right() -> bool:
    integers = sum(number * number for number in range(1000)) == 332_833_500
    return integers and sum(2.0**-power for power in range(1, 50)) == 1.0 - 2.0**-49
