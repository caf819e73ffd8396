"""The `CPU` backend: the processors that this process may use."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ...errors import ConfigurationError, DeviceNotFoundError
from ..base import BackendConfig, CoreLocation, Discovery, Health, LocalDevice
from ..selection import select_local_devices
from .layout import CpuLayout, format_cpus, read_cpus, read_layout
from .memory import MemoryErrors, find_memory_limit, format_bytes, memory_total, read_memory_errors
from .quota import find_cpu_quota

LOCATION_VARIABLE = "BRINGUP_CPU_LOCATION"

# More than this is a slip of the keyboard, and would only cost memory on every client.
_MAX_LOGICAL_DEVICES = 65_536


class CpuBackend:
    """Logical CPU devices on the processors that this process may use.

    There are `num_logical_cpu_devices` of them. By default there is one for each CPU that the affinity masks of this
    process's threads allow (a cpuset narrows them), and no more than the processor time that its cgroups grant, rounded
    up. They have no hardware ids: the merge gives each its position in the job.

    They have no location either, unless the environment in the config asks for one: with `BRINGUP_CPU_LOCATION=numa`
    device i of n stands for the CPU at i/n of the usable ones, y is the NUMA node of that CPU, counted from 0 on each
    client, x counts the devices on that node, and z is the client.

    Args:
        config: `num_logical_cpu_devices`, `local_device_ids` and `environment` matter here.
        root: the directory that holds `proc` and `sys`.

    Raises:
        ConfigurationError: `num_logical_cpu_devices` is out of range, or `BRINGUP_CPU_LOCATION` is not known.
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
        self._located = _location_asked(config)
        self._root = root
        self._started_on: frozenset[int] = frozenset()
        self._errors_at_start = MemoryErrors(0, 0)

    def discover(self) -> Discovery:
        """Count the usable CPUs, and describe their layout and limits."""
        usable = _usable_cpus()
        if not usable:
            return Discovery(present=False, detail="no CPU is usable by this process: its affinity mask is empty")
        detail = f"{len(usable)} CPUs usable by this process ({format_cpus(usable)})"
        if online := _online_cpus(self._root):
            detail += f" of {len(online)} online"
        parts = [detail + _described(read_layout(usable, self._root)) + f", {self._kind()}", *self._limits()]
        if (count := self._count(usable)) != len(usable):
            parts.append(f"{count} devices")
        return Discovery(present=True, detail="; ".join(parts))

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
        count = self._count(usable)
        owner = f"client {self._config.client_id} (CPU)"
        cpus = [sorted(usable)[index * len(usable) // count] for index in range(count)]
        chosen = select_local_devices(cpus, self._config.local_device_ids, owner=owner)
        kind = self._kind()
        if self._located:
            layout = read_layout(usable, self._root)
            devices = [LocalDevice(kind, None, place) for place in _places(chosen, layout, self._config.client_id)]
        else:
            devices = [LocalDevice(kind)] * len(chosen)
        self._started_on, self._errors_at_start = usable, read_memory_errors(self._root)
        return tuple(devices)

    def check_health(self) -> Health:
        """Check a computation, and compare CPUs and memory errors with those at `start`."""
        if not self._started_on:
            return Health(ok=False, detail="the CPU backend is not started")
        if not _arithmetic_is_right():
            return Health(ok=False, detail="a computation with a known result gave another one")
        usable = _usable_cpus()
        if not usable:
            return Health(ok=False, detail="no CPU is usable by this process now")
        # A cpuset may move: this process runs as well on other CPUs.
        lost = self._started_on - usable
        online = _online_cpus(self._root)
        gone = lost - online if online else frozenset()
        if gone:
            return Health(ok=False, detail=f"CPUs went offline since start: {format_cpus(gone)}")
        errors = read_memory_errors(self._root)
        if (new := errors.uncorrectable - self._errors_at_start.uncorrectable) > 0:
            return Health(
                ok=False,
                detail=f"the memory controllers counted {new} uncorrectable errors since start: memory of this host "
                "fails; look for EDAC in its kernel log, and replace the module named there",
            )
        # What follows is worth a word, and no sign of a defect of what is in use.
        words: list[str] = []
        if lost:
            words.append(f"CPUs taken from this process since start: {format_cpus(lost)}")
            if given := usable - self._started_on:
                words.append(f"CPUs given to it: {format_cpus(given)}")
        if (retired := errors.retired - self._errors_at_start.retired) > 0:
            words.append(f"the kernel took {format_bytes(retired)} of failing memory out of use since start")
        return Health(ok=True, detail="; ".join(words))

    def stop(self) -> None:
        """Forget the devices: there is nothing to release."""
        self._started_on = frozenset()

    def _count(self, usable: frozenset[int]) -> int:
        if self._config.num_logical_cpu_devices is not None:
            return self._config.num_logical_cpu_devices
        quota = find_cpu_quota(self._root)
        return len(usable) if quota is None else min(len(usable), quota.whole_cpus)

    def _limits(self) -> list[str]:
        limits: list[str] = []
        if (total := memory_total(self._root / "proc/meminfo")) is not None:
            limits.append(f"{format_bytes(total)} of memory")
        memory = find_memory_limit(self._root)
        if memory is not None and (total is None or memory.bytes < total):
            limits.append(f"the cgroup limit is {format_bytes(memory.bytes)} of memory ({memory.source})")
        if (quota := find_cpu_quota(self._root)) is not None:
            limits.append(f"the cgroup quota is {quota.cpus:g} CPUs ({quota.source})")
        return limits

    def _kind(self) -> str:
        try:
            # Line by line: the kernel composes this file as it is read, and the first processor will do.
            with (self._root / "proc/cpuinfo").open(errors="replace") as lines:
                values = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
                model = next(filter(None, values), "")
        except OSError:
            model = ""
        return model or platform.processor() or platform.machine() or "cpu"


def _location_asked(config: BackendConfig) -> bool:
    value = config.environment.get(LOCATION_VARIABLE, "").strip()
    if value.lower() not in ("", "none", "numa"):
        raise ConfigurationError(
            f"{LOCATION_VARIABLE}={value!r} on client {config.client_id}: the location of CPU devices is `numa` or "
            "`none`; leave it out for none."
        )
    return value.lower() == "numa"


def _described(layout: CpuLayout) -> str:
    """Say how CPUs lie, as far as the kernel does."""
    parts: list[str] = []
    if layout.cores:
        parts.append(_counted(len(layout.cores), "physical core"))
    if layout.sockets:
        parts.append(_counted(len(layout.sockets), "socket"))
    for node in layout.nodes:
        memory = "" if node.memory is None else f" with {format_bytes(node.memory)}"
        parts.append(f"NUMA node {node.id} ({format_cpus(node.cpus)}){memory}")
    return f" on {', '.join(parts)}" if parts else ""


def _counted(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def _places(cpus: Sequence[int], layout: CpuLayout, client_id: int) -> list[CoreLocation]:
    """Return a location for the device on each CPU: x counts those of a node, y the nodes, z is the client."""
    nodes = [layout.node_of(cpu) or 0 for cpu in cpus]
    rows = {node: row for row, node in enumerate(sorted(set(nodes)))}
    seen: Counter[int] = Counter()
    places: list[CoreLocation] = []
    for node in nodes:
        places.append(CoreLocation(seen[node], rows[node], client_id, 0))
        seen[node] += 1
    return places


def _usable_cpus(root: Path = Path("/")) -> frozenset[int]:
    """Return the CPUs that this process may use: those of all its threads.

    One thread alone says little: OpenMP binds each of its own, and the one that calls it, to a CPU.
    """
    if sys.platform != "linux":
        return frozenset(range(os.cpu_count() or 1))
    try:
        threads = [int(entry.name) for entry in (root / "proc/self/task").iterdir()]
    except OSError:
        threads = []
    cpus = set(os.sched_getaffinity(0))
    for thread in threads:
        # It may have ended meanwhile.
        with contextlib.suppress(OSError):
            cpus |= os.sched_getaffinity(thread)
    return frozenset(cpus)


def _online_cpus(root: Path) -> frozenset[int]:
    """Return the CPUs that the kernel runs, or nothing where it does not say."""
    return read_cpus(root / "sys/devices/system/cpu/online")


def _arithmetic_is_right() -> bool:
    integers = sum(number * number for number in range(1000)) == 332_833_500
    return integers and sum(2.0**-power for power in range(1, 50)) == 1.0 - 2.0**-49
