"""The SIM backend: its devices, delays and faults."""

from __future__ import annotations

import itertools
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from bringup.devices.base import BackendConfig, Health, LocalDevice
from bringup.devices.sim import backend as sim
from bringup.devices.sim.backend import SimBackend
from bringup.errors import ConfigurationError, DeviceInitializationError, DeviceNotFoundError


def make(client_id: int = 0, num_clients: int = 4, fault: str = "", **settings: str) -> SimBackend:
    environment = {"BRINGUP_SIM_FAULT": fault} | {f"BRINGUP_SIM_{name}": text for name, text in settings.items()}
    return SimBackend(BackendConfig(client_id=client_id, num_clients=num_clients, environment=environment))


def start_all(fault: str = "", **settings: str) -> list[list[LocalDevice]]:
    return [list(make(client, fault=fault, **settings).start()) for client in range(4)]


def all_ids(clients: list[list[LocalDevice]]) -> list[int]:
    return [device.core_id for devices in clients for device in devices if device.core_id is not None]


def test_says_that_it_is_simulated() -> None:
    backend = make()
    assert backend.simulated
    assert "simulated" in backend.discover().detail
    assert all(device.kind.startswith("SIM ") for device in backend.start())


def test_clients_together_have_the_whole_slice() -> None:
    clients = start_all(TOPOLOGY="4x4x2x2")
    assert sorted(all_ids(clients)) == list(range(64))
    assert len({device.location for devices in clients for device in devices}) == 64


def test_discovery_describes_the_slice() -> None:
    discovery = make(2, TOPOLOGY="4x4x1x2").discover()
    assert discovery.present
    assert discovery.detail == "simulated slice 4x4x1x2 of 32 devices, 8 of them on client 2 of 4"


def test_wrong_settings_show_when_it_is_made() -> None:
    with pytest.raises(ConfigurationError, match="16 chips do not divide over 3 clients"):
        make(num_clients=3, TOPOLOGY="4x4")


def test_local_device_ids_keep_their_own_ids_and_locations() -> None:
    everything = make(1).start()
    some = SimBackend(BackendConfig(client_id=1, num_clients=4, local_device_ids=(5, 2))).start()
    assert list(some) == [everything[2], everything[5]]


def test_local_device_ids_out_of_range_are_refused() -> None:
    backend = SimBackend(BackendConfig(num_clients=4, local_device_ids=(0, 8)))
    with pytest.raises(ConfigurationError, match=r"no such device: 8; client 0 \(SIM\) has 8 devices: .*0 to 7"):
        backend.start()


def test_megacore_halves_the_devices() -> None:
    assert len(SimBackend(BackendConfig(num_clients=4, enable_megacore=True)).start()) == 4


def test_fault_raise_names_the_client() -> None:
    with pytest.raises(DeviceInitializationError, match="client 1 did not start: no power") as caught:
        make(1, fault="1:raise:no power").start()
    assert caught.value.client_id == 1
    assert caught.value.cause == "no power"
    assert len(make(0, fault="1:raise:no power").start()) == 8


def test_fault_duplicate_repeats_an_id_of_another_client() -> None:
    for fault in ("0:duplicate", "3:duplicate", "*:duplicate"):
        ids = all_ids(start_all(fault))
        assert len(ids) == 32
        assert len(set(ids)) < 32


def test_fault_shifted_repeats_a_location_of_another_client() -> None:
    clients = start_all("2:shifted")
    assert len({device.location for devices in clients for device in devices}) == 31
    assert clients[2][-1].location == clients[0][0].location
    assert sorted(all_ids(clients)) == list(range(32))


def test_fault_missing_drops_the_last_device() -> None:
    assert [len(devices) for devices in start_all("2:missing")] == [8, 8, 7, 8]


def test_fault_missing_of_the_only_device_leaves_none() -> None:
    with pytest.raises(DeviceNotFoundError, match="missing"):
        make(0, 1, fault="0:missing", TOPOLOGY="1x1").start()


def test_fault_missing_takes_as_many_as_asked() -> None:
    assert [len(devices) for devices in start_all("1:missing:3,2:missing:7")] == [8, 5, 1, 8]
    with pytest.raises(DeviceNotFoundError, match="client 2 has no SIM device: the fault `missing` took all of them"):
        make(2, fault="2:missing:8").start()
    with pytest.raises(DeviceNotFoundError):
        make(2, fault="2:missing:1000").start()


def test_fault_wrong_gives_the_last_device_another_id() -> None:
    before, after = start_all(), start_all("1:wrong:77")
    assert after[1][-1].core_id == 77
    assert after[1][-1].location == before[1][-1].location
    after[1][-1] = before[1][-1]
    assert after == before
    assert start_all("1:wrong")[1][-1].core_id == -1


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def started(fault: str) -> tuple[SimBackend, Clock]:
    clock = Clock()
    backend = SimBackend(BackendConfig(environment={"BRINGUP_SIM_FAULT": fault}), clock=clock)
    clock.now += 5
    backend.start()
    return backend, clock


def test_fault_degrade_shows_from_its_time_on() -> None:
    backend, clock = started("0:degrade:10:fan is slow: 3 rpm")
    assert backend.check_health() == Health(ok=True)
    clock.now += 9.9
    assert backend.check_health() == Health(ok=True)
    clock.now += 0.1
    assert backend.check_health() == Health(ok=False, detail="fan is slow: 3 rpm")
    clock.now += 1e6
    assert not backend.check_health().ok
    assert started("0:degrade:0")[0].check_health() == Health(ok=False, detail="simulated wear")


@pytest.mark.parametrize(("fault", "pattern"), [("0:flap", "+-+-+-+-"), ("0:flap:3", "+++---+++---")])
def test_fault_flap_alternates(fault: str, pattern: str) -> None:
    backend, _ = started(fault)
    assert "".join("+" if backend.check_health().ok else "-" for _ in pattern) == pattern


def test_fault_stuck_hangs_from_its_time_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang() -> None:
        raise TimeoutError("hangs")

    monkeypatch.setattr(sim, "_hang", hang)
    backend, clock = started("0:stuck:10")
    assert backend.check_health().ok
    clock.now += 10
    with pytest.raises(TimeoutError):
        backend.check_health()


@pytest.mark.parametrize(("fault", "number"), [("crash", 11), ("crash:abrt", 6), ("crash:SIGKILL", 9)])
def test_fault_crash_ends_the_process(fault: str, number: int) -> None:
    code = f"""
        from bringup.devices.base import BackendConfig
        from bringup.devices.sim.backend import SimBackend
        SimBackend(BackendConfig(environment={{"BRINGUP_SIM_FAULT": "0:{fault}"}})).start()
    """
    done = subprocess.run([sys.executable, "-P", "-c", textwrap.dedent(code)], timeout=60, check=False)
    assert done.returncode == -number


def test_fault_gil_lets_no_other_thread_run() -> None:
    clock = threading.Event()
    beats = [time.monotonic()]

    def beat() -> None:
        while not clock.wait(0.01):
            beats.append(time.monotonic())

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    make(fault="0:gil:0.5").start()
    clock.set()
    thread.join(30)
    beats.append(time.monotonic())
    assert max(after - before for before, after in itertools.pairwise(beats)) > 0.4


def test_fault_unhealthy_shows_in_the_health_check() -> None:
    backend = make(0, fault="0:unhealthy:too hot")
    backend.start()
    assert backend.check_health() == Health(ok=False, detail="too hot")


def test_health_is_not_ok_before_start_and_after_stop() -> None:
    backend = make()
    assert not backend.check_health().ok
    backend.start()
    assert backend.check_health() == Health(ok=True)
    backend.stop()
    assert not backend.check_health().ok


@pytest.mark.parametrize("settings", [{"START_SECONDS": "3600"}, {"fault": "0:slow:3600"}])
@pytest.mark.parametrize("end", ["stop", "interrupt"])
def test_a_slow_start_ends_when_it_is_stopped(settings: dict[str, str], end: str) -> None:
    backend = make(**settings)
    causes: list[str] = []
    entered = threading.Event()

    def run() -> None:
        entered.set()
        try:
            backend.start()
        except DeviceInitializationError as error:
            causes.append(error.cause)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert entered.wait(30)
    getattr(backend, end)()
    thread.join(30)
    assert causes == ["stopped during the 3600 s that start was asked to take"]


def test_start_and_fault_delays_add_up() -> None:
    backend = make(fault="0:slow:2", START_SECONDS="1.5")
    backend.interrupt()
    with pytest.raises(DeviceInitializationError, match=r"3\.5 s"):
        backend.start()
