"""The `JAX` backend: the local devices of jax, of any platform."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from collections.abc import Sequence
from typing import Any

from ...errors import BringupError, ConfigurationError, DeviceInitializationError, DeviceNotFoundError
from ..base import BackendConfig, Discovery, Health, LocalDevice
from ..selection import select_local_devices
from ..texts import said
from .check import JaxCheck, health_by
from .devices import describe_devices, local_devices_of, refuse_megacore
from .gpus import JaxGpus

_INSTALL = "pip install 'bringup[jax]'"
_PLATFORMS = "JAX_PLATFORMS"

# Seconds for a small computation: at start it is compiled first, which takes seconds; later the user's program may be
# in its way, and the next check is soon.
_START_TIMEOUT = 60.0
_CHECK_TIMEOUT = 5.0


class JaxBackend:
    """The devices of `jax.local_devices()`, on each of which a computation with a known result was checked.

    jax runs in this process, and the user goes on with it after the bring-up. `jax.distributed` is not started. Where
    it has been started, by the clients of this job, or a TPU slice tells jax of all its hosts, ids and locations are
    jax's own; else the merge gives ids, and there are no locations. jax reads its settings (`JAX_PLATFORMS`,
    `XLA_FLAGS`, ...) itself, from the process environment. `num_logical_cpu_devices` sets how many devices its CPU
    platform has; it is too late for that once jax is in use.

    Args:
        config: `num_clients`, `local_device_ids`, `num_logical_cpu_devices` and `enable_megacore` matter here.
    """

    device_type = "JAX"
    simulated = False

    def __init__(self, config: BackendConfig) -> None:
        self._config = config
        self._check: JaxCheck | None = None
        self._gpus = JaxGpus(config)
        self._interrupted = threading.Event()

    def discover(self) -> Discovery:
        """Check that jax is installed, without importing it."""
        platforms = self._config.environment.get(_PLATFORMS, "")
        asked = f"{_PLATFORMS}={platforms!r}" if platforms else f"{_PLATFORMS} is not set, so that jax chooses"
        if not _is_installed():
            return Discovery(present=False, detail=f"jax is not installed ({_INSTALL})")
        from importlib.metadata import PackageNotFoundError, version

        try:
            found = f"jax {version('jax')}"
        except PackageNotFoundError:
            found = "jax"
        return Discovery(present=True, detail=f"{found} is installed; {asked}")

    def start(self) -> Sequence[LocalDevice]:
        """Bring jax's devices up, and check a computation on each.

        Raises:
            ConfigurationError: `local_device_ids`, `num_logical_cpu_devices` or `enable_megacore` do not fit.
            DeviceInitializationError: jax failed, or a device computed something wrong.
            DeviceNotFoundError: jax is not installed.
        """
        try:
            return self._start()
        except BringupError:
            raise
        except Exception as error:
            raise self._failure(error) from error

    def check_health(self) -> Health:
        """Check a computation on each device. A busy one is no fault: the next check reads its result."""
        if self._check is None:
            return Health(ok=False, detail="the JAX backend is not started")
        return health_by(self._check.run, _CHECK_TIMEOUT)

    def interrupt(self) -> None:
        """End a wait for a device early; callable from any thread, and at any time."""
        self._interrupted.set()
        if (check := self._check) is not None:
            check.interrupt()

    def stop(self) -> None:
        """Forget the devices. jax keeps them as long as the process lives: they are the user's as well."""
        self._check = None

    def _start(self) -> tuple[LocalDevice, ...]:
        jax = self._import()
        found = self._local_devices(jax)
        owner = f"client {self._config.client_id} (JAX)"
        chosen = select_local_devices(found, self._config.local_device_ids, owner=owner)
        self._compare_counts(chosen)
        if self._config.enable_megacore:
            refuse_megacore(chosen, self._config.client_id)
        check = JaxCheck(jax, chosen)
        if self._interrupted.is_set():
            check.interrupt()
        result = check.run(_START_TIMEOUT)
        if result.wrong or result.waiting:
            did = "computed something wrong" if result.wrong else f"computed nothing within {_START_TIMEOUT:g} s"
            cause = f"{_list(result.wrong or result.waiting)} {did}"
            raise DeviceInitializationError(
                f"client {self._config.client_id}: {cause} in the first computation on them, which has a known result. "
                "This is likely a hardware failure: take that device out of the job, and have it tested.",
                client_id=self._config.client_id,
                cause=cause,
            )
        self._check = check
        is_global = jax.process_count() == self._config.num_clients
        fingerprints = self._gpus.fingerprints(chosen)
        return local_devices_of(chosen, jax.devices(), is_global=is_global, fingerprints=fingerprints)

    def _import(self) -> Any:
        if not _is_installed():
            raise DeviceNotFoundError(
                f"client {self._config.client_id}: device_type='JAX' needs jax, which this Python ({sys.executable}) "
                f"does not have. Install it ({_INSTALL}), with jax's own extra for your accelerator, or use another "
                "device_type.",
                client_id=self._config.client_id,
                cause="jax is not installed",
            )
        return self._config.import_module("jax")

    def _local_devices(self, jax: Any) -> Sequence[Any]:
        """Return the devices of this process, with as many CPU devices among them as asked for."""
        count = self._config.num_logical_cpu_devices
        if count is not None:
            try:
                jax.config.update("jax_num_cpu_devices", count)
            except (AttributeError, RuntimeError):
                pass  # jax is too old for it, or in use; what it has may be just what is asked for
        self._gpus.restrict(jax)
        found: Sequence[Any] = jax.local_devices()
        if not found:
            raise DeviceNotFoundError(
                f"client {self._config.client_id}: jax has no device in this process (jax.local_devices() is empty). "
                f"Check {_PLATFORMS}, and which devices this process may use.",
                client_id=self._config.client_id,
                cause="jax has no device in this process",
            )
        found = self._gpus.keep_share(found)
        if count is not None and found[0].platform == "cpu" and len(found) != count:
            raise ConfigurationError(
                f"num_logical_cpu_devices={count} on client {self._config.client_id}: jax is in use in this process "
                f"already, with {len(found)} CPU devices, or older than 0.5. Initialize before the first use of jax, "
                "or leave num_logical_cpu_devices out."
            )
        return found

    def _compare_counts(self, devices: Sequence[Any]) -> None:
        count = self._config.num_logical_cpu_devices
        if count is not None and devices[0].platform != "cpu" and count < len(devices):
            raise ConfigurationError(
                f"num_logical_cpu_devices={count} on client {self._config.client_id} is less than its number of "
                f"accelerators ({describe_devices(devices)}); give at least {len(devices)}, or leave it out."
            )

    def _failure(self, error: Exception) -> DeviceInitializationError:
        platforms = self._config.environment.get(_PLATFORMS, "")
        cause = " ".join(said(error).split())
        return DeviceInitializationError(
            f"client {self._config.client_id}: jax did not bring its devices up: {cause}. {_PLATFORMS} is "
            f"{repr(platforms) if platforms else 'not set'}: check that jax is installed for that platform "
            "(python -c 'import jax; jax.devices()' shows it), or set it to one that this host has.",
            client_id=self._config.client_id,
            cause=cause,
        )


def _is_installed() -> bool:
    try:
        return "jax" in sys.modules or importlib.util.find_spec("jax") is not None
    except ValueError:  # a module without a spec was put there
        return False


def _list(names: Sequence[str]) -> str:
    return ", ".join(names)
