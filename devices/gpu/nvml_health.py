"""Health readings of GPUs from NVML, with the Xids of the driver."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from .health import GpuReading
from .inventory import Gpu
from .nvml import GPU_IS_LOST, GPU_NEEDS_RESET, LINKS_MAX, Nvml, NvmlCallError

_SENSOR = 0
_SHUTDOWN, _SLOWDOWN = 0, 1
_UNCORRECTED, _SINCE_DRIVER_LOAD = 1, 0
_RETIREMENT_CAUSES = (0, 1)
# The number where the package is too old to know its name.
_RECOVERY_FIELD = 230
_XID_EVENT = 0x8

# Programs that fault may make the driver report faster than is read: the rest is for the next reading.
_EVENTS_MAX = 10_000


class GpuHealthReader:
    """Reads the health of GPUs. Xids are collected from its construction on.

    Args:
        nvml: a session, which outlives the reader.
        gpus: the GPUs.
        interrupted: set, from any thread, it makes a `read` return soon.

    Raises:
        NvmlCallError: the library fails as a whole.
    """

    def __init__(self, nvml: Nvml, gpus: Sequence[Gpu], interrupted: threading.Event) -> None:
        self._nvml = nvml
        self._gpus = tuple(gpus)
        self._interrupted = interrupted
        self._xids: dict[str, Counter[int]] = defaultdict(Counter)
        self._events: Any = None
        self._session = nvml.session
        self._register()

    def read(self) -> dict[Gpu, GpuReading]:
        """Return a reading of each GPU; `xids` are all since the construction."""
        self._keep_session()
        self._drain_events()
        return {gpu: self._read(gpu) for gpu in self._gpus}

    def close(self) -> None:
        """End the collection of Xids. Idempotent."""
        events, self._events = self._events, None
        if events is not None and self._session == self._nvml.session:
            try:
                self._nvml.ask("nvmlEventSetFree", events)
            except NvmlCallError:
                pass  # it goes with the session

    def _register(self) -> None:
        self._events = self._nvml.ask("nvmlEventSetCreate")
        if self._events is not None:
            for gpu in self._gpus:
                try:
                    self._nvml.ask("nvmlDeviceRegisterEvents", self._handle(gpu), _XID_EVENT, self._events)
                except NvmlCallError:
                    pass  # its reading says why it does not answer

    def _keep_session(self) -> None:
        """Begin another session where somebody has ended this one, and with it the events, which are not to be used."""
        try:
            self._nvml.revive()
            if self._session != self._nvml.session:
                self._session, self._events = self._nvml.session, None
                self._register()
        except NvmlCallError:
            self._session, self._events = -1, None  # the readings say why nothing answers

    def _handle(self, gpu: Gpu) -> Any:
        return self._nvml.ask("nvmlDeviceGetHandleByUUID", gpu.uuid)

    def _drain_events(self) -> None:
        for _ in range(_EVENTS_MAX):
            if self._events is None or self._interrupted.is_set():
                return
            try:
                event = self._nvml.ask("nvmlEventSetWait_v2", self._events, 0)
                if event is None:
                    return
                uuid = self._nvml.ask("nvmlDeviceGetUUID", event.device)
            except NvmlCallError:
                # There are no more of them, or a GPU is lost, which its reading tells.
                return
            if event.eventType == _XID_EVENT and uuid is not None:
                self._xids[uuid][int(event.eventData)] += 1

    def _read(self, gpu: Gpu) -> GpuReading:
        xids = tuple(sorted(self._xids[gpu.uuid].items()))
        try:
            handle = self._handle(gpu)
            if handle is None:
                return GpuReading(failure="it is not there any more", xids=xids)
            return self._asked(handle, xids)
        except NvmlCallError as error:
            lost, needs_reset = error.code == GPU_IS_LOST, error.code == GPU_NEEDS_RESET
            return GpuReading(failure=str(error), is_lost=lost, needs_reset=needs_reset, xids=xids)

    def _asked(self, handle: Any, xids: tuple[tuple[int, int], ...]) -> GpuReading:
        ask = self._nvml.ask_optional
        # Every GPU has one. What a single one of the other questions fails with is no sign that the GPU is ill.
        temperature = self._nvml.ask("nvmlDeviceGetTemperatureV", handle, _SENSOR)
        if temperature is None:
            temperature = self._nvml.ask("nvmlDeviceGetTemperature", handle, _SENSOR)
        slowdown = ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if slowdown is None:
            slowdown = ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        rows = ask("nvmlDeviceGetRemappedRows", handle)
        return GpuReading(
            temperature=temperature,
            slowdown_at=ask("nvmlDeviceGetTemperatureThreshold", handle, _SLOWDOWN),
            shutdown_at=ask("nvmlDeviceGetTemperatureThreshold", handle, _SHUTDOWN),
            slowdown=slowdown,
            uncorrectable=ask("nvmlDeviceGetTotalEccErrors", handle, _UNCORRECTED, _SINCE_DRIVER_LOAD),
            remap_pending=None if rows is None else bool(rows[2]),
            remap_failed=None if rows is None else bool(rows[3]),
            retired_pages=self._retired_pages(handle),
            retirement_pending=_flag(ask("nvmlDeviceGetRetiredPagesPendingStatus", handle)),
            recovery=self._recovery(handle),
            links_up=self._links_up(handle),
            xids=xids,
        )

    def _retired_pages(self, handle: Any) -> int | None:
        pages = [self._nvml.ask_optional("nvmlDeviceGetRetiredPages", handle, cause) for cause in _RETIREMENT_CAUSES]
        return None if None in pages else sum(map(len, pages))

    def _recovery(self, handle: Any) -> int | None:
        field = self._nvml.constant("NVML_FI_DEV_GET_GPU_RECOVERY_ACTION") or _RECOVERY_FIELD
        values = self._nvml.ask_optional("nvmlDeviceGetFieldValues", handle, [field])
        return int(values[0].value.uiVal) if values and values[0].nvmlReturn == 0 else None

    def _links_up(self, handle: Any) -> frozenset[int] | None:
        states: list[int] = []
        try:
            while len(states) < LINKS_MAX:
                state = self._nvml.ask("nvmlDeviceGetNvLinkState", handle, len(states))
                if state is None:
                    break
                states.append(state)
        except NvmlCallError as error:
            if error.code in (GPU_IS_LOST, GPU_NEEDS_RESET):
                raise
            return None
        return frozenset(link for link, state in enumerate(states) if state)


def _flag(value: int | None) -> bool | None:
    return None if value is None else bool(value)
