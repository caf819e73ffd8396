"""The `SIM` backend: a TPU-like slice that does not exist, with the delays and faults it is asked for."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from ..errors import DeviceInitializationError, DeviceNotFoundError
from .base import BackendConfig, CoreLocation, Discovery, Health, LocalDevice
from .selection import select_local_devices
from .sim_faults import SimSettings

__all__ = ["SimBackend"]


class SimBackend:
    """One client's part of a simulated slice, for demonstrations and tests.

    Settings, from the environment in the config; all clients are meant to have the same:

    - `BRINGUP_SIM_TOPOLOGY`: the slice, `XxYxZxC`: chips along x, y and z, and cores per chip (1 or 2). `XxYxZ` has one
      core per chip, `XxY` is also one chip deep. Clients get host blocks of 2x2x1 chips where there are as many blocks
      as clients, else equal runs of chips. Default: one block for each client, nearly square, with two cores per chip.
    - `BRINGUP_SIM_START_SECONDS`: how long `start` takes, in seconds.
    - `BRINGUP_SIM_FAULT`: a comma-separated list of `client:kind[:argument]`, `*` for every client. Kinds:
        - `raise[:text]`: `start` raises a `DeviceInitializationError` with the text.
        - `hang`: `start` never returns, whatever is done to it.
        - `slow:SECONDS`: `start` takes so much longer.
        - `duplicate`: the last device repeats the first core id of client 0 (on client 0: of client 1).
        - `missing`: the last device is not there.
        - `unhealthy[:text]`: the health check fails with the text.
        - `shifted`: the last device reports the first location of client 0 (on client 0: of client 1).

    With `enable_megacore` the two cores of a chip are one device. Core ids are permuted, so that a wrong merge shows.

    Raises:
        ConfigurationError: a setting is malformed, or the slice does not divide over the clients.
    """

    device_type = "SIM"
    simulated = True

    def __init__(self, config: BackendConfig) -> None:
        self._config = config
        self._settings = SimSettings.parse(config)
        self._stopping = threading.Event()
        self._started = False

    def discover(self) -> Discovery:
        """Describe the slice."""
        part = self._settings.slice
        return Discovery(
            present=True,
            detail=f"simulated slice {part.shape} of {part.num_devices} devices, {part.devices_per_client} of them on "
            f"client {self._config.client_id} of {part.num_clients}",
        )

    def start(self) -> Sequence[LocalDevice]:
        """Wait as long as asked, fail as asked, and return this client's part of the slice.

        Raises:
            ConfigurationError: `local_device_ids` names devices that this client does not have.
            DeviceInitializationError: the fault `raise`, or `interrupt` or `stop` while it waited.
            DeviceNotFoundError: the fault `missing` left no device.
        """
        faults = self._settings.faults
        self._wait(self._settings.start_seconds + faults.slow)
        if faults.hang:
            while True:
                threading.Event().wait()
        if faults.failure is not None:
            raise self._failure(faults.failure)
        devices = self._devices()
        self._started = True
        return devices

    def check_health(self) -> Health:
        """Report the fault `unhealthy`, or that all is well."""
        if not self._started:
            return Health(ok=False, detail="the SIM backend is not started")
        text = self._settings.faults.unhealthy
        return Health(ok=text is None, detail=text or "")

    def interrupt(self) -> None:
        """Make a `start` that waits fail at once; callable from any thread, and at any time."""
        self._stopping.set()

    def stop(self) -> None:
        """Forget the devices."""
        self._stopping.set()
        self._started = False

    def _wait(self, seconds: float) -> None:
        if seconds and self._stopping.wait(seconds):
            raise self._failure(f"stopped during the {seconds:g} s that start was asked to take")

    def _failure(self, cause: str) -> DeviceInitializationError:
        client_id = self._config.client_id
        return DeviceInitializationError(
            f"the SIM backend of client {client_id} did not start: {cause}.", client_id=client_id, cause=cause
        )

    def _devices(self) -> tuple[LocalDevice, ...]:
        client_id, part, faults = self._config.client_id, self._settings.slice, self._settings.faults
        cores = select_local_devices(
            [*zip(part.core_ids(client_id), part.locations(client_id), strict=True)],
            self._config.local_device_ids,
            owner=f"client {client_id} (SIM)",
        )
        if faults.missing:
            cores = cores[:-1]
        if not cores:
            raise DeviceNotFoundError(
                f"client {client_id} has no SIM device: the fault `missing` took its only one.", client_id=client_id
            )
        return tuple(LocalDevice("SIM TPU", *core) for core in (*cores[:-1], self._corrupted(*cores[-1])))

    def _corrupted(self, core_id: int, location: CoreLocation) -> tuple[int, CoreLocation]:
        part, faults = self._settings.slice, self._settings.faults
        donor = 0 if self._config.client_id else 1
        if faults.duplicate:
            core_id = part.core_ids(donor)[0]
        if faults.shifted:
            location = part.locations(donor)[0]
        return core_id, location
