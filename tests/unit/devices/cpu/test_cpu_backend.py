"""The CPU backend: what it counts, what it reports, and what it refuses."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bringup.devices.base import BackendConfig, CoreLocation, Health, LocalDevice
from bringup.devices.cpu import backend as cpu
from bringup.devices.cpu.backend import CpuBackend
from bringup.devices.cpu.layout import CpuLayout, NumaNode, format_cpus, parse_cpus, read_layout
from bringup.devices.cpu.memory import MemoryLimit, find_memory_limit, format_bytes, memory_total, read_memory_errors
from bringup.devices.cpu.quota import CpuQuota, find_cpu_quota
from bringup.errors import ConfigurationError, DeviceNotFoundError


@pytest.fixture
def usable(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Return the CPUs that the backend believes it may use; change it at will."""
    cpus = {0, 1, 2, 5}
    monkeypatch.setattr(cpu, "_usable_cpus", lambda: frozenset(cpus))
    return cpus


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the platform has no affinity masks")
def test_default_is_one_device_for_each_cpu_of_the_affinity_mask(tmp_path: Path) -> None:
    assert len(CpuBackend(BackendConfig(), root=tmp_path).start()) == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(("quota", "count"), [("150000", 2), ("100000", 1), ("20000", 1), ("900000", 4), ("max", 4)])
def test_default_is_no_more_than_the_cgroup_grants(quota: str, count: int, usable: set[int], tmp_path: Path) -> None:
    root = write(tmp_path, V2 | {"sys/fs/cgroup/job/cpu.max": f"{quota} 100000\n"})
    assert len(CpuBackend(BackendConfig(), root=root).start()) == count
    assert len(CpuBackend(BackendConfig(num_logical_cpu_devices=8), root=root).start()) == 8


def test_devices_have_the_model_of_the_processor_and_no_ids(usable: set[int], tmp_path: Path) -> None:
    write(tmp_path, {"proc/cpuinfo": "processor\t: 0\nmodel name\t: Epic: 9000\n\nmodel name\t: other\n"})
    assert list(CpuBackend(BackendConfig(), root=tmp_path).start()) == [LocalDevice("Epic: 9000")] * len(usable)


def test_the_kind_is_never_empty(usable: set[int], tmp_path: Path) -> None:
    assert CpuBackend(BackendConfig(), root=tmp_path).start()[0].kind


def test_logical_devices_are_as_many_as_asked_for(usable: set[int]) -> None:
    assert len(CpuBackend(BackendConfig(num_logical_cpu_devices=32)).start()) == 32


@pytest.mark.parametrize("count", [0, -1, 65_537])
def test_impossible_numbers_of_logical_devices_are_refused(count: int) -> None:
    with pytest.raises(ConfigurationError, match=rf"num_logical_cpu_devices={count} on client 3"):
        CpuBackend(BackendConfig(client_id=3, num_clients=4, num_logical_cpu_devices=count))


def test_local_device_ids_restrict(usable: set[int]) -> None:
    config = BackendConfig(num_logical_cpu_devices=8, local_device_ids=(7, 0))
    assert len(CpuBackend(config).start()) == 2


@pytest.mark.parametrize(
    ("ids", "reason"),
    [
        ((4,), "no such device: 4"),
        ((-1, 0, 9), "no such device: -1, 9"),
        ((1, 1), "names a device twice"),
        ((), "leaves no device"),
    ],
)
def test_impossible_local_device_ids_are_refused(usable: set[int], ids: tuple[int, ...], reason: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        CpuBackend(BackendConfig(local_device_ids=ids)).start()
    assert reason in str(caught.value)
    assert f"local_device_ids={list(ids)}" in str(caught.value)
    assert "ids from 0 to 3" in str(caught.value)


def test_an_empty_mask_is_no_device(usable: set[int]) -> None:
    usable.clear()
    backend = CpuBackend(BackendConfig(client_id=2, num_clients=3))
    assert not backend.discover().present
    with pytest.raises(DeviceNotFoundError, match="client 2"):
        backend.start()


def test_discovery_says_what_was_found(usable: set[int], tmp_path: Path) -> None:
    files = {"proc/cpuinfo": "model name : Epic\n", "sys/devices/system/cpu/online": "0-7\n"}
    discovery = CpuBackend(BackendConfig(), root=write(tmp_path, files | V2)).discover()
    assert discovery.present
    assert discovery.detail == (
        "4 CPUs usable by this process (0-2,5) of 8 online, Epic; the cgroup quota is 1.5 CPUs "
        "(/sys/fs/cgroup/job/cpu.max); 2 devices"
    )


def test_discovery_says_how_the_cpus_lie(usable: set[int], tmp_path: Path) -> None:
    files = {"proc/cpuinfo": "model name : Epic\n", "proc/meminfo": "MemTotal: 134217728 kB\n"}
    files |= V2 | {"sys/fs/cgroup/cpu.max": "max", "sys/fs/cgroup/job/cpu.max": "max"}
    files |= {"sys/fs/cgroup/job/memory.max": str(3 << 29)}
    assert CpuBackend(BackendConfig(), root=write(tmp_path, files | TWO_SOCKETS)).discover().detail == (
        "4 CPUs usable by this process (0-2,5) of 8 online on 3 physical cores, 2 sockets, NUMA node 0 (0-2) with "
        "64 GiB, NUMA node 1 (5), Epic; 128 GiB of memory; the cgroup limit is 1.5 GiB of memory "
        "(/sys/fs/cgroup/job/memory.max)"
    )


def test_discovery_without_a_usable_cpu(usable: set[int]) -> None:
    usable.clear()
    discovery = CpuBackend(BackendConfig()).discover()
    assert (discovery.present, discovery.detail) == (
        False,
        "no CPU is usable by this process: its affinity mask is empty",
    )


def test_discovery_of_the_real_machine() -> None:
    discovery = CpuBackend(BackendConfig()).discover()
    assert discovery.present
    assert "usable by this process" in discovery.detail


def test_health_follows_the_cpus(usable: set[int], tmp_path: Path) -> None:
    online = tmp_path / "sys/devices/system/cpu/online"
    backend = CpuBackend(BackendConfig(), root=write(tmp_path, {"sys/devices/system/cpu/online": "0-7"}))
    backend.start()
    assert backend.check_health() == Health(ok=True)
    usable.remove(5)
    assert backend.check_health() == Health(ok=True, detail="CPUs taken from this process since start: 5")
    online.write_text("0-4,6-7")
    assert backend.check_health() == Health(ok=False, detail="CPUs went offline since start: 5")
    usable.clear()
    online.write_text("0-7")
    assert backend.check_health() == Health(ok=False, detail="no CPU is usable by this process now")


def test_a_cpuset_that_moves_is_no_failure(usable: set[int], tmp_path: Path) -> None:
    """Before, CPUs that were all other ones made the device unhealthy."""
    backend = CpuBackend(BackendConfig(), root=write(tmp_path, {"sys/devices/system/cpu/online": "0-7"}))
    backend.start()
    usable.clear()
    usable.update({3, 4})
    word = "CPUs taken from this process since start: 0-2,5; CPUs given to it: 3-4"
    assert backend.check_health() == Health(ok=True, detail=word)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the platform has no affinity masks")
def test_a_thread_that_is_bound_says_nothing_of_the_process(tmp_path: Path) -> None:
    """Before, the CPUs of the calling thread were taken for those of the process."""
    everything = os.sched_getaffinity(0)
    if len(everything) < 2:
        pytest.skip("there is one CPU")

    def count() -> int:
        os.sched_setaffinity(0, {min(everything)})
        return len(CpuBackend(BackendConfig(), root=tmp_path).start())

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(count).result() == len(everything)


def test_health_does_not_guess_where_the_kernel_does_not_say(usable: set[int], tmp_path: Path) -> None:
    backend = CpuBackend(BackendConfig(), root=tmp_path)
    backend.start()
    usable.remove(5)
    assert backend.check_health().ok


def test_health_follows_the_memory(usable: set[int], tmp_path: Path) -> None:
    counter = "sys/devices/system/edac/mc/mc0/ue_count"
    backend = CpuBackend(BackendConfig(), root=write(tmp_path, {counter: "3\n", "proc/meminfo": "MemTotal: 1 kB\n"}))
    backend.start()
    assert backend.check_health() == Health(ok=True)
    write(tmp_path, {"proc/meminfo": "MemTotal: 1 kB\nHardwareCorrupted: 8 kB\n"})
    assert backend.check_health() == Health(
        ok=True, detail="the kernel took 8 KiB of failing memory out of use since start"
    )
    write(tmp_path, {counter: "5\n"})
    health = backend.check_health()
    assert not health.ok
    assert "counted 2 uncorrectable errors since start" in health.detail


def test_wrong_arithmetic_is_reported(usable: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    backend = CpuBackend(BackendConfig())
    backend.start()
    monkeypatch.setattr(cpu, "_arithmetic_is_right", lambda: False)
    assert backend.check_health() == Health(ok=False, detail="a computation with a known result gave another one")


def test_devices_have_no_location_unless_it_is_asked_for(usable: set[int], tmp_path: Path) -> None:
    root = write(tmp_path, TWO_SOCKETS)
    for environment in ({}, {"BRINGUP_CPU_LOCATION": ""}, {"BRINGUP_CPU_LOCATION": "none"}):
        devices = CpuBackend(BackendConfig(environment=environment), root=root).start()
        assert {device.location for device in devices} == {None}


@pytest.mark.parametrize(
    ("count", "ids", "places"),
    [
        (None, None, [(0, 0), (1, 0), (2, 0), (0, 1)]),
        (2, None, [(0, 0), (1, 0)]),
        (8, None, [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (0, 1), (1, 1)]),
        (8, (1, 6, 7), [(0, 0), (0, 1), (1, 1)]),
        (8, (6, 7), [(0, 0), (1, 0)]),
    ],
)
def test_numa_nodes_are_a_location_where_that_is_asked_for(
    count: int | None, ids: tuple[int, ...] | None, places: list[tuple[int, int]], usable: set[int], tmp_path: Path
) -> None:
    config = BackendConfig(
        client_id=2,
        num_clients=3,
        num_logical_cpu_devices=count,
        local_device_ids=ids,
        environment={"BRINGUP_CPU_LOCATION": "NUMA"},
    )
    devices = CpuBackend(config, root=write(tmp_path, TWO_SOCKETS)).start()
    assert [device.location for device in devices] == [CoreLocation(x, y, 2, 0) for x, y in places]


def test_without_numa_nodes_all_devices_are_on_one(usable: set[int], tmp_path: Path) -> None:
    config = BackendConfig(environment={"BRINGUP_CPU_LOCATION": "numa"})
    places = [device.location for device in CpuBackend(config, root=tmp_path).start()]
    assert places == [CoreLocation(x, 0, 0, 0) for x in range(4)]


def test_an_unknown_location_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"BRINGUP_CPU_LOCATION='socket' on client 1: .* `numa` or `none`"):
        CpuBackend(BackendConfig(client_id=1, num_clients=2, environment={"BRINGUP_CPU_LOCATION": "socket"}))


@pytest.mark.parametrize(
    ("cpus", "text"), [([], "none"), ([3], "3"), ([0, 1], "0-1"), ([7, 0, 2, 1, 8], "0-2,7-8"), ([0, 2, 4], "0,2,4")]
)
def test_cpu_lists_are_written_as_the_kernel_does(cpus: list[int], text: str) -> None:
    assert format_cpus(cpus) == text
    assert parse_cpus(text) == set(cpus)


def test_cpu_lists_with_rubbish_are_read_as_far_as_they_go() -> None:
    assert parse_cpus(" 0-1,x,3-,5 \n") == {0, 1, 3, 5}
    assert parse_cpus("") == frozenset()


TWO_SOCKETS = {
    "sys/devices/system/cpu/online": "0-7\n",
    **{f"sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list": "0-1\n" for cpu in (0, 1)},
    **{f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": "2-3\n" for cpu in (2, 3)},
    **{f"sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list": "4-5\n" for cpu in (4, 5)},
    **{f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id": f"{cpu // 4}\n" for cpu in range(8)},
    "sys/devices/system/node/online": "0-2\n",
    "sys/devices/system/node/node0/cpulist": "0-3\n",
    "sys/devices/system/node/node0/meminfo": "Node 0 MemTotal:       67108864 kB\nNode 0 MemFree: 1 kB\n",
    "sys/devices/system/node/node1/cpulist": "4-7\n",
    "sys/devices/system/node/node2/cpulist": "\n",
}
"""Two CPUs on each physical core, four on each NUMA node and in each socket, and a node without CPUs."""


def test_the_layout_is_that_of_the_cpus_asked_for(tmp_path: Path) -> None:
    layout = read_layout({0, 1, 2, 5}, write(tmp_path, TWO_SOCKETS))
    assert layout == CpuLayout(
        cores=(frozenset({0, 1}), frozenset({2}), frozenset({5})),
        sockets=frozenset({0, 1}),
        nodes=(NumaNode(0, frozenset({0, 1, 2}), 1 << 36), NumaNode(1, frozenset({5}), None)),
    )
    assert [layout.node_of(cpu) for cpu in (0, 5, 7)] == [0, 1, None]


def test_there_is_no_layout_where_the_kernel_does_not_say(tmp_path: Path) -> None:
    assert read_layout({0, 1}, tmp_path) == CpuLayout((), frozenset(), ())


V2 = {
    "proc/self/cgroup": "0::/job\n",
    "proc/self/mountinfo": "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n",
    "sys/fs/cgroup/cpu.max": "max 100000\n",
    "sys/fs/cgroup/job/cpu.max": "150000 100000\n",
}
V1 = {
    "proc/self/cgroup": "9:name=systemd:/\n4:cpu,cpuacct:/docker/abc\n0::/\n",
    "proc/self/mountinfo": (
        "32 31 0:29 /docker/abc /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
        "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    ),
    "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000\n",
    "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
}


def test_quota_of_cgroup_version_2(tmp_path: Path) -> None:
    assert find_cpu_quota(write(tmp_path, V2)) == CpuQuota(1.5, "/sys/fs/cgroup/job/cpu.max")


def test_quota_of_cgroup_version_1_in_a_container(tmp_path: Path) -> None:
    assert find_cpu_quota(write(tmp_path, V1)) == CpuQuota(0.5, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us")


def test_the_tightest_quota_of_all_ancestors_counts(tmp_path: Path) -> None:
    files = V2 | {"proc/self/cgroup": "0::/a/b/c\n", "sys/fs/cgroup/a/cpu.max": "20000 10000\n"}
    files["sys/fs/cgroup/a/b/c/cpu.max"] = "30000 10000\n"
    assert find_cpu_quota(write(tmp_path, files)) == CpuQuota(2.0, "/sys/fs/cgroup/a/cpu.max")


def test_a_group_outside_the_mount_is_looked_for_at_the_mount(tmp_path: Path) -> None:
    files = V2 | {"proc/self/cgroup": "0::/../elsewhere\n", "sys/fs/cgroup/cpu.max": "100000 100000\n"}
    assert find_cpu_quota(write(tmp_path, files)) == CpuQuota(1.0, "/sys/fs/cgroup/cpu.max")


@pytest.mark.parametrize("text", ["max 100000", "-1", "", "rubbish", "0 0", "100000 0", "1 2 3"])
def test_no_limit_is_no_quota(text: str, tmp_path: Path) -> None:
    assert find_cpu_quota(write(tmp_path, V2 | {"sys/fs/cgroup/job/cpu.max": text})) is None


def test_no_cgroups_are_no_quota(tmp_path: Path) -> None:
    assert find_cpu_quota(tmp_path) is None
    assert find_cpu_quota(write(tmp_path, {"proc/self/mountinfo": "rubbish\n - \n", "proc/self/cgroup": "x\n"})) is None


def test_memory_limit_of_cgroup_version_2(tmp_path: Path) -> None:
    files = V2 | {"sys/fs/cgroup/job/memory.max": "2048\n", "sys/fs/cgroup/memory.max": "max\n"}
    assert find_memory_limit(write(tmp_path, files)) == MemoryLimit(2048, "/sys/fs/cgroup/job/memory.max")


@pytest.mark.parametrize(("text", "limit"), [("4096", 4096), ("9223372036854771712", None), ("-1", None), ("", None)])
def test_memory_limit_of_cgroup_version_1(text: str, limit: int | None, tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "4:memory:/job\n0::/\n",
        "proc/self/mountinfo": "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
        "sys/fs/cgroup/memory/job/memory.limit_in_bytes": text,
    }
    found = find_memory_limit(write(tmp_path, files))
    assert found == (None if limit is None else MemoryLimit(limit, "/sys/fs/cgroup/memory/job/memory.limit_in_bytes"))


@pytest.mark.parametrize("text", ["", "MemTotal:", "MemTotal: many kB", "MemFree: 3 kB"])
def test_memory_that_the_kernel_does_not_tell(text: str, tmp_path: Path) -> None:
    assert memory_total(write(tmp_path, {"proc/meminfo": text}) / "proc/meminfo") is None
    assert read_memory_errors(tmp_path) == read_memory_errors(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (80 << 30, "80 GiB"),
        (1 << 40, "1 TiB"),
        (1000 << 40, "1000 TiB"),
    ],
)
def test_bytes_are_written_for_a_person(count: int, text: str) -> None:
    assert format_bytes(count) == text
