"""Memory checks: verified copies on several GPUs at once. A busy GPU is no fault."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Container

from ..polling import wait_until
from .cuda import ContextReplacedError, CudaCallError
from .cuda_device import CudaDevice
from .health import Assessment
from .inventory import Gpu
from .visible_devices import VisibleGpu

# Seconds without a gap in which a small copy gets its turn: a kernel of a program that holds a GPU for longer hangs.
_STUCK_AFTER = 600.0

_log = logging.getLogger("bringup")


class MemoryCheck:
    """Verifies copies on the GPUs of a client. All calls come from one thread.

    Args:
        interrupted: set, from any thread, it makes a `run` that waits return soon.
    """

    def __init__(self, interrupted: threading.Event) -> None:
        self._copies: list[_Copy] = []
        self._interrupted = interrupted

    def add(self, visible: VisibleGpu, device: CudaDevice) -> None:
        """Add a GPU; `release` releases it."""
        self._copies.append(_Copy(visible, device))

    def run(self, timeout: float, among: Container[Gpu]) -> list[tuple[VisibleGpu, Assessment]]:
        """Copy and compare on all of these GPUs. A copy that is not done in time is left to the next run.

        Args:
            timeout: how long to wait for them, in seconds.
            among: the GPUs to call at all: calls for one that is gone may not come back.

        Returns:
            An assessment on each of them.
        """
        copies = [copy for copy in self._copies if copy.visible.gpu in among]
        for copy in copies:
            copy.begin()
        wait_until(lambda: all(copy.is_over() for copy in copies), timeout, self._interrupted)
        return [(copy.visible, copy.conclude()) for copy in copies]

    def release(self) -> None:
        """Release the GPUs. Idempotent."""
        copies, self._copies = self._copies, []
        for copy in copies:
            copy.device.release()


class _Copy:
    """One GPU, and the copy that runs on it, if one does."""

    def __init__(self, visible: VisibleGpu, device: CudaDevice) -> None:
        self.visible = visible
        self.device = device
        self._since: float | None = None
        # What keeps the copy from being made, this time or, where it is final, from now on.
        self._obstacle: Assessment | None = None
        self._is_final = False

    def begin(self) -> None:
        if self._is_final:
            return
        self._obstacle = None
        if self._since is None:
            self._since = time.monotonic()
            self._guard(self.device.begin_check)

    def is_over(self) -> bool:
        return self._obstacle is not None or self._guard(self.device.is_checked)

    def conclude(self) -> Assessment:
        is_over = self.is_over()
        if self._obstacle is not None:
            self._since = None
            return self._obstacle
        assert self._since is not None, "a copy is begun before it is concluded"
        if not is_over:
            age = time.monotonic() - self._since
            text = f"other work keeps it busy: it has not come to a small copy that was asked of it {age:.0f} s ago"
            return Assessment((text,)) if age >= _STUCK_AFTER else Assessment(notices=(text,))
        self._since = None
        if wrong := self.device.what_is_wrong():
            return Assessment((f"it gave wrong data: {wrong}; take it out of the job, and have it tested",))
        return Assessment()

    def _guard(self, call: Callable[[], bool | None]) -> bool:
        try:
            return bool(call())
        except ContextReplacedError:
            self._obstacle, self._is_final = _RESET, True
            _log.warning("%s: %s", self.visible, _RESET.notices[0])
        except CudaCallError as error:
            self._obstacle, self._is_final = _assessment_of(error), error.is_sticky
        return True


_RESET = Assessment(
    notices=("the program has reset it: from now on it is watched through the driver's management library alone",)
)


def _assessment_of(error: CudaCallError) -> Assessment:
    if error.is_capture:
        return Assessment(notices=("the program captures a CUDA graph: the copy on it is left for the next check",))
    if error.is_sticky:
        broken = (
            f"it fails every call of CUDA in this process: {error}; restart the program, and reset the GPU if that "
            "does not help"
        )
        return Assessment((broken,), is_permanent=True)
    return Assessment((f"a call of CUDA failed: {error}; look at nvidia-smi, and for NVRM in the kernel log (dmesg)",))
