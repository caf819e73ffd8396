"""Backends that are made by their own thread."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from bringup.devices.base import BackendConfig, Health, Interruptible, Openable
from bringup.devices.deferred import DeferredBackend, prepare_backend
from bringup.devices.isolation.backend import IsolatedBackend
from bringup.devices.sim.backend import SimBackend
from bringup.errors import ConfigurationError, DeviceInitializationError, DeviceNotFoundError


def test_wrong_settings_show_when_it_is_opened() -> None:
    backend = prepare_backend("sim", BackendConfig(environment={"BRINGUP_SIM_TOPOLOGY": "x"}))
    assert backend.device_type == "SIM"
    assert isinstance(backend, Openable)
    with pytest.raises(ConfigurationError, match="BRINGUP_SIM_TOPOLOGY"):
        backend.open()


def test_a_preferred_backend_is_looked_for_later() -> None:
    backend = prepare_backend(None, BackendConfig())
    assert type(backend) is DeferredBackend
    assert isinstance(backend, Openable)
    assert isinstance(backend, Interruptible)
    assert (backend.device_type, backend.simulated) == ("preferred", False)
    backend.open()
    assert backend.device_type in ("TPU", "GPU", "CPU")
    backend.stop()


def test_a_foreign_backend_is_imported_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "late-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: late\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[bringup.backends]\nLATE = late_module:make\n")
    source = """
        from bringup.devices.sim.backend import SimBackend

        class Late(SimBackend):
            device_type = "LATE"
            interrupted = False

            def interrupt(self):
                Late.interrupted = True

        make = Late
    """
    (tmp_path / "late_module.py").write_text(textwrap.dedent(source))
    monkeypatch.syspath_prepend(tmp_path)
    backend = prepare_backend(" late", BackendConfig(num_clients=4))
    assert "late_module" not in sys.modules
    assert backend.device_type == "LATE"
    backend.stop()
    assert isinstance(backend, DeferredBackend)
    backend.interrupt()
    before = backend.simulated
    backend.open()
    assert (before, backend.simulated) == (False, True)
    assert backend.discover().present
    assert not backend.check_health().ok
    assert len(backend.start()) == 8
    assert backend.check_health() == Health(ok=True)
    backend.interrupt()
    assert sys.modules["late_module"].Late.interrupted
    backend.stop()
    assert not backend.check_health().ok
    del sys.modules["late_module"]


@pytest.mark.parametrize(("name", "kind"), [("XPU", ConfigurationError), ("GPUS", ConfigurationError)])
def test_what_is_unknown_is_refused_when_it_is_opened(name: str, kind: type[Exception]) -> None:
    backend = prepare_backend(name, BackendConfig())
    assert isinstance(backend, Openable)
    with pytest.raises(kind, match=f"device_type='{name}' is not known"):
        backend.open()


def test_isolation_is_for_every_type() -> None:
    for device_type in ("SIM", "CPU", None, "XPU"):
        backend = prepare_backend(device_type, BackendConfig(), isolate=True)
        assert type(backend) is IsolatedBackend
        assert backend.device_type == (device_type or "preferred")
        assert isinstance(backend, Openable)
        assert isinstance(backend, Interruptible)


def test_a_deferred_backend_needs_no_opening() -> None:
    made = []

    def make() -> SimBackend:
        made.append(SimBackend(BackendConfig(num_clients=4)))
        return made[-1]

    backend = DeferredBackend("SIM", make)
    assert len(backend.start()) == 8
    backend.open()
    assert len(made) == 1


def test_a_deferred_backend_that_cannot_be_made_may_be_tried_again() -> None:
    errors = [DeviceNotFoundError("none"), DeviceInitializationError("broken")]

    def make() -> SimBackend:
        if errors:
            raise errors.pop(0)
        return SimBackend(BackendConfig())

    backend = DeferredBackend("SIM", make)
    with pytest.raises(DeviceNotFoundError):
        backend.open()
    with pytest.raises(DeviceInitializationError):
        backend.discover()
    backend.open()
