"""The `SIM` backend: a simulated TPU-like slice, with delays and faults on demand."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import NoReturn

from ...errors import DeviceInitializationError, DeviceNotFoundError
from ..base import BackendConfig, CoreLocation, Discovery, Health, LocalDevice
from ..selection import select_local_devices
from .faults import SimSettings


class SimBackend:
    """One client's part of a simulated slice, for demonstrations and tests.

    Settings, from the environment in the config; all clients are meant to have the same:

    - `BRINGUP_SIM_TOPOLOGY`: the slice, `XxYxZxC`: chips along x, y and z, and cores per chip (1 or 2). `XxYxZ` has one
      core per chip, `XxY` is also one chip deep. Clients get host blocks of 2x2x1 chips where there are as many blocks
      as clients, else equal runs of chips. Default: one block for each client, nearly square, with two cores per chip.
      Or a slice of TPUs by name, such as `v5e:4x4`, with its own coordinates, ids and hosts; jax's options may follow:
      `v4:2x2x4|{"chip_config_name": "megacore"}` (also `chips_per_host_bounds`, `num_slices`, `wrap`).
    - `BRINGUP_SIM_START_SECONDS`: how long `start` takes, in seconds.
    - `BRINGUP_SIM_FAULT`: a comma-separated list of `client:kind[:argument]`, `*` for every client. What happens in
      `start`:
        - `raise[:text]`: it raises a `DeviceInitializationError` with the text.
        - `hang`: it never returns, whatever is done to it.
        - `slow:SECONDS`: it takes so much longer, and other threads run meanwhile.
        - `gil:SECONDS`: it takes so much longer, and no other thread of the process runs meanwhile.
        - `crash[:SIGNAL]`: it ends the process by a signal: SEGV (the default), ABRT, BUS, FPE, ILL or KILL.

      What is wrong with the devices:
        - `duplicate`: the last one repeats the first core id of client 0 (on client 0: of client 1).
        - `wrong[:ID]`: the last one has this core id; -1 by default, which no device can have.
        - `missing[:N]`: the last one, or the last N of them, are not there. Where none is left, none is found.
        - `shifted`: the last one reports the first location of client 0 (on client 0: of client 1).
        - `shared`: the last one is the first of client 0 (on client 0: of client 1), under a core id of its own.

      What the health check does:
        - `unhealthy[:text]`: it fails with the text, from the beginning.
        - `degrade:SECONDS[:text]`: it fails with the text from so many seconds after `start` on.
        - `flap[:N]`: it passes N times, fails N times, and so on; N is 1 by default.
        - `stuck:SECONDS`: from so many seconds after `start` on it never returns, whatever is done to it.

    With `enable_megacore` the two cores of a chip are one device. Core ids of a slice without a name are permuted, so
    that a wrong merge shows.

    Args:
        config: its environment has the settings; `local_device_ids` and `enable_megacore` matter as well.
        clock: the time in seconds, monotonic.

    Raises:
        ConfigurationError: a setting is malformed, or the slice does not divide over the clients.
    """

    device_type = "SIM"
    simulated = True

    def __init__(self, config: BackendConfig, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._settings = SimSettings.parse(config)
        self._clock = clock
        self._stopping = threading.Event()
        # When `start` was through, or nothing.
        self._started_at: float | None = None
        self._checks = 0

    def discover(self) -> Discovery:
        """Describe the slice."""
        part = self._settings.slice
        return Discovery(
            present=True,
            detail=f"simulated slice {part.shape} of {part.num_devices} devices, {part.devices_per_client} of them on "
            f"client {self._config.client_id} of {part.num_clients}",
        )

    def start(self) -> Sequence[LocalDevice]:
        """Apply the delays and faults of the settings, and return this client's part of the slice.

        Raises:
            ConfigurationError: `local_device_ids` names devices that this client does not have.
            DeviceInitializationError: the fault `raise`, or `interrupt` or `stop` while it waited.
            DeviceNotFoundError: the fault `missing` left no device.
        """
        faults = self._settings.faults
        self._wait(self._settings.start_seconds + faults.slow)
        if faults.gil:
            _hold_interpreter(faults.gil)
        if faults.hang:
            _hang()
        if faults.crash:
            signal.raise_signal(signal.Signals[f"SIG{faults.crash}"])
        if faults.failure is not None:
            raise self._failure(faults.failure)
        devices = self._devices()
        self._started_at = self._clock()
        return devices

    def check_health(self) -> Health:
        """Report the faults `unhealthy`, `degrade` and `flap`, else `ok`."""
        if self._started_at is None:
            return Health(ok=False, detail="the SIM backend is not started")
        faults, elapsed = self._settings.faults, self._clock() - self._started_at
        if faults.stuck is not None and elapsed >= faults.stuck:
            _hang()
        self._checks += 1
        if faults.flap and (self._checks - 1) // faults.flap % 2:
            return Health(ok=False, detail="simulated flapping")
        if faults.degraded is not None and elapsed >= faults.degraded[0]:
            return Health(ok=False, detail=faults.degraded[1])
        return Health(ok=faults.unhealthy is None, detail=faults.unhealthy or "")

    def interrupt(self) -> None:
        """Fail a waiting `start` at once; callable from any thread, and at any time."""
        self._stopping.set()

    def stop(self) -> None:
        """Forget the devices."""
        self._stopping.set()
        self._started_at = None

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
        cores = cores[: max(0, len(cores) - faults.missing)]
        if not cores:
            raise DeviceNotFoundError(
                f"client {client_id} has no SIM device: the fault `missing` took all of them.", client_id=client_id
            )
        kind = f"SIM {self._settings.slice.kind}"
        whole = [(core_id, location, _fingerprint(core_id)) for core_id, location in cores[:-1]]
        return tuple(LocalDevice(kind, *core) for core in (*whole, self._corrupted(*cores[-1])))

    def _corrupted(self, core_id: int, location: CoreLocation) -> tuple[int, CoreLocation, str]:
        part, faults = self._settings.slice, self._settings.faults
        donor = 0 if self._config.client_id else 1
        fingerprint = _fingerprint(part.core_ids(donor)[0] if faults.shared else core_id)
        if faults.duplicate:
            core_id = part.core_ids(donor)[0]
        if faults.wrong is not None:
            core_id = faults.wrong
        if faults.shifted:
            location = part.locations(donor)[0]
        return core_id, location, fingerprint


def _fingerprint(core_id: int) -> str:
    return f"SIM-{core_id:08x}"


def _hang() -> NoReturn:
    while True:
        threading.Event().wait()


def _hold_interpreter(seconds: float) -> None:
    """Wait as native code does that does not release the interpreter's lock."""
    import ctypes

    library = ctypes.PyDLL(None)
    library.usleep(int(seconds % 1 * 1e6))
    library.sleep(int(seconds))
