"""The GPU backend where there is no GPU, or no library to reach one: what it looked at, and what it says."""

from __future__ import annotations

import sys
from ctypes.util import find_library
from pathlib import Path

import pytest

from bringup.devices.base import BackendConfig
from bringup.devices.gpu.backend import GpuBackend
from bringup.devices.gpu.cuda import open_cuda
from bringup.devices.gpu.sysfs import find_gpu_traces, numa_node_of
from bringup.devices.registry import create_backend
from bringup.errors import ConfigurationError, DeviceInitializationError, DeviceNotFoundError

VERSION = """NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.82.07  Thu Aug 21 12:34:56 UTC 2025
GCC version:  gcc version 13.3.0
"""


@pytest.fixture
def no_pynvml(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the package nvidia-ml-py out, whether or not it is installed."""
    monkeypatch.setitem(sys.modules, "pynvml", None)


def host(root: Path, *, nodes: int = 0, pci: tuple[str, ...] = (), driver: bool = False) -> Path:
    (root / "dev").mkdir()
    for index in range(nodes):
        (root / f"dev/nvidia{index}").touch()
    for name in ("nvidiactl", "nvidia-uvm", "null"):
        (root / "dev" / name).touch()
    for address in pci:
        write(root / "sys/bus/pci/devices" / address, vendor="0x10de\n", numa_node="1\n", **{"class": "0x030200\n"})
    write(root / "sys/bus/pci/devices/0000:00:1f.0", vendor="0x8086\n", **{"class": "0x060100\n"})
    write(root / "sys/bus/pci/devices/0000:01:00.1", vendor="0x10de\n", numa_node="-1\n", **{"class": "0x040300\n"})
    if driver:
        write(root / "proc/driver/nvidia", version=VERSION)
    return root


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)


def test_traces(tmp_path: Path) -> None:
    traces = find_gpu_traces(host(tmp_path, nodes=12, pci=("0000:41:00.0", "0000:21:00.0"), driver=True))
    assert traces.nodes == tuple(f"/dev/nvidia{index}" for index in range(12))
    assert traces.pci == ("0000:21:00.0", "0000:41:00.0")
    assert traces.driver == "580.82.07"


def test_no_traces(tmp_path: Path) -> None:
    assert str(find_gpu_traces(tmp_path / "nowhere")) == (
        "no /dev/nvidia0 or other device node; no kernel driver (/proc/driver/nvidia/version); "
        "NVIDIA GPUs on the PCI bus: none"
    )


@pytest.mark.parametrize(("address", "node"), [("0000:21:00.0", 1), ("0000:01:00.1", None), ("0000:99:00.0", None)])
def test_numa_nodes(address: str, node: int | None, tmp_path: Path) -> None:
    assert numa_node_of(address, host(tmp_path, pci=("0000:21:00.0",))) == node


@pytest.mark.usefixtures("no_pynvml")
def test_without_gpu_and_library_it_says_what_was_looked_at(tmp_path: Path) -> None:
    backend = GpuBackend(BackendConfig(client_id=3, num_clients=4), root=host(tmp_path))
    discovery = backend.discover()
    assert not discovery.present
    assert "no /dev/nvidia0" in discovery.detail
    assert "nvidia-ml-py is not installed" in discovery.detail
    with pytest.raises(DeviceNotFoundError) as caught:
        backend.start()
    message = str(caught.value)
    assert message.startswith("client 3: no NVIDIA GPU was found. Looked at: no /dev/nvidia0 or other device node; ")
    assert message.endswith("Run it on a host with NVIDIA GPUs, or use another device_type.")
    assert caught.value.client_id == 3
    assert not backend.check_health().ok
    backend.stop()


@pytest.mark.usefixtures("no_pynvml")
def test_gpus_without_the_library_are_present_and_the_extra_is_named(tmp_path: Path) -> None:
    backend = GpuBackend(BackendConfig(), root=host(tmp_path, nodes=2, pci=("0000:21:00.0",), driver=True))
    assert backend.discover().present
    with pytest.raises(DeviceInitializationError) as caught:
        backend.start()
    message = str(caught.value)
    assert (
        "client 0: the GPUs of this host cannot be used: /dev/nvidia0, /dev/nvidia1; kernel driver 580.82.07" in message
    )
    assert message.endswith("Install it: pip install 'bringup[gpu]'.")


@pytest.mark.usefixtures("no_pynvml")
def test_gpus_that_a_container_was_not_given_are_not_present(tmp_path: Path) -> None:
    backend = GpuBackend(BackendConfig(), root=host(tmp_path, pci=("0000:21:00.0",), driver=True))
    assert not backend.discover().present
    with pytest.raises(DeviceNotFoundError, match=r"NVIDIA GPUs on the PCI bus: 0000:21:00\.0"):
        backend.start()


def test_the_real_library_without_a_driver(tmp_path: Path) -> None:
    pynvml = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        pass
    else:
        pynvml.nvmlShutdown()
        pytest.skip("this host has the NVIDIA driver")
    backend = GpuBackend(BackendConfig(), root=host(tmp_path))
    assert "libnvidia-ml.so.1 gives error 12" in backend.discover().detail
    with pytest.raises(DeviceNotFoundError, match=r"Looked at: .*libnvidia-ml\.so\.1 gives error 12"):
        backend.start()
    # A broken driver is not the same as none: nobody gets another type of device by accident.
    (tmp_path / "dev/nvidia0").touch()
    assert backend.discover().present
    with pytest.raises(DeviceInitializationError, match="install the driver; in a container, start it with GPUs"):
        backend.start()


def test_without_cuda_bindings_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    with pytest.raises(DeviceInitializationError) as caught:
        open_cuda(2, "580.82.07")
    assert str(caught.value) == (
        "client 2: this host has NVIDIA GPUs (driver 580.82.07), but the package cuda-bindings is not installed, so "
        "none can be brought up. Install it: pip install 'bringup[gpu]'."
    )
    assert caught.value.client_id == 2


def test_the_real_bindings_without_a_driver() -> None:
    pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    if find_library("cuda") is not None:
        pytest.skip("this host has the CUDA driver")
    with pytest.raises(DeviceInitializationError) as caught:
        open_cuda(0, "999.88")
    message = str(caught.value)
    assert "client 0: CUDA could not be initialised with driver 999.88: cuInit: " in message
    assert "needs a libcuda.so.1 that fits" in message


def test_it_is_built_in() -> None:
    assert type(create_backend("gpu", BackendConfig())) is GpuBackend


@pytest.mark.usefixtures("no_pynvml")
def test_without_gpu_another_type_is_preferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = host(tmp_path)
    monkeypatch.setattr("bringup.devices.gpu.backend.find_gpu_traces", lambda _: find_gpu_traces(root))
    assert create_backend(None, BackendConfig()).device_type in ("CPU", "TPU")
    (root / "dev/nvidia0").touch()
    assert create_backend(None, BackendConfig()).device_type in ("GPU", "TPU")


def test_settings_are_for_start() -> None:
    GpuBackend(BackendConfig(num_logical_cpu_devices=0, local_device_ids=(99,)))
    with pytest.raises((ConfigurationError, DeviceNotFoundError, DeviceInitializationError)):
        GpuBackend(BackendConfig(local_device_ids=(99,))).start()
