"""The `GPU` backend: NVIDIA GPUs, found through NVML and brought up through CUDA."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Sequence
from pathlib import Path

from ...errors import ConfigurationError, DeviceError, DeviceInitializationError, DeviceNotFoundError
from ..base import BackendConfig, Discovery, Health, LocalDevice
from ..selection import select_local_devices, select_local_share
from .cuda import Cuda, CudaCallError, open_cuda
from .cuda_device import CudaDevice
from .health import Assessment, GpuReading, assess, baseline, health_of
from .inventory import Gpu, Inventory, read_inventory
from .location import locate_gpus
from .memory_check import MemoryCheck
from .nvml import Nvml, NvmlCallError, open_nvml
from .nvml_health import GpuHealthReader
from .sysfs import find_gpu_traces
from .visible_devices import VISIBLE_VARIABLE, Visible, VisibleGpu, is_own_choice, visible_gpus

# Seconds for a memory check, which takes milliseconds on an idle GPU: at start an earlier job may be ending on it;
# later the user's program may be in its way, and the next check is soon.
_START_TIMEOUT = 30.0
_CHECK_TIMEOUT = 5.0

_log = logging.getLogger("bringup")


class GpuBackend:
    """The NVIDIA GPUs that CUDA shows this process, in CUDA's order, each with its primary context.

    `discover` and the health of GPUs need the package `nvidia-ml-py`, `start` needs `cuda-bindings` as well: the extra
    `gpu`. `CUDA_VISIBLE_DEVICES` chooses and orders GPUs as it does for every program with CUDA; `local_device_ids`
    chooses among those. A GPU in MIG mode is the MIG device that CUDA makes of it.

    Devices have no core id of their own: the merge gives each its position in the job. In their location x runs along
    the NVLinks of a group of GPUs, y counts the groups, and z is the client. Only the devices that the client brings to
    the job are counted, so that a job with as many on each client has no holes.

    Args:
        config: `client_id`, `local_device_ids`, `num_logical_cpu_devices` and `environment` matter here.
        root: the directory that holds `dev`, `proc` and `sys`.
    """

    device_type = "GPU"
    simulated = False

    def __init__(self, config: BackendConfig, *, root: Path = Path("/")) -> None:
        self._config = config
        self._root = root
        self._nvml: Nvml | None = None
        self._reader: GpuHealthReader | None = None
        self._first: dict[Gpu, GpuReading] = {}
        self._interrupted = threading.Event()
        self._memory_check = MemoryCheck(self._interrupted)
        self._noticed: frozenset[tuple[str, str]] = frozenset()

    def discover(self) -> Discovery:
        """List the GPUs of the host, and those visible to this process.

        GPUs that are there and cannot be used count as present, so that nobody gets another type of device by accident:
        `start` says what is wrong.
        """
        try:
            nvml = self._open_nvml()
        except DeviceError as error:
            return Discovery(present=isinstance(error, DeviceInitializationError), detail=error.cause)
        try:
            inventory, visible = self._look(nvml)
        except NvmlCallError as error:
            return Discovery(present=True, detail=f"the NVIDIA driver does not say what GPUs there are: {error}")
        finally:
            nvml.close()
        return Discovery(present=bool(visible.gpus), detail=_described(inventory, visible))

    def start(self) -> Sequence[LocalDevice]:
        """Retain the context of each GPU, and check a copy in it.

        Raises:
            ConfigurationError: `local_device_ids` or `num_logical_cpu_devices` do not fit.
            DeviceInitializationError: the driver, a package or a GPU fails.
            DeviceNotFoundError: there is no GPU, or CUDA shows this process none.
        """
        self._nvml = self._open_nvml()
        try:
            chosen = self._start(self._nvml)
        except (CudaCallError, NvmlCallError) as error:
            raise self._failure(
                "the NVIDIA driver failed", str(error), "Check nvidia-smi, and the kernel log."
            ) from error
        places = locate_gpus([one.gpu for one in chosen], self._config.client_id)
        return tuple(LocalDevice(one.kind, None, place, one.uuid) for one, place in zip(chosen, places, strict=True))

    def check_health(self) -> Health:
        """Read the health of the GPUs from NVML, and check a copy in each.

        A GPU that is busy is not ill: it gets to the copy later, and the next check looks at it. Faults make the result
        not ok; what is only worth a word, such as a lower clock because of heat, is in `detail` as well, and is logged.
        """
        if self._reader is None:
            return Health(ok=False, detail="the GPU backend is not started")
        readings = self._reader.read()
        self._first = {gpu: baseline(self._first[gpu], reading) for gpu, reading in readings.items()}
        assessments = [(str(gpu), assess(self._first[gpu], reading)) for gpu, reading in readings.items()]
        self._log_notices(assessments)
        answering = [gpu for gpu, reading in readings.items() if not (reading.is_lost or reading.needs_reset)]
        assessments += [(str(one), assessment) for one, assessment in self._memory_check.run(_CHECK_TIMEOUT, answering)]
        return health_of(assessments)

    def interrupt(self) -> None:
        """End a wait for a GPU early; callable from any thread, and at any time."""
        self._interrupted.set()

    def stop(self) -> None:
        """Release the contexts."""
        self._memory_check.release()
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
        nvml, self._nvml = self._nvml, None
        if nvml is not None:
            nvml.close()

    def _open_nvml(self) -> Nvml:
        return open_nvml(find_gpu_traces(self._root), self._config.client_id)

    def _look(self, nvml: Nvml) -> tuple[Inventory, Visible]:
        inventory = read_inventory(nvml, self._root)
        return inventory, visible_gpus(inventory.gpus, self._config.environment)

    def _start(self, nvml: Nvml) -> list[VisibleGpu]:
        inventory, visible = self._look(nvml)
        if inventory.problems and not visible.note and self._config.local_device_ids is None:
            advice = "Power-cycle the host, or choose others with CUDA_VISIBLE_DEVICES or local_device_ids."
            raise self._failure("not all GPUs can be used", "; ".join(inventory.problems), advice)
        if not visible.gpus:
            raise self._none_visible(inventory, visible)
        for text in (*inventory.problems, *([visible.note] if visible.is_cut_short else [])):
            _log.warning("client %d: %s", self._config.client_id, text)
        cuda = open_cuda(self._config.client_id, inventory.driver)
        shown = self._shown(cuda, inventory, visible)
        owner = f"client {self._config.client_id} (GPU)"
        ordinals = self._share(len(shown), owner)
        self._compare_counts(len(ordinals))
        chosen = [shown[ordinal] for ordinal in ordinals]
        # Before the GPUs are used: what goes wrong in that is to be seen.
        reader = GpuHealthReader(nvml, list(dict.fromkeys(one.gpu for one in chosen)), self._interrupted)
        self._reader, self._first = reader, reader.read()
        self._bring_up(cuda, dict(zip(ordinals, chosen, strict=True)))
        return chosen

    def _share(self, count: int, owner: str) -> tuple[int, ...]:
        """Return which of so many devices are this client's, where other clients of its host see the same ones."""
        config = self._config
        if is_own_choice(config.environment):
            return select_local_devices(range(count), config.local_device_ids, owner=owner)
        ordinals = select_local_share(range(count), config, owner=owner, variable=VISIBLE_VARIABLE)
        if len(ordinals) < count and config.local_device_ids is None:
            numbers = ", ".join(map(str, ordinals))
            _log.info(
                "%s is number %d of %d clients of its host, and takes devices %s of the %d that CUDA shows",
                owner, config.local_client_id, config.num_local_clients, numbers, count,
            )  # fmt: skip
        return ordinals

    def _shown(self, cuda: Cuda, inventory: Inventory, visible: Visible) -> list[VisibleGpu]:
        """Return what CUDA shows this process, which is what counts, by CUDA's numbers."""
        known = {_bare(one.uuid): one for one in _everything(inventory)}
        uuids = cuda.uuids()
        if strange := [uuid for uuid in uuids if uuid not in known]:
            cause = f"CUDA has devices that the management library does not know: {', '.join(strange)}"
            raise self._failure("the NVIDIA driver contradicts itself", cause, "Reboot the host, or reload the driver.")
        shown = [known[uuid] for uuid in uuids]
        # CUDA shows a process one MIG device only, whatever it is told; and those who name theirs miss no other.
        is_mig = any(gpu.mig is not None for gpu in inventory.gpus)
        if not is_mig and self._config.local_device_ids is None:
            self._check_missing(cuda, shown, visible)
        return shown

    def _check_missing(self, cuda: Cuda, shown: Sequence[VisibleGpu], visible: Visible) -> None:
        """Raise an error where CUDA shows less than it should: a job would go on with fewer devices than were meant."""
        missing = ", ".join(str(one) for one in visible.gpus if one not in shown)
        if not missing or (not visible.is_certain and len(shown) >= len(visible.gpus)):
            return
        if cuda.has_mps():
            # Its daemon has a variable of its own, in whose order the clients' numbers count.
            if not visible.note:
                _log.warning(
                    "client %d: CUDA shows %d GPUs of %d, those of the MPS daemon; left out are %s",
                    self._config.client_id, len(shown), len(visible.gpus), missing,
                )  # fmt: skip
            return
        cause = f"missing are {missing}"
        if not visible.is_certain:
            count = len(visible.gpus)
            cause = f"it shows {len(shown)} of the {count} that {visible.note.partition(';')[0]} names by number"
        advice = (
            "Reset what is missing, or say which GPUs to use: by local_device_ids, or by CUDA_VISIBLE_DEVICES, with "
            "their UUIDs or with numbers along the PCI bus (CUDA_DEVICE_ORDER=PCI_BUS_ID)"
        )
        if visible.note:
            advice += "; where the variable was changed in this process, set it before the first use of CUDA"
        raise self._failure("CUDA does not show all GPUs that there are", cause, f"{advice}.")

    def _bring_up(self, cuda: Cuda, chosen: dict[int, VisibleGpu]) -> None:
        for ordinal, visible in chosen.items():
            try:
                self._memory_check.add(visible, CudaDevice(cuda, ordinal))
            except CudaCallError as error:
                raise self._failure(f"{visible} did not come up", str(error), error.advice) from error
        assessments = self._memory_check.run(_START_TIMEOUT, [visible.gpu for visible in chosen.values()])
        if problems := [
            f"{one}: {text}" for one, assessment in assessments for text in assessment.faults + assessment.notices
        ]:
            advice = "This is likely a hardware failure: take that GPU out of the job, and have it tested."
            raise self._failure("the first copy on each GPU, which is checked, failed", "; ".join(problems), advice)

    def _log_notices(self, assessments: Sequence[tuple[str, Assessment]]) -> None:
        noticed: set[tuple[str, str]] = set()
        for name, text in ((name, text) for name, assessment in assessments for text in assessment.notices):
            # Numbers, such as a temperature, change with every check: that is no news.
            key = name, re.sub(r"[0-9]+ (C|times)\b", "", text)
            noticed.add(key)
            if key not in self._noticed:
                _log.warning("client %d: %s: %s", self._config.client_id, name, text)
        self._noticed = frozenset(noticed)

    def _compare_counts(self, num_gpus: int) -> None:
        count = self._config.num_logical_cpu_devices
        if count is not None and count < num_gpus:
            raise ConfigurationError(
                f"num_logical_cpu_devices={count} on client {self._config.client_id} is less than its number of GPUs "
                f"({num_gpus}); give at least {num_gpus}, or leave it out."
            )

    def _none_visible(self, inventory: Inventory, visible: Visible) -> DeviceNotFoundError:
        cause = _described(inventory, visible)
        return DeviceNotFoundError(
            f"client {self._config.client_id} has no GPU to use: {cause}. Check CUDA_VISIBLE_DEVICES, or use another "
            "device_type.",
            client_id=self._config.client_id,
            cause=cause,
        )

    def _failure(self, what: str, cause: str, advice: str) -> DeviceInitializationError:
        return DeviceInitializationError(
            f"client {self._config.client_id}: {what}: {cause}. {advice}",
            client_id=self._config.client_id,
            cause=f"{what}: {cause}",
        )


def _described(inventory: Inventory, visible: Visible) -> str:
    """Say what GPUs there are, and which of them this process sees."""
    shown = [one.gpu for one in visible.gpus]
    parts = [f"NVIDIA driver {inventory.driver}, {len(inventory.gpus)} GPUs, {len(shown)} of them for this process"]
    parts += [visible.note] if visible.note else []
    parts += map(inventory.describe, inventory.gpus)
    parts += inventory.problems
    parts += [f"GPU {index} may not be used by this process" for index in inventory.denied]
    return "; ".join(parts)


def _everything(inventory: Inventory) -> list[VisibleGpu]:
    whole = [VisibleGpu(gpu) for gpu in inventory.gpus if gpu.mig is None]
    return whole + [VisibleGpu(gpu, mig) for gpu in inventory.gpus for mig in gpu.mig or ()]


def _bare(uuid: str) -> str:
    """Return a UUID without what it is of: CUDA gives the number alone."""
    return uuid.removeprefix("GPU-").removeprefix("MIG-").lower()
