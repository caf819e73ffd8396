"""jax's devices as devices of a job, without a real jax."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bringup.devices.base import BackendConfig, CoreLocation, Health, LocalDevice
from bringup.devices.jax.backend import JaxBackend
from bringup.devices.jax.check import CheckResult, given_parts, health_by
from bringup.devices.jax.devices import describe_devices, local_devices_of, refuse_megacore
from bringup.errors import ConfigurationError, DeviceNotFoundError


@dataclass(frozen=True)
class Cpu:
    id: int
    platform: str = "cpu"
    device_kind: str = "cpu"


@dataclass(frozen=True)
class Tpu:
    id: int
    coords: list[int]
    core_on_chip: int = 0
    slice_index: int | None = None
    platform: str = "tpu"
    device_kind: str = "TPU v4"


def test_a_view_of_the_whole_job_gives_ids_and_locations() -> None:
    everything = [Tpu(index, [index // 2, 1, 3], index % 2) for index in range(4)]
    assert local_devices_of(everything[2:], everything, is_global=True) == (
        LocalDevice("TPU v4", 2, CoreLocation(1, 1, 3, 0)),
        LocalDevice("TPU v4", 3, CoreLocation(1, 1, 3, 1)),
    )


def test_a_view_of_one_process_gives_neither() -> None:
    devices = [Tpu(0, [0, 0, 0]), Tpu(1, [1, 0, 0])]
    assert local_devices_of(devices, devices, is_global=False) == (LocalDevice("TPU v4"),) * 2


def test_devices_without_coordinates_have_no_location() -> None:
    devices = [Cpu(2048), Cpu(2049)]
    assert local_devices_of(devices, devices, is_global=True) == (LocalDevice("cpu", 2048), LocalDevice("cpu", 2049))


def test_slices_are_stacked() -> None:
    everything = [Tpu(100_000 * (part + 1) + z, [0, 0, z], slice_index=part) for part in range(2) for z in range(3)]
    places = [device.location for device in local_devices_of(everything, everything, is_global=True)]
    assert places == [CoreLocation(0, 0, z, 0) for z in range(6)]


def test_megacore_is_refused_where_cores_are_devices() -> None:
    refuse_megacore([Cpu(0), Tpu(0, [0, 0, 0])], 1)
    with pytest.raises(
        ConfigurationError, match=r"enable_megacore=True on client 1: .*\(2 of platform tpu \(TPU v4\)\)"
    ):
        refuse_megacore([Tpu(0, [0, 0, 0]), Tpu(1, [0, 0, 0], 1)], 1)


def test_devices_are_described() -> None:
    assert describe_devices([Cpu(0), Tpu(1, [0, 0, 0])]) == "2 of platform cpu (cpu), tpu (TPU v4)"


@pytest.mark.parametrize(
    ("result", "health"),
    [
        (CheckResult(), Health(ok=True)),
        (CheckResult(wrong=("TPU_2",)), Health(False, "a computation with a known result gave another one on TPU_2")),
        (
            CheckResult(waiting=("TPU_1", "TPU_3"), age=34.6),
            Health(True, "TPU_1, TPU_3 are busy, and have yet to come to a small computation of 35 s ago"),
        ),
        (
            CheckResult(waiting=("TPU_1",), age=600.0),
            Health(False, "TPU_1 have not come to a small computation of 600 s ago"),
        ),
        (RuntimeError("INTERNAL: device\n  halted"), Health(False, "a computation failed: INTERNAL: device halted")),
        (AssertionError(), Health(False, "a computation failed: AssertionError")),
        (RuntimeError("RESOURCE_EXHAUSTED: full"), Health(True, "a computation failed: RESOURCE_EXHAUSTED: full")),
    ],
)
def test_health_by_a_computation(result: CheckResult | Exception, health: Health) -> None:
    def run(timeout: float) -> CheckResult:
        assert timeout == 3.0
        if isinstance(result, Exception):
            raise result
        return result

    assert health_by(run, 3.0) == health


def test_without_jax_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bringup.devices.jax.backend._is_installed", lambda: False)
    backend = JaxBackend(BackendConfig(client_id=1, num_clients=2))
    discovery = backend.discover()
    assert (discovery.present, discovery.detail) == (False, "jax is not installed (pip install 'bringup[jax]')")
    with pytest.raises(DeviceNotFoundError, match=r"client 1: device_type='JAX' needs jax, .* 'bringup\[jax\]'"):
        backend.start()
    backend.stop()


def fake_jax(monkeypatch: pytest.MonkeyPatch, devices: list[Any], **attributes: Any) -> None:
    module = SimpleNamespace(
        local_devices=lambda backend=None: devices,
        devices=lambda: devices,
        process_count=lambda: 1,
        config=SimpleNamespace(update=lambda name, value: None),
        **attributes,
    )
    monkeypatch.setitem(sys.modules, "jax", module)


def test_fewer_cpu_devices_than_accelerators_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_jax(monkeypatch, [Tpu(index, [index, 0, 0]) for index in range(4)])
    with pytest.raises(ConfigurationError, match=r"num_logical_cpu_devices=3 on client 0 is less .* give at least 4"):
        JaxBackend(BackendConfig(num_logical_cpu_devices=3)).start()


def test_no_device_is_a_device_that_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, it was an IndexError, which `allow_empty` does not take."""
    fake_jax(monkeypatch, [])
    with pytest.raises(DeviceNotFoundError, match="client 2: jax has no device in this process"):
        JaxBackend(BackendConfig(client_id=2, num_clients=3)).start()


def test_each_device_computes_something_of_its_own() -> None:
    """Before, every fifth had the same part."""
    parts = given_parts(3000)
    for values in (parts, parts @ parts):
        assert len(np.unique(values.reshape(len(values), -1), axis=0)) == len(values)
    # Exact in whatever precision a platform multiplies matrices in.
    assert parts.max() < 2**4
    assert (parts @ parts).max() < 2**11
