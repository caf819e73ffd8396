"""The CPU backend: what it counts, what it reports, and what it refuses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bringup.devices import cpu
from bringup.devices.base import BackendConfig, Health, LocalDevice
from bringup.devices.cpu import CpuBackend, format_cpus, parse_cpus
from bringup.devices.cpu_quota import CpuQuota, find_cpu_quota
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
def test_default_is_one_device_for_each_cpu_of_the_affinity_mask() -> None:
    assert len(CpuBackend(BackendConfig()).start()) == len(os.sched_getaffinity(0))


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
        "(/sys/fs/cgroup/job/cpu.max)"
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
    assert backend.check_health() == Health(ok=False, detail="none of the CPUs that start found (0-2,5) is usable now")


def test_health_does_not_guess_where_the_kernel_does_not_say(usable: set[int], tmp_path: Path) -> None:
    backend = CpuBackend(BackendConfig(), root=tmp_path)
    backend.start()
    usable.remove(5)
    assert backend.check_health().ok


def test_wrong_arithmetic_is_reported(usable: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    backend = CpuBackend(BackendConfig())
    backend.start()
    monkeypatch.setattr(cpu, "_arithmetic_is_right", lambda: False)
    assert backend.check_health() == Health(ok=False, detail="a computation with a known result gave another one")


@pytest.mark.parametrize(
    ("cpus", "text"), [([], "none"), ([3], "3"), ([0, 1], "0-1"), ([7, 0, 2, 1, 8], "0-2,7-8"), ([0, 2, 4], "0,2,4")]
)
def test_cpu_lists_are_written_as_the_kernel_does(cpus: list[int], text: str) -> None:
    assert format_cpus(cpus) == text
    assert parse_cpus(text) == set(cpus)


def test_cpu_lists_with_rubbish_are_read_as_far_as_they_go() -> None:
    assert parse_cpus(" 0-1,x,3-,5 \n") == {0, 1, 3, 5}
    assert parse_cpus("") == frozenset()


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
