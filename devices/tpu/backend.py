"""The `TPU` backend: the chips of a TPU host, brought up in this process through jax and libtpu."""

from __future__ import annotations

import logging
import platform
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from ...errors import BringupError, ConfigurationError, DeviceInitializationError
from ..base import BackendConfig, Discovery, Health, LocalDevice
from ..jax.check import CheckResult, JaxCheck, health_by
from ..selection import select_local_devices
from .chips import TpuChip, TpuFindings, chip_fingerprints
from .cores import JobCore, core_of, cores_of_job, join_chips
from .discovery import boot_id, find_tpus, is_off_the_bus
from .environment import TpuEnvironment, visible_chips
from .errors import TpuErrors

# Seconds for a small computation: at start it is compiled first, which takes seconds; later the user's program may be
# in its way, and the next check is soon.
_START_TIMEOUT = 60.0
_CHECK_TIMEOUT = 5.0

_log = logging.getLogger("bringup")


class Check(Protocol):
    """A computation with a known result on some devices; see `JaxCheck`."""

    def run(self, timeout: float) -> CheckResult:
        """Compute and compare, for `timeout` seconds at most."""
        ...

    def interrupt(self) -> None:
        """End a wait of `run` early."""
        ...


class TpuBackend:
    """The cores of this host's TPU chips, on each of which a computation with a known result was checked.

    Ids and locations are libtpu's, where it knows all clients of the job; several slices are stacked along z. libtpu
    runs in this process, as part of jax, and the user goes on with it after the bring-up: a TPU belongs to one process.
    `jax.distributed`, where it is used, must be initialized before. libtpu and jax read their settings (`TPU_*`,
    `JAX_PLATFORMS`) themselves, from the process environment. The hosts of a slice come up together: `start` waits for
    the others, in libtpu.

    Args:
        config: `num_clients`, `local_device_ids`, `num_logical_cpu_devices` and `enable_megacore` matter here.
        root: the directory that holds `dev` and `sys`.
        load: imports what brings the chips up. Default: jax.
        make_check: makes the computation from that and the devices it is to run on.
    """

    device_type = "TPU"
    simulated = False

    def __init__(
        self,
        config: BackendConfig,
        *,
        root: Path = Path("/"),
        load: Callable[[], Any] | None = None,
        make_check: Callable[[Any, Sequence[Any]], Check] = JaxCheck,
    ) -> None:
        self._config = config
        self._root = root
        self._load = load or (lambda: config.import_module("jax"))
        self._make_check = make_check
        self._chips: tuple[TpuChip, ...] = ()
        self._other_chips: tuple[TpuChip, ...] = ()
        self._check: Check | None = None
        self._is_up = False
        self._interrupted = threading.Event()

    def discover(self) -> Discovery:
        """Search the PCI buses, the device files and the environment, without loading libtpu."""
        findings, place = find_tpus(self._root), str(TpuEnvironment.of(self._config.environment))
        return Discovery(present=findings.usable, detail=f"{findings}{place and f'; {place}'}")

    def start(self) -> Sequence[LocalDevice]:
        """Bring the chips up through libtpu, and check a computation on each core.

        Raises:
            ConfigurationError: `local_device_ids`, `num_logical_cpu_devices` or `enable_megacore` do not fit.
            DeviceInitializationError: a chip failed, or belongs to another process; or a library is missing.
            DeviceNotFoundError: there is no TPU that this process can use.
        """
        findings = find_tpus(self._root)
        errors = TpuErrors(self._config.client_id, platform.node(), findings, self._config.environment)
        if not findings.usable:
            raise errors.not_found()
        try:
            return self._start(findings, errors)
        except DeviceInitializationError as error:
            error.client_id = self._config.client_id
            raise
        except BringupError:
            raise
        except Exception as error:
            raise errors.failed(error, self._lost(findings.chips)) from error

    def check_health(self) -> Health:
        """Check that the chips answer on their buses, and check a computation on each core."""
        if self._check is None or not self._is_up:
            return Health(ok=False, detail="the TPU backend is not started")
        if lost := self._lost(self._chips):
            return Health(ok=False, detail=f"off the PCI bus: {_list(lost)}", permanent=True)
        health = health_by(self._check.run, _CHECK_TIMEOUT)
        if health.ok and not health.detail and (lost := self._lost(self._other_chips)):
            return Health(ok=True, detail=f"off the PCI bus, and not in use by this client: {_list(lost)}")
        return health

    def interrupt(self) -> None:
        """End a wait for a core early; callable from any thread, and at any time."""
        self._interrupted.set()
        if (check := self._check) is not None:
            check.interrupt()

    def stop(self) -> None:
        """Forget the devices. jax keeps them as long as the process lives: they are the user's as well."""
        self._is_up = False
        self._check = None

    def _start(self, findings: TpuFindings, errors: TpuErrors) -> tuple[LocalDevice, ...]:
        if shortage := errors.missing_chips():
            _log.warning("client %d: %s", self._config.client_id, shortage)
        jax = self._load()
        found = jax.local_devices(backend="tpu")
        if not found:
            raise errors.not_found("libtpu came up without a device")
        chosen = self._choose(found, jax.devices("tpu"))
        members = [found[index] for core in chosen for index in core.members]
        # In this order, as an interrupt sets its flag first.
        check = self._check = self._make_check(jax, members)
        if self._interrupted.is_set():
            check.interrupt()
        result = check.run(_START_TIMEOUT)
        if result.wrong or result.waiting:
            did = "computed something wrong" if result.wrong else f"computed nothing within {_START_TIMEOUT:g} s"
            names = _list(result.wrong or result.waiting)
            raise errors.hardware(f"{did} in the first computation, which has a known result", (), names)
        self._note_chips(findings, all_in_use=len(members) == len(found))
        self._is_up = True
        kinds = [str(device.device_kind) for device in found]
        texts = chip_fingerprints(boot_id(self._root), self._chips, [core_of(device) for device in found])
        firsts = [(core, core.members[0]) for core in chosen]
        return tuple(LocalDevice(kinds[at], core.core_id, core.location, texts[at]) for core, at in firsts)

    def _choose(self, found: Sequence[Any], everything: Sequence[Any]) -> tuple[JobCore, ...]:
        config, owner = self._config, f"client {self._config.client_id} (TPU)"
        cores = cores_of_job(
            [core_of(device) for device in found],
            [core_of(device) for device in everything],
            config.num_clients,
            TpuEnvironment.of(config.environment),
        )
        if config.enable_megacore:
            cores = join_chips(cores, str(found[0].device_kind), owner)
        chosen = select_local_devices(cores, config.local_device_ids, owner=owner)
        count = config.num_logical_cpu_devices
        if count is not None and count < len(chosen):
            raise ConfigurationError(
                f"num_logical_cpu_devices={count} on client {config.client_id} is less than its number of TPU devices "
                f"({len(chosen)}); give at least {len(chosen)}, or leave it out."
            )
        return chosen

    def _note_chips(self, findings: TpuFindings, *, all_in_use: bool) -> None:
        """Note which chips are to be judged: a host may have those of other processes, and jobs, as well."""
        own = findings.chips_of_process(visible_chips(self._config.environment))
        # Where only some of the cores are used, nothing says on which chips they are; the computation judges them.
        self._chips = own if all_in_use else ()
        self._other_chips = tuple(chip for chip in findings.chips if chip not in self._chips)

    def _lost(self, chips: Sequence[TpuChip]) -> list[TpuChip]:
        return [chip for chip in chips if is_off_the_bus(chip, self._root)]


def _list(names: Sequence[object]) -> str:
    return ", ".join(map(str, names))
