"""Which backend a device type gives, and what is said where there is none."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from bringup.devices import registry
from bringup.devices.base import BackendConfig, Discovery
from bringup.devices.cpu.backend import CpuBackend
from bringup.devices.registry import create_backend
from bringup.devices.sim.backend import SimBackend
from bringup.errors import ConfigurationError, DeviceInitializationError, DeviceNotFoundError

BACKEND = """
    from bringup.devices.base import Discovery, Health, LocalDevice

    class Backend:
        device_type = "{type}"
        simulated = False

        def __init__(self, config):
            self.config = config

        def discover(self):
            return Discovery(present={present}, detail="looked at /dev/{type}")

        def start(self):
            return [LocalDevice("{type}")]

        def check_health(self):
            return Health(ok=True)

        def stop(self):
            pass
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return a function that installs a distribution with one module and one entry point."""

    def do(distribution: str, entry: str, source: str) -> None:
        site = tmp_path / distribution
        info = site / f"{distribution}-1.2.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[bringup.backends]\n{entry}\n")
        (site / f"{distribution}_module.py").write_text(textwrap.dedent(source))
        monkeypatch.syspath_prepend(site)
        monkeypatch.delitem(sys.modules, f"{distribution}_module", raising=False)

    return do


@pytest.fixture
def few_built_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave only the backends built in that have devices on every machine."""
    monkeypatch.setattr(registry, "_BUILT_IN", {name: registry._BUILT_IN[name] for name in ("CPU", "SIM")})


def refusal(device_type: str | None) -> str:
    with pytest.raises(ConfigurationError) as caught:
        create_backend(device_type, BackendConfig())
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "kind"), [("CPU", CpuBackend), ("cpu", CpuBackend), (" Cpu ", CpuBackend), ("sim", SimBackend)]
)
def test_built_in_types_come_in_any_case(name: str, kind: type) -> None:
    backend = create_backend(name, BackendConfig())
    assert type(backend) is kind
    assert backend.device_type == name.strip().upper()


def test_built_in_types_need_no_other_backend_and_no_entry_points() -> None:
    code = """
        import sys
        from bringup.devices.base import BackendConfig
        from bringup.devices.registry import create_backend
        create_backend("SIM", BackendConfig())
        loaded = {"bringup.devices.cpu.backend", "importlib.metadata", "numpy", "asyncio"} & set(sys.modules)
        assert not loaded, loaded
    """
    # -P: the current directory may be the package's own, whose modules must not shadow others.
    subprocess.run([sys.executable, "-P", "-c", textwrap.dedent(code)], check=True, timeout=60)


@pytest.mark.usefixtures("few_built_in")
def test_none_prefers_tpu_then_gpu_then_cpu(install: Install) -> None:
    assert create_backend(None, BackendConfig()).device_type == "CPU"
    install("withgpu", "GPU = withgpu_module:Backend", BACKEND.format(type="GPU", present=True))
    assert create_backend(None, BackendConfig()).device_type == "GPU"
    install("withtpu", "TPU = withtpu_module:Backend", BACKEND.format(type="TPU", present=True))
    assert create_backend(None, BackendConfig()).device_type == "TPU"


@pytest.mark.usefixtures("few_built_in")
def test_none_passes_over_what_is_not_present(install: Install) -> None:
    install("absenttpu", "TPU = absenttpu_module:Backend", BACKEND.format(type="TPU", present=False))
    assert create_backend(None, BackendConfig()).device_type == "CPU"


@pytest.mark.usefixtures("few_built_in")
def test_none_without_any_device_says_what_was_looked_at(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("absentgpu", "GPU = absentgpu_module:Backend", BACKEND.format(type="GPU", present=False))
    nothing = Discovery(present=False, detail="no CPU in the mask")
    monkeypatch.setattr(CpuBackend, "discover", lambda _: nothing)
    with pytest.raises(DeviceNotFoundError) as caught:
        create_backend(None, BackendConfig(client_id=2, num_clients=3))
    assert "TPU: no backend installed; GPU: looked at /dev/GPU; CPU: no CPU in the mask" in str(caught.value)
    assert caught.value.client_id == 2


@pytest.mark.usefixtures("few_built_in")
def test_none_does_not_hide_a_failing_discovery(install: Install) -> None:
    source = BACKEND.format(type="TPU", present=True).replace("return Discovery", "raise OSError('no ioctl') #")
    install("brokentpu", "TPU = brokentpu_module:Backend", source)
    with pytest.raises(DeviceInitializationError, match="looking for TPU devices failed: OSError: no ioctl"):
        create_backend(None, BackendConfig())


@pytest.mark.usefixtures("few_built_in")
@pytest.mark.parametrize("name", ["GPU", "tpu", "Jax"])
def test_well_known_types_without_backend_are_not_found(name: str) -> None:
    with pytest.raises(DeviceNotFoundError) as caught:
        create_backend(name, BackendConfig(client_id=1, num_clients=2))
    message = str(caught.value)
    assert f"device_type={name!r} on client 1: this version of bringup has no {name.upper()} backend" in message
    assert "built in: CPU, SIM; offered by installed distributions (bringup.backends): none" in message
    assert caught.value.client_id == 1


@pytest.mark.usefixtures("few_built_in")
@pytest.mark.parametrize("name", ["XPU", "", "cpu0", "C P U"])
def test_unknown_types_are_refused_with_what_is_known(name: str, install: Install) -> None:
    install("offersnpu", "NPU = offersnpu_module:Backend", BACKEND.format(type="NPU", present=True))
    message = refusal(name)
    assert f"device_type={name!r} is not known" in message
    assert "CPU, SIM" in message
    assert "NPU = offersnpu_module:Backend from offersnpu 1.2" in message
    assert "TPU, GPU, JAX" in message


def test_entry_points_give_backends_in_any_case(install: Install) -> None:
    install("somenpu", "Npu = somenpu_module:Backend", BACKEND.format(type="NPU", present=True))
    config = BackendConfig(client_id=3, num_clients=4)
    backend = create_backend("nPU", config)
    assert backend.device_type == "NPU"
    assert vars(backend) == {"config": config}


def test_built_in_types_cannot_be_replaced(install: Install) -> None:
    install("fakecpu", "CPU = fakecpu_module:Backend", "raise RuntimeError('imported')")
    assert type(create_backend("CPU", BackendConfig())) is CpuBackend


def test_a_type_that_is_offered_twice_is_refused(install: Install) -> None:
    for distribution in ("onenpu", "twonpu"):
        install(distribution, f"NPU = {distribution}_module:Backend", BACKEND.format(type="NPU", present=True))
    message = refusal("NPU")
    assert "from onenpu 1.2 and" in message
    assert "from twonpu 1.2" in message


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("raise RuntimeError('no driver')", "RuntimeError: no driver"),
        ("import a_library_that_nobody_has", "ModuleNotFoundError: No module named 'a_library_that_nobody_has'"),
        ("import sys; sys.exit('bye')", "SystemExit: bye"),
        ("x = 1", "AttributeError: module 'badnpu_module' has no attribute 'Backend'"),
        ("Backend = 3", "TypeError: 'int' object is not callable"),
        ("def Backend(config): raise KeyError('x')", "KeyError: 'x'"),
        ("def Backend(config): return None", "it gave a NoneType without discover, start, check_health, stop"),
        (BACKEND.format(type="NPU", present=True).replace("stop", "halt"), "it gave a Backend without stop"),
        (BACKEND.format(type="GPU", present=True), "the `device_type` of its Backend is 'GPU', not 'NPU'"),
        (
            BACKEND.format(type="NPU", present=True).replace("= False", "= 0"),
            "`simulated` of its Backend is not a bool",
        ),
    ],
)
def test_an_entry_point_that_yields_no_backend_is_named(source: str, cause: str, install: Install) -> None:
    install("badnpu", "NPU = badnpu_module:Backend", source)
    message = refusal("NPU")
    assert "the entry point NPU = badnpu_module:Backend from badnpu 1.2 of group bringup.backends" in message
    assert cause in message


def test_errors_of_a_backend_about_its_settings_pass(install: Install) -> None:
    source = """
        from bringup.errors import ConfigurationError

        def Backend(config):
            raise ConfigurationError("NPU_CORES=-1")
    """
    install("strictnpu", "NPU = strictnpu_module:Backend", source)
    assert refusal("NPU") == "NPU_CORES=-1"


def test_wrong_settings_of_a_built_in_backend_pass() -> None:
    with pytest.raises(ConfigurationError, match="num_logical_cpu_devices=0"):
        create_backend(None, BackendConfig(num_logical_cpu_devices=0))
