"""The shipped contract suite of device backends, run on all shipped backends."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from bringup.devices.base import BackendConfig, DeviceBackend
from bringup.devices.isolation.backend import IsolatedBackend
from bringup.devices.registry import create_backend
from bringup.testing.backend_contract import BackendContract


def missing(device_type: str) -> str:
    """Return what keeps a backend from being tried here, or nothing."""
    if device_type == "JAX" and importlib.util.find_spec("jax") is None:
        return "jax is not installed"
    if device_type == "GPU":
        if not create_backend("GPU", BackendConfig()).discover().present:
            return "this host has no NVIDIA GPU"
        if importlib.util.find_spec("cuda") is None:
            return "cuda-bindings is not installed"
    return ""


def needs(device_type: str) -> pytest.MarkDecorator:
    reason = missing(device_type)
    return pytest.mark.skipif(bool(reason), reason=reason or "it is there")


class Registered(BackendContract):
    """A backend that ships with the package."""

    num_clients = 4

    def make_backend(self, config: BackendConfig) -> DeviceBackend:
        return create_backend(self.device_type, replace(config, num_logical_cpu_devices=8))


class TestCpu(Registered):
    device_type = "CPU"


class TestSim(Registered):
    device_type = "SIM"
    simulated = True
    environment: ClassVar = {"BRINGUP_SIM_TOPOLOGY": "4x4x2x2"}


class TestSimInAProcessOfItsOwn(TestSim):
    def make_backend(self, config: BackendConfig) -> DeviceBackend:
        return IsolatedBackend("SIM", config)


@needs("GPU")
class TestGpu(Registered):
    device_type = "GPU"
    has_relative_locations = True


@needs("JAX")
class TestJax(Registered):
    device_type = "JAX"


PAGE = (Path(__file__).parents[2] / "docs/backends.md").read_text()


class TestTheBackendOfThePage(BackendContract):
    device_type = "NPU"

    def make_backend(self, config: BackendConfig) -> DeviceBackend:
        names: dict[str, Any] = {}
        exec(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0], names)
        backend: DeviceBackend = names["NpuBackend"](config)
        return backend


BROKEN = """
    from bringup.devices.base import LocalDevice, Health
    from bringup.devices.sim.backend import SimBackend
    from bringup.testing import BackendContract

    class Contract(BackendContract):
        device_type = "SIM"
        simulated = True
        num_clients = 2
"""

BROKEN_ONE = """
    class Backend{number}(SimBackend):
        {body}

    class Test{number}(Contract):
        def make_backend(self, config):
            return Backend{number}(config)
"""

DEFECTS = {
    "pass": "",
    "def start(self): super().start(); return [LocalDevice('k', 0)]": "test_core_ids_are_unique_in_the_job",
    "def start(self): super().start(); return [LocalDevice('', 0)]": "test_start_gives_devices_whose_fields_are_sound",
    "def check_health(self): return Health(ok=True)": "test_health_is_ok_after_start_and_not_before_or_after_stop",
    "device_type = 'OTHER'": "test_it_has_the_name_it_is_registered_under",
    "def stop(self): assert self._started_at is not None; super().stop()": "test_stop_is_idempotent",
}


def test_the_suite_finds_defects_as_a_plug_in_would_use_it(tmp_path: Path) -> None:
    bodies = enumerate(DEFECTS)
    parts = [BROKEN, *(BROKEN_ONE.format(number=number, body=body) for number, body in bodies)]
    (tmp_path / "test_broken.py").write_text("".join(map(textwrap.dedent, parts)))
    command = [sys.executable, "-m", "pytest", "-q", "-rf", "-p", "no:cacheprovider", "test_broken.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    failed = set(re.findall(r"^FAILED test_broken\.py::(Test\d+)::(\w+)", done.stdout, re.MULTILINE))
    assert {name for name, _ in failed} == {f"Test{number}" for number in range(1, len(DEFECTS))}, done.stdout
    assert {(f"Test{number}", test) for number, test in enumerate(DEFECTS.values()) if test} <= failed
