"""What every device backend promises, checked on all that ship with the package."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Mapping

import pytest

from bringup.devices.base import BackendConfig, CoreLocation, DeviceBackend, Discovery, Health, LocalDevice
from bringup.devices.isolation.backend import IsolatedBackend
from bringup.devices.registry import create_backend
from bringup.errors import BringupError, ConfigurationError

ENVIRONMENTS: Mapping[str, Mapping[str, str]] = {
    "CPU": {},
    "GPU": {},
    "JAX": {},
    "SIM": {"BRINGUP_SIM_TOPOLOGY": "4x4x2x2"},
}


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


def with_mark(device_type: str) -> object:
    reason = missing(device_type)
    return pytest.param(device_type, marks=pytest.mark.skipif(bool(reason), reason=reason or "it is there"))


ISOLATED = "SIM in a process of its own"

pytestmark = pytest.mark.parametrize("device_type", [*(with_mark(name) for name in sorted(ENVIRONMENTS)), ISOLATED])

# Those that count devices along the links between the chosen ones, where others have coordinates from the hardware.
RELATIVE_LOCATIONS = {"GPU"}

MAX_INT32 = 2**31 - 1


def make(
    device_type: str, *, client_id: int = 0, num_clients: int = 4, local_device_ids: tuple[int, ...] | None = None
) -> DeviceBackend:
    registered = name_of(device_type)
    config = BackendConfig(
        client_id=client_id,
        num_clients=num_clients,
        local_device_ids=local_device_ids,
        num_logical_cpu_devices=8,
        environment=ENVIRONMENTS[registered],
    )
    if device_type != ISOLATED:
        return create_backend(device_type, config)
    backend = IsolatedBackend(registered, config)
    backend.open()
    return backend


def name_of(device_type: str) -> str:
    return "SIM" if device_type == ISOLATED else device_type


def test_it_has_the_name_it_is_registered_under(device_type: str) -> None:
    assert make(device_type).device_type == name_of(device_type)


def test_it_says_whether_its_devices_exist(device_type: str) -> None:
    assert make(device_type).simulated is (name_of(device_type) == "SIM")


def test_discovery_comes_before_start_and_changes_nothing(device_type: str) -> None:
    backend = make(device_type)
    threads = threading.active_count()
    first = backend.discover()
    assert isinstance(first, Discovery)
    assert first.present
    assert first.detail
    assert backend.discover() == first
    assert threading.active_count() == threads
    assert len(backend.start()) == len(make(device_type).start())
    assert backend.discover() == first


def test_start_gives_devices(device_type: str) -> None:
    devices = make(device_type).start()
    assert len(devices) >= 1
    assert all(type(device) is LocalDevice and device.kind for device in devices)


def test_core_ids_are_unique_in_the_job(device_type: str) -> None:
    ids = [device.core_id for client in range(4) for device in make(device_type, client_id=client).start()]
    given = [id_ for id_ in ids if id_ is not None]
    assert len(given) in (0, len(ids))
    assert len(set(given)) == len(given)
    assert all(0 <= id_ <= MAX_INT32 for id_ in given)


def test_all_devices_have_a_location_of_their_own_or_none_has(device_type: str) -> None:
    devices = [device for client in range(4) for device in make(device_type, client_id=client).start()]
    locations = [device.location for device in devices if device.location is not None]
    assert len(locations) in (0, len(devices))
    assert len(set(locations)) == len(locations)
    assert all(isinstance(location, CoreLocation) and min(location) >= 0 for location in locations)


def test_devices_are_the_same_each_time(device_type: str) -> None:
    assert list(make(device_type, client_id=2).start()) == list(make(device_type, client_id=2).start())


def test_local_device_ids_choose_among_the_devices_in_their_order(device_type: str) -> None:
    everything = make(device_type).start()
    last = len(everything) - 1
    chosen, expected = list(make(device_type, local_device_ids=(last, 0)).start()), [everything[0], everything[last]]
    assert [(device.kind, device.core_id) for device in chosen] == [(one.kind, one.core_id) for one in expected]
    assert chosen == expected or device_type in RELATIVE_LOCATIONS


@pytest.mark.parametrize("ids", [(), (-1,), (0, 0), (10_000,)])
def test_impossible_local_device_ids_are_refused(device_type: str, ids: tuple[int, ...]) -> None:
    with pytest.raises(ConfigurationError, match="local_device_ids"):
        make(device_type, local_device_ids=ids).start()


def test_health_is_ok_after_start_and_not_after_stop(device_type: str) -> None:
    backend = make(device_type)
    assert not backend.check_health().ok
    backend.start()
    health = backend.check_health()
    assert isinstance(health, Health)
    assert health.ok
    backend.stop()
    stopped = backend.check_health()
    assert not stopped.ok
    assert stopped.detail


def test_stop_is_idempotent(device_type: str) -> None:
    backend = make(device_type)
    backend.start()
    backend.stop()
    backend.stop()


def test_stop_is_fine_without_start_and_after_a_failed_one(device_type: str) -> None:
    make(device_type).stop()
    backend = make(device_type, local_device_ids=(10_000,))
    with pytest.raises(BringupError):
        backend.start()
    backend.stop()
    backend.stop()


def test_two_backends_do_not_touch_each_other(device_type: str) -> None:
    one, other = make(device_type, client_id=0), make(device_type, client_id=1)
    one.start()
    other.start()
    one.stop()
    assert other.check_health().ok


def test_no_thread_stays(device_type: str) -> None:
    before = threading.active_count()
    backend = make(device_type)
    backend.start()
    backend.check_health()
    backend.stop()
    assert threading.active_count() == before
