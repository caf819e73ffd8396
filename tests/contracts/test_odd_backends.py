"""A broken backend, in a thread and in a process of its own: each odd answer is an error that names it, in time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bringup.devices.answers import (
    DEVICES_MAX,
    KINDS_BYTES_MAX,
    OddAnswerError,
    checked_devices,
    checked_discovery,
    checked_health,
)
from bringup.devices.backend_errors import BackendErrors
from bringup.devices.base import BackendConfig, CoreLocation, DeviceBackend, Health, LocalDevice
from bringup.devices.call_thread import CallThread
from bringup.devices.isolation.backend import IsolatedBackend
from bringup.devices.sim.backend import SimBackend
from bringup.devices.thread import BackendThread
from bringup.errors import DeviceInitializationError, PeerFailedError
from bringup.runtime.machines.device_kinds import own_kinds

from .odd_answers import ANSWERS, ERRORS, OddBackend
from .peers import job_of_peers
from .places import Place

LONG = 60.0


@pytest.fixture(params=["thread", "process"])
def odd(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], DeviceBackend]]:
    """Return a function that makes the odd backend, here or in a process of its own."""
    (tmp_path / "odd-1.0.dist-info").mkdir()
    (tmp_path / "odd-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1.0\n")
    entry_points = "[bringup.backends]\nODD = odd_answers:OddBackend\n"
    (tmp_path / "odd-1.0.dist-info/entry_points.txt").write_text(entry_points)
    monkeypatch.syspath_prepend(Path(__file__).parent)
    monkeypatch.syspath_prepend(tmp_path)
    made: list[IsolatedBackend] = []

    def make() -> DeviceBackend:
        if request.param == "thread":
            return OddBackend()
        made.append(IsolatedBackend("ODD", BackendConfig(client_id=7, num_clients=8)))
        made[-1].open()
        return made[-1]

    yield make
    for backend in made:
        # Given up first: its `stop` is odd, too.
        backend.interrupt()
        backend.stop()


CHECKS: dict[str, Callable[[Any], Any]] = {
    "start": checked_devices,
    "check_health": checked_health,
    "discover": checked_discovery,
    "stop": lambda result: result,
}


def thread_of(backend: DeviceBackend) -> CallThread:
    """Return a thread that leaves the backend up when it ends: many threads call the same one."""
    errors = BackendErrors(backend.device_type, 7, "backend-under-test")
    return CallThread("backend-under-test", errors, interrupt=lambda: None, release=lambda: None)


async def called(thread: CallThread, backend: DeviceBackend, call: str) -> Any:
    return await thread.call(call, lambda: CHECKS[call](getattr(backend, call)()), LONG)


@pytest.mark.parametrize("call", ANSWERS)
async def test_an_odd_answer_is_an_error_that_names_it(odd: Callable[[], DeviceBackend], call: str) -> None:
    backend = odd()
    for answer in ANSWERS[call]:
        # Another thread for each, as a backend is started once.
        thread = thread_of(backend)
        if isinstance(answer, list) and not isinstance(answer[0], LocalDevice):
            expected = "as device 0, which is no LocalDevice"
        else:
            expected = "which is no|more than"
        with pytest.raises(DeviceInitializationError, match=expected) as caught:
            await called(thread, backend, call)
        assert "the ODD backend of client 7 on host " in str(caught.value)
        assert f"{call} returned " in str(caught.value)
        assert caught.value.client_id == 7
        assert len(str(caught.value)) < 2000
        assert await thread.close(LONG)


@pytest.mark.parametrize("call", ["start", "check_health", "discover", "stop"])
async def test_an_odd_exception_is_an_error(odd: Callable[[], DeviceBackend], call: str) -> None:
    backend = odd()
    if isinstance(backend, OddBackend):
        backend._left.clear()
    else:
        for _ in ANSWERS.get(call, ()):
            with pytest.raises(DeviceInitializationError):
                getattr(backend, call)()
    for error in ERRORS:
        thread = thread_of(backend)
        with pytest.raises(DeviceInitializationError, match=f"{call} raised {type(error).__name__}") as caught:
            await called(thread, backend, call)
        assert "the ODD backend of client 7 on host " in str(caught.value)
        assert "in the backend's code, " in str(caught.value)
        assert len(str(caught.value)) < 20_000
        assert await thread.close(LONG)
        if call == "stop" and isinstance(backend, IsolatedBackend):
            return  # with its process it is gone


def test_numbers_and_flags_of_other_libraries_become_pythons() -> None:
    given = LocalDevice(
        "k",
        np.int32(7),
        CoreLocation(np.int64(1), np.uint8(2), np.array(3), 0),  # type: ignore[arg-type]
    )
    (device,) = checked_devices(iter([given]))
    assert device == LocalDevice("k", 7, CoreLocation(1, 2, 3, 0))
    assert {type(value) for value in (device.core_id, *(device.location or ()))} == {int}
    for ok in (np.True_, 1, True, np.array(1)):
        assert checked_health(Health(ok, permanent=np.False_)).ok is True  # type: ignore[arg-type]


def test_a_kind_is_the_same_for_all_clients_whatever_signs_are_in_it() -> None:
    """Before, client 0 had its own kinds as they were, and the others had them with escapes."""
    (device,) = checked_devices([LocalDevice("NPU\ud800 \x1b[31m2\n\0")])
    assert device == LocalDevice("NPU? ?[31m2??")


def test_the_kinds_of_a_client_fit_into_what_it_tells() -> None:
    """Before, a kind for each of many devices ended the client, and the others heard that its process had died."""
    for length in (1, 256):
        kinds = [("a" if index % 2 else "b") * length for index in range(KINDS_BYTES_MAX // (length + 16))]
        devices = checked_devices(map(LocalDevice, kinds))
        assert len(own_kinds(devices)) < KINDS_BYTES_MAX + 16
        with pytest.raises(OddAnswerError, match="a kind is the name of a model"):
            checked_devices(map(LocalDevice, [*kinds, "c" * 256]))
    assert len(checked_devices([LocalDevice("k" * 256)] * DEVICES_MAX)) == DEVICES_MAX


def test_a_long_detail_is_cut() -> None:
    assert len(checked_health(Health(ok=False, detail="x" * 10**7)).detail) == 16_384


def test_the_largest_numbers_are_taken() -> None:
    last = 2**31 - 2
    device = LocalDevice("k" * 256, 2**31 - 1, CoreLocation(last, last, last, last))
    assert checked_devices([device]) == (device,)
    assert DEVICES_MAX >= 65_536


async def test_where_the_backends_code_raised_is_said() -> None:
    class Backend(OddBackend):
        def start(self) -> Any:
            return [*None]  # type: ignore[misc]

    thread = BackendThread(Backend(), name="backend-under-test", client_id=7)
    with pytest.raises(DeviceInitializationError) as caught:
        await thread.start(LONG)
    assert "start raised TypeError: " in str(caught.value)
    assert ", in the backend's code, start (" in str(caught.value)
    assert "test_odd_backends:" in str(caught.value)
    await thread.close(LONG)


ODD_DEVICES = [
    LocalDevice("k", 0, (0, 1, 2)),  # type: ignore[arg-type]
    LocalDevice("k", 0, CoreLocation(2**31, 0, 0, 0)),
    LocalDevice("k", 0, CoreLocation(-1, 0, 0, 0)),
    LocalDevice("k", "7"),  # type: ignore[arg-type]
    LocalDevice(None),  # type: ignore[arg-type]
    LocalDevice("k" * 10**7),
]


@pytest.mark.parametrize("device", ODD_DEVICES, ids=lambda device: f"{device!r:.60}")
@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.places("memory")
async def test_all_clients_hear_of_an_odd_device_and_none_hangs(
    place: Place, monkeypatch: pytest.MonkeyPatch, victim: int, device: LocalDevice
) -> None:
    """Before, client 0 did not end, the others lost it or were up with a topology that raised."""
    start = SimBackend.start

    def start_oddly(self: SimBackend) -> Any:
        return [device] if self._config.client_id == victim else start(self)

    monkeypatch.setattr(SimBackend, "start", start_oddly)
    async with job_of_peers(place, 2) as job:
        job.start()
        own, other = await asyncio.gather(*(job.peers[i].failed.wait() for i in (victim, 1 - victim)))
        assert isinstance(own, DeviceInitializationError)
        assert f"client {victim} on host" in str(own)
        assert "device 0 with " in str(own)
        assert isinstance(other, PeerFailedError)
        assert other.client_id == victim
        assert "device 0 with " in other.cause
        for running in job.runs.values():
            await running
