"""The contract of device backends, as a class of tests for pytest: subclass it for your own backend."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ..devices.answers import CORE_ID_MAX, checked_devices, checked_discovery, checked_health
from ..devices.base import BackendConfig, DeviceBackend, Discovery, Interruptible, LocalDevice, Openable
from ..devices.thread import BackendThread
from ..errors import BringupError, ConfigurationError


class BackendContract:
    """Tests of the port `DeviceBackend`. Subclass it, with a name that begins with `Test`, and give `make_backend`.

    Each test makes backends of its own, and has them stopped. A mark on the class (`pytest.mark.skipif`) says where
    there are no devices to try.

    Attributes:
        device_type: the name that the backend is registered under.
        simulated: whether its devices do not exist.
        num_clients: for how many clients of a job backends can be made here; 1 where that takes their hardware.
        exclusive: whether devices that are up cannot be brought up again, as where a process locks them.
        has_relative_locations: whether locations depend on which devices are chosen.
        environment: the settings that the backend finds in `BackendConfig.environment`.
        timeout: what a call may take, in seconds.
    """

    device_type = ""
    simulated = False
    num_clients = 1
    exclusive = False
    has_relative_locations = False
    environment: Mapping[str, str] = {}
    timeout = 60.0

    _made: list[DeviceBackend]

    def make_backend(self, config: BackendConfig) -> DeviceBackend:
        """Return a backend for a client, as its factory makes it; every subclass defines this."""
        raise NotImplementedError("a subclass of BackendContract returns a backend here")

    def make_config(self, client_id: int = 0, local_device_ids: tuple[int, ...] | None = None) -> BackendConfig:
        """Return the configuration of a backend."""
        return BackendConfig(
            client_id=client_id,
            num_clients=self.num_clients,
            local_device_ids=local_device_ids,
            environment=self.environment,
        )

    # What the tests are made of.

    @pytest.fixture(autouse=True)
    def _stop_all(self) -> Any:
        self._made = []
        yield
        for backend in self._made:
            backend.stop()

    def _make(self, client_id: int = 0, local_device_ids: tuple[int, ...] | None = None) -> DeviceBackend:
        backend = self.make_backend(self.make_config(client_id, local_device_ids))
        self._made.append(backend)
        if isinstance(backend, Openable):
            backend.open()
        return backend

    def _devices(self, client_id: int = 0, local_device_ids: tuple[int, ...] | None = None) -> Sequence[LocalDevice]:
        """Return the devices of a client, which are stopped again."""
        backend = self._make(client_id, local_device_ids)
        try:
            return checked_devices(backend.start())
        finally:
            backend.stop()

    def _devices_of_all(self) -> list[LocalDevice]:
        return [device for client_id in range(self.num_clients) for device in self._devices(client_id)]

    # What a backend is.

    def test_it_has_the_name_it_is_registered_under(self) -> None:
        assert self._make().device_type == self.device_type

    def test_it_says_whether_its_devices_exist(self) -> None:
        assert self._make().simulated is self.simulated

    def test_making_it_does_nothing(self) -> None:
        before = threading.active_count()
        self.make_backend(self.make_config()).stop()
        assert threading.active_count() == before

    # Discovery.

    def test_discovery_comes_before_start_and_changes_nothing(self) -> None:
        backend = self._make()
        threads = threading.active_count()
        first = checked_discovery(backend.discover())
        assert isinstance(first, Discovery)
        assert first.present
        assert first.detail
        assert backend.discover() == first
        assert threading.active_count() == threads
        backend.start()
        assert backend.discover() == first

    # Devices.

    def test_start_gives_devices_whose_fields_are_sound(self) -> None:
        devices = list(self._make().start())
        assert len(devices) >= 1
        assert list(checked_devices(devices)) == devices

    def test_core_ids_are_unique_in_the_job(self) -> None:
        ids = [device.core_id for device in self._devices_of_all()]
        given = [id_ for id_ in ids if id_ is not None]
        assert len(given) in (0, len(ids)), "all devices have an id, or none has"
        assert len(set(given)) == len(given)
        assert all(0 <= id_ <= CORE_ID_MAX for id_ in given)

    def test_all_devices_have_a_location_of_their_own_or_none_has(self) -> None:
        devices = self._devices_of_all()
        locations = [device.location for device in devices if device.location is not None]
        assert len(locations) in (0, len(devices)), "all devices have a location, or none has"
        assert len(set(locations)) == len(locations)

    def test_devices_are_the_same_each_time(self) -> None:
        last = self.num_clients - 1
        assert list(self._devices(last)) == list(self._devices(last))

    def test_local_device_ids_choose_among_the_devices_in_their_order(self) -> None:
        everything = self._devices()
        ids = sorted({0, len(everything) - 1})
        chosen, expected = self._devices(0, tuple(reversed(ids))), [everything[index] for index in ids]
        assert [(device.kind, device.core_id) for device in chosen] == [(one.kind, one.core_id) for one in expected]
        assert list(chosen) == expected or self.has_relative_locations

    @pytest.mark.parametrize("ids", [(), (-1,), (0, 0), (10_000_000,)])
    def test_impossible_local_device_ids_are_refused(self, ids: tuple[int, ...]) -> None:
        with pytest.raises(ConfigurationError, match="local_device_ids"):
            self._make(0, ids).start()

    # Health.

    def test_health_is_ok_after_start_and_not_before_or_after_stop(self) -> None:
        backend = self._make()
        assert not checked_health(backend.check_health()).ok
        backend.start()
        assert checked_health(backend.check_health()).ok
        backend.stop()
        stopped = checked_health(backend.check_health())
        assert not stopped.ok
        assert stopped.detail

    # The end.

    def test_stop_is_idempotent(self) -> None:
        backend = self._make()
        backend.start()
        backend.stop()
        backend.stop()

    def test_stop_is_fine_without_start_and_after_a_failed_one(self) -> None:
        self._make().stop()
        backend = self._make(0, (10_000_000,))
        with pytest.raises(BringupError):
            backend.start()
        backend.stop()
        backend.stop()

    def test_devices_come_up_again_after_stop(self) -> None:
        first = self._devices()
        assert list(self._devices()) == list(first)

    def test_two_backends_do_not_touch_each_other(self) -> None:
        if self.exclusive:
            pytest.skip("devices that are up cannot be brought up again")
        one, other = self._make(0), self._make(self.num_clients - 1)
        one.start()
        other.start()
        one.stop()
        assert other.check_health().ok

    def test_no_thread_stays(self) -> None:
        before = threading.active_count()
        backend = self._make()
        backend.start()
        backend.check_health()
        backend.stop()
        assert threading.active_count() == before

    # Threads.

    def test_it_works_in_the_thread_that_calls_it(self) -> None:
        """As in a client, all calls come from one thread, and another thread made the backend."""

        async def run() -> None:
            backend = self.make_backend(self.make_config())
            thread = BackendThread(backend, name="backend-under-test", client_id=0)
            await thread.open(self.timeout)
            assert (thread.device_type, thread.simulated) == (self.device_type, self.simulated)
            assert await thread.start(self.timeout)
            assert (await thread.check_health(self.timeout)).ok
            assert await thread.close(self.timeout), "its thread ends"

        asyncio.run(run())

    def test_an_interrupt_blocks_nobody_and_leaves_a_backend_that_can_be_stopped(self) -> None:
        backend = self._make()
        if not isinstance(backend, Interruptible):
            pytest.skip("it is not Interruptible")
        backend.start()
        from_elsewhere = threading.Thread(target=backend.interrupt, daemon=True)
        from_elsewhere.start()
        from_elsewhere.join(self.timeout)
        assert not from_elsewhere.is_alive()
        checked_health(backend.check_health())
        backend.stop()
        backend.interrupt()
