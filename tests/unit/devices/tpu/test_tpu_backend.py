"""The TPU backend on a host made of files, with what jax would say of its chips."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bringup.devices.base import BackendConfig, CoreLocation, Health, LocalDevice
from bringup.devices.jax.check import CheckResult
from bringup.devices.tpu.backend import TpuBackend
from bringup.devices.tpu.slices import SliceCore, TpuSlice
from bringup.errors import ConfigurationError, DeviceError, DeviceInitializationError, DeviceNotFoundError

WRAPPED = "Unable to initialize backend 'tpu': {} (set JAX_PLATFORMS='' to automatically choose an available backend)"


class Device(SimpleNamespace):
    def __str__(self) -> str:
        return f"TPU_{self.id}"


class Jax:
    """What the backend uses of jax: a host's devices, and those of its slice."""

    def __init__(self, name: str, host: int) -> None:
        found = TpuSlice.parse(name, "name")
        self.everything = [
            self.device(core, found.kind) for at in range(found.num_hosts) for core in found.host_cores(at)
        ]
        self.local = [device for device in self.everything if device.process_index == host]
        self.error: BaseException | None = None
        self.checked: list[int] = []

    @staticmethod
    def device(core: SliceCore, kind: str) -> Device:
        return Device(**core._asdict(), device_kind=kind, platform="tpu")

    def local_devices(self, *, backend: str) -> list[Device]:
        assert backend == "tpu"
        if self.error is not None:
            raise self.error
        return self.local

    def devices(self, backend: str) -> list[Device]:
        assert backend == "tpu"
        return self.everything


class Check:
    """A computation that goes as it is told."""

    def __init__(self, results: list[CheckResult | Exception]) -> None:
        self.results = results
        self.interrupted = False

    def run(self, timeout: float) -> CheckResult:
        assert timeout > 0
        result = self.results.pop(0) if self.results else CheckResult()
        if isinstance(result, Exception):
            raise result
        return result

    def interrupt(self) -> None:
        self.interrupted = True


def host_of_files(root: Path, device: str = "0x0063", chips: int = 4) -> Path:
    for index in range(chips):
        folder = root / f"sys/bus/pci/devices/0000:00:0{4 + index}.0"
        folder.mkdir(parents=True)
        for name, text in (("vendor", "0x1ae0"), ("device", device), ("subsystem_device", "0x0000")):
            (folder / name).write_text(text)
        (folder / "iommu_group").symlink_to(f"../../kernel/iommu_groups/{index}")
        node = root / f"dev/vfio/{index}"
        node.parent.mkdir(parents=True, exist_ok=True)
        node.touch()
    return root


def no_jax() -> Any:
    raise AssertionError("jax is not to be imported")


Make = Callable[..., TpuBackend]


def make(
    root: Path,
    load: Callable[[], Any] = no_jax,
    *,
    client_id: int = 0,
    num_clients: int = 1,
    results: Sequence[CheckResult | Exception] = (),
    environment: Mapping[str, str] | None = None,
    **settings: Any,
) -> TpuBackend:
    config = BackendConfig(client_id=client_id, num_clients=num_clients, environment=environment or {}, **settings)

    def make_check(jax: Jax, devices: Sequence[Device]) -> Check:
        jax.checked = [device.id for device in devices]
        return Check(list(results))

    return TpuBackend(config, root=root, load=load, make_check=make_check)


def refused(backend: TpuBackend, kind: type[DeviceError]) -> str:
    with pytest.raises(DeviceError) as caught:
        backend.start()
    assert type(caught.value) is kind, caught.value
    assert caught.value.client_id == 0
    assert caught.value.cause
    return str(caught.value)


def test_without_a_tpu_it_says_what_it_looked_at_and_imports_nothing(tmp_path: Path) -> None:
    backend = make(tmp_path)
    assert not backend.discover().present
    message = refused(backend, DeviceNotFoundError)
    assert message.startswith("Initialization failed, no valid TPUs found. ")
    assert "PCI devices of vendor 0x1ae0 in /sys/bus/pci/devices: none" in message
    assert "/dev/accel* and /dev/vfio/*: none; environment: none." in message
    assert "Run on a TPU host, or use another device_type." in message
    backend.stop()


def test_without_device_files_it_says_how_to_get_them(tmp_path: Path) -> None:
    root = host_of_files(tmp_path)
    for node in (root / "dev/vfio").iterdir():
        node.unlink()
    message = refused(make(root), DeviceNotFoundError)
    assert "4 (TPU v5 lite)" in message
    assert "There are chips, but none of their device files" in message


def test_jax_platforms_that_leave_tpus_out_are_named(tmp_path: Path) -> None:
    jax = Jax("v5e:2x2", 0)
    jax.error = RuntimeError(
        "Unknown backend: 'tpu' requested, but no platforms that are instances of tpu are present."
    )
    backend = make(host_of_files(tmp_path), lambda: jax, environment={"JAX_PLATFORMS": "cpu"})
    message = refused(backend, DeviceNotFoundError)
    assert "JAX_PLATFORMS=cpu keeps jax from TPUs: unset it, or add tpu to it." in message


def test_discovery_tells_the_host_of_the_slice(tmp_path: Path) -> None:
    environment = {
        "TPU_ACCELERATOR_TYPE": "v5litepod-16",
        "TPU_WORKER_ID": "1",
        "TPU_CHIPS_PER_HOST_BOUNDS": "2,2,1",
        "TPU_HOST_BOUNDS": "2,2,1",
    }
    found = make(host_of_files(tmp_path), environment=environment).discover()
    assert found.present
    assert found.detail.startswith("PCI devices of vendor 0x1ae0 in /sys/bus/pci/devices: 4 (TPU v5 lite); /dev/accel*")
    assert found.detail.endswith("/dev/vfio/3; host 1 of 4 of v5e:4x4")


def test_devices_have_the_ids_and_locations_of_libtpu(tmp_path: Path) -> None:
    jax = Jax("v5e:4x4", 1)
    devices = make(host_of_files(tmp_path), lambda: jax, client_id=1, num_clients=4).start()
    assert list(devices) == [
        LocalDevice("TPU v5 lite", core_id, CoreLocation(*location))
        for core_id, location in ((2, (2, 0, 0, 0)), (3, (3, 0, 0, 0)), (6, (2, 1, 0, 0)), (7, (3, 1, 0, 0)))
    ]
    assert jax.checked == [2, 3, 6, 7]


def test_hosts_that_do_not_know_of_each_other_have_neither(tmp_path: Path) -> None:
    devices = make(host_of_files(tmp_path), lambda: Jax("v5e:2x2", 0), num_clients=4).start()
    assert list(devices) == [LocalDevice("TPU v5 lite")] * 4


def booted(root: Path) -> Path:
    (root / "proc/sys/kernel/random").mkdir(parents=True)
    (root / "proc/sys/kernel/random/boot_id").write_text("b00t\n")
    return root


def chips_of(devices: Sequence[LocalDevice]) -> list[str]:
    return [device.fingerprint for device in devices]


@pytest.mark.parametrize("megacore", [False, True])
def test_each_chip_has_a_fingerprint_of_its_host(megacore: bool, tmp_path: Path) -> None:
    root = booted(host_of_files(tmp_path, device="0x005e"))
    jax = Jax("v4:2x2x1", 0)
    devices = make(root, lambda: jax, enable_megacore=megacore).start()
    chips = [f"b00t/0000:00:0{4 + index}.0" for index in range(4)]
    assert sorted(set(chips_of(devices))) == chips
    assert len(devices) == len(jax.local) / (1 + megacore)
    of_place = {device.location[:3]: device.fingerprint for device in devices if device.location is not None}
    assert all(of_place[device.location[:3]] == device.fingerprint for device in devices if device.location is not None)


def test_chips_that_cannot_be_told_have_no_fingerprint(tmp_path: Path) -> None:
    root, alone = booted(host_of_files(tmp_path)), 'v5e:1x1|{"chips_per_host_bounds": [1, 1, 1]}'
    assert chips_of(make(root, lambda: Jax("v5e:2x2", 0), local_device_ids=(0, 1)).start()) == ["", ""]
    one = make(root, lambda: Jax(alone, 0), environment={"TPU_VISIBLE_CHIPS": "2"})
    assert chips_of(one.start()) == ["b00t/0000:00:06.0"]
    assert chips_of(make(root, lambda: Jax(alone, 0)).start()) == [""]


def test_slices_of_a_job_are_stacked(tmp_path: Path) -> None:
    jax = Jax('v4:2x2x2|{"num_slices": 2}', 2)
    devices = make(host_of_files(tmp_path), lambda: jax, client_id=2, num_clients=4).start()
    assert [device.core_id for device in devices[:2]] == [200000, 200001]
    assert [device.location for device in devices[:2]] == [(0, 0, 2, 0), (0, 0, 2, 1)]


def test_chosen_devices_alone_are_checked(tmp_path: Path) -> None:
    jax = Jax("v5e:2x2", 0)
    devices = make(host_of_files(tmp_path), lambda: jax, local_device_ids=(3, 1)).start()
    assert [device.core_id for device in devices] == [1, 3]
    assert jax.checked == [1, 3]


def test_megacore_joins_cores_and_checks_both(tmp_path: Path) -> None:
    jax = Jax("v4:2x2x1", 0)
    devices = make(host_of_files(tmp_path), lambda: jax, enable_megacore=True, local_device_ids=(0, 2)).start()
    assert [(device.core_id, device.location) for device in devices] == [(0, (0, 0, 0, 0)), (4, (0, 1, 0, 0))]
    assert jax.checked == [0, 1, 4, 5]


def test_settings_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    root = host_of_files(tmp_path)
    with pytest.raises(ConfigurationError, match=r"no such device: 4; client 0 \(TPU\) has 4 devices"):
        make(root, lambda: Jax("v5e:2x2", 0), local_device_ids=(4,)).start()
    with pytest.raises(
        ConfigurationError, match="num_logical_cpu_devices=3 on client 0 is less than its number of TPU"
    ):
        make(root, lambda: Jax("v5e:2x2", 0), num_logical_cpu_devices=3).start()
    with pytest.raises(ConfigurationError, match="are TPU v5 lite, with one core each"):
        make(root, lambda: Jax("v5e:2x2", 0), enable_megacore=True).start()
    assert len(make(root, lambda: Jax("v5e:2x2", 0), num_logical_cpu_devices=4).start()) == 4


def failing(root: Path, text: str, **settings: Any) -> TpuBackend:
    jax = Jax("v5e:2x2", 0)
    jax.error = RuntimeError(WRAPPED.format(text))
    return make(root, lambda: jax, **settings)


def test_a_driver_that_is_not_there_is_told_from_a_chip_that_is_not(tmp_path: Path) -> None:
    backend = failing(host_of_files(tmp_path), "NOT_FOUND: TPU initialization failed: No jellyfish device found.")
    message = refused(backend, DeviceNotFoundError)
    assert message.startswith("Initialization failed, no valid TPUs found. ")
    assert (
        "libtpu said: NOT_FOUND: TPU initialization failed: No jellyfish device found. Check that the driver" in message
    )
    assert "JAX_PLATFORMS" not in message


@pytest.mark.parametrize(
    ("text", "chip"),
    [
        ("INTERNAL: chip 2 did not come out of reset", "chip 2 (TPU v5 lite, PCI 0000:00:06.0, /dev/vfio/2)"),
        ("INTERNAL: HBM training failed on 0000:00:05.0", "chip 1 (TPU v5 lite, PCI 0000:00:05.0, /dev/vfio/1)"),
        ("UNKNOWN: read of /dev/vfio/3 failed", "chip 3 (TPU v5 lite, PCI 0000:00:07.0, /dev/vfio/3)"),
    ],
)
def test_a_hardware_failure_names_the_chip(tmp_path: Path, text: str, chip: str) -> None:
    message = refused(failing(host_of_files(tmp_path), text), DeviceInitializationError)
    assert f"hit an error during TPU system initialization on {chip}: {text}" in message
    assert "It is likely a hardware failure: restart the job, or leave that host out and have it checked." in message


def test_a_hardware_failure_names_the_chip_that_does_not_answer(tmp_path: Path) -> None:
    root = host_of_files(tmp_path)
    (root / "sys/bus/pci/devices/0000:00:06.0/config").write_bytes(b"\xff" * 64)
    message = refused(failing(root, "INTERNAL: something broke"), DeviceInitializationError)
    assert "initialization on chip 2 (TPU v5 lite, PCI 0000:00:06.0, /dev/vfio/2): INTERNAL: something broke" in message


def test_a_hardware_failure_that_names_nothing_lists_the_chips(tmp_path: Path) -> None:
    environment = {"TPU_WORKER_ID": "0"}
    backend = failing(host_of_files(tmp_path), "INTERNAL: Failed to get global TPU topology.", environment=environment)
    message = refused(backend, DeviceInitializationError)
    assert "on one of 4 chips: chip 0 (TPU v5 lite" in message
    assert "libtpu does not say which chip: INTERNAL: Failed to get global TPU topology. It is likely" in message
    assert "Else what libtpu was told of the slice is wrong: TPU_WORKER_ID=0." in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ABORTED: The TPU is already in use by process with pid 17.", "A TPU belongs to one process at a time"),
        ("INTERNAL: open(/dev/vfio/0): Device or resource busy", "A TPU belongs to one process at a time"),
        ("INTERNAL: open(/dev/vfio/0): Operation not permitted", "Give this process the permission"),
        ("INTERNAL: Failed to open libtpu.so: libtpu.so: cannot open", "pip install 'bringup[tpu]'"),
        ("INVALID_ARGUMENT: Error: unexpected worker hostname 'x'", "Correct the TPU_* variables"),
        ("RESOURCE_EXHAUSTED: out of HBM", "Another program takes the memory"),
    ],
)
def test_what_is_no_hardware_failure_is_not_called_one(tmp_path: Path, text: str, words: str) -> None:
    message = refused(failing(host_of_files(tmp_path), text), DeviceInitializationError)
    assert text.rstrip(".") in message
    assert words in message
    assert "hardware" not in message


def test_jax_that_is_not_installed_is_asked_for(tmp_path: Path) -> None:
    def load() -> Any:
        raise ModuleNotFoundError("No module named 'jax'")

    message = refused(make(host_of_files(tmp_path), load), DeviceInitializationError)
    assert "found 4 chips: chip 0 (TPU v5 lite" in message
    assert "but not what brings them up: No module named 'jax'. Install jax with libtpu" in message


def test_libtpu_without_devices_finds_none(tmp_path: Path) -> None:
    jax = Jax("v5e:2x2", 0)
    jax.local = []
    assert "libtpu came up without a device" in refused(make(host_of_files(tmp_path), lambda: jax), DeviceNotFoundError)


def test_devices_without_a_place_are_refused_with_the_client(tmp_path: Path) -> None:
    jax = Jax("v5e:2x2", 0)
    del jax.local[2].coords
    message = refused(make(host_of_files(tmp_path), lambda: jax), DeviceInitializationError)
    assert "does not say where it is" in message


def test_a_core_that_computes_wrong_or_not_at_all_is_named(tmp_path: Path) -> None:
    root = host_of_files(tmp_path)
    wrong = make(root, lambda: Jax("v5e:2x2", 0), results=[CheckResult(wrong=("TPU_2 (4 instead of 5)",))])
    message = refused(wrong, DeviceInitializationError)
    assert "on TPU_2 (4 instead of 5): computed something wrong in the first computation" in message
    assert "likely a hardware failure" in message
    mute = make(root, lambda: Jax("v5e:2x2", 0), results=[CheckResult(waiting=("TPU_1",), age=60.0)])
    assert "on TPU_1: computed nothing within 60 s" in refused(mute, DeviceInitializationError)


def test_chips_that_are_missing_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    environment = {"TPU_CHIPS_PER_HOST_BOUNDS": "2,2,1"}
    make(host_of_files(tmp_path, chips=3), lambda: Jax("v5e:2x2", 0), environment=environment).start()
    assert "client 0: the environment promises 4 chips, and the host has 3 (3 chips: chip 0" in caplog.text


def health_after(root: Path, result: CheckResult | Exception) -> Health:
    backend = make(root, lambda: Jax("v5e:2x2", 0), results=[CheckResult(), result])
    backend.start()
    return backend.check_health()


def test_health_follows_the_computation(tmp_path: Path) -> None:
    root = host_of_files(tmp_path)
    assert health_after(root, CheckResult()) == Health(ok=True)
    assert health_after(root, CheckResult(wrong=("TPU_1",))).detail.endswith("gave another one on TPU_1")
    assert not health_after(root, CheckResult(wrong=("TPU_1",))).ok
    busy = health_after(root, CheckResult(waiting=("TPU_1",), age=12.0))
    assert busy.ok
    assert "TPU_1 are busy" in busy.detail
    assert not health_after(root, CheckResult(waiting=("TPU_1",), age=601.0)).ok
    assert not health_after(root, RuntimeError("INTERNAL: core halted")).ok
    assert health_after(root, RuntimeError("RESOURCE_EXHAUSTED: the user has it all")).ok


def test_a_chip_off_the_bus_is_ill_for_good(tmp_path: Path) -> None:
    root = host_of_files(tmp_path)
    backend = make(root, lambda: Jax("v5e:2x2", 0))
    backend.start()
    (root / "sys/bus/pci/devices/0000:00:05.0/vendor").unlink()
    health = backend.check_health()
    assert health == Health(
        ok=False, detail="off the PCI bus: chip 1 (TPU v5 lite, PCI 0000:00:05.0, /dev/vfio/1)", permanent=True
    )


@pytest.mark.parametrize("why", ["variable", "no node", "no permission", "some cores"])
def test_a_chip_of_another_process_is_no_concern_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """Before, a chip that another job lost ended this one as well."""
    root = host_of_files(tmp_path)
    settings: dict[str, Any] = {}
    if why == "variable":
        settings["environment"] = {"TPU_VISIBLE_CHIPS": "0,2"}
    elif why == "no node":
        (root / "dev/vfio/1").unlink()
    elif why == "no permission":
        allowed = os.access
        monkeypatch.setattr(os, "access", lambda path, mode: path.name != "1" and allowed(path, mode))
    else:
        settings["local_device_ids"] = (0, 2)
    backend = make(root, lambda: Jax("v5e:2x2", 0), **settings)
    backend.start()
    assert backend.check_health() == Health(ok=True)
    (root / "sys/bus/pci/devices/0000:00:05.0/vendor").unlink()
    lost = "chip 1 (TPU v5 lite, PCI 0000:00:05.0, /dev/vfio/1)"
    word = f"off the PCI bus, and not in use by this client: {lost}"
    assert backend.check_health() == Health(ok=True, detail=word)


def test_it_is_healthy_between_start_and_stop(tmp_path: Path) -> None:
    backend = make(host_of_files(tmp_path), lambda: Jax("v5e:2x2", 0))
    assert backend.check_health() == Health(ok=False, detail="the TPU backend is not started")
    backend.start()
    assert backend.check_health().ok
    backend.stop()
    backend.stop()
    assert not backend.check_health().ok


def test_an_interrupt_reaches_the_computation(tmp_path: Path) -> None:
    made: list[Check] = []

    def make_check(jax: Jax, devices: Sequence[Device]) -> Check:
        made.append(Check([]))
        return made[-1]

    root = host_of_files(tmp_path)
    backend = TpuBackend(BackendConfig(), root=root, load=lambda: Jax("v5e:2x2", 0), make_check=make_check)
    backend.start()
    assert [check.interrupted for check in made] == [False]
    backend.interrupt()
    assert [check.interrupted for check in made] == [True]
    backend.start()
    assert [check.interrupted for check in made] == [True, True]
