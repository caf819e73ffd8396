"""The GPU backend on the NVIDIA GPUs of this host, beside what `nvidia-smi` says of them."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess

import pytest

from bringup.devices.base import BackendConfig
from bringup.devices.gpu.backend import GpuBackend
from bringup.devices.registry import create_backend
from bringup.errors import DeviceNotFoundError

CONFIG = BackendConfig(environment=dict(os.environ))


def missing() -> str:
    """Return what is missing here, or nothing."""
    if not GpuBackend(CONFIG).discover().present:
        return "this host has no NVIDIA GPU"
    packages = ("pynvml", "cuda")
    return "; ".join(f"{name} is not installed" for name in packages if importlib.util.find_spec(name) is None)


pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(missing()), reason=missing() or "there is one")]


def listed(query: str) -> list[str]:
    """Return a column of `nvidia-smi`, a line for each GPU."""
    if shutil.which("nvidia-smi") is None:
        pytest.skip("nvidia-smi is not installed")
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()


@pytest.mark.parametrize("query", ["name", "uuid", "driver_version"])
def test_discovery_agrees_with_nvidia_smi(query: str) -> None:
    detail = GpuBackend(CONFIG).discover().detail
    assert all(value.strip() in detail for value in listed(query))


def test_gpus_come_up_are_well_and_are_given_back() -> None:
    for _ in range(3):
        backend = GpuBackend(CONFIG)
        devices = backend.start()
        places = [device.location for device in devices]
        assert len(set(places)) == len(devices) >= 1
        for _ in range(3):
            health = backend.check_health()
            assert health.ok, health.detail
        backend.stop()
        assert not backend.check_health().ok


def test_one_gpu_can_be_chosen() -> None:
    everything = GpuBackend(CONFIG)
    count = len(everything.start())
    everything.stop()
    config = BackendConfig(client_id=4, num_clients=8, local_device_ids=(count - 1,), environment=dict(os.environ))
    chosen = GpuBackend(config)
    (device,) = chosen.start()
    assert device.location is not None
    assert tuple(device.location) == (0, 0, 4, 0)
    chosen.stop()


def test_hidden_gpus_are_not_found() -> None:
    backend = GpuBackend(BackendConfig(environment={"CUDA_VISIBLE_DEVICES": "-1"}))
    assert not backend.discover().present
    with pytest.raises(DeviceNotFoundError, match="CUDA_VISIBLE_DEVICES='-1'"):
        backend.start()
    backend.stop()


def test_a_gpu_is_preferred_to_a_cpu() -> None:
    assert create_backend(None, CONFIG).device_type in ("GPU", "TPU")
