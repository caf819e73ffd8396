"""The CUDA driver, through the package `cuda-bindings`: its calls, and what their errors mean."""

from __future__ import annotations

import contextlib
import importlib
import uuid
from collections.abc import Iterator
from typing import Any

from ...errors import DeviceInitializationError
from .nvml import INSTALL

_SUCCESS, _NOT_READY = 0, 600
# Calls that get in the way of the capture of a graph, in this thread or another, or in whose way that is.
_CAPTURE = range(900, 909)
# What asking for its number gives where a context was destroyed.
INVALID_CONTEXT, CONTEXT_DESTROYED = 201, 709
# After these every call fails in the same way until the process ends; so says their documentation.
_STICKY = frozenset({214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911})

_ADVICE = {
    2: "Its memory is used up: look for programs left over from an earlier job (nvidia-smi).",
    46: "Another program has it for itself (compute mode EXCLUSIVE_PROCESS), or its memory failed: see nvidia-smi.",
    100: "CUDA sees no GPU: check CUDA_VISIBLE_DEVICES as it was when this process started.",
    214: "Its memory has an uncorrectable error: reset the GPU, and have it replaced if this happens again.",
    227: "The libcuda.so.1 that was found is too old for the package cuda-bindings: update the driver, or install an "
    "older cuda-bindings.",
    802: "The NVLink switches are not set up: start the Fabric Manager (systemctl status nvidia-fabricmanager).",
    803: "The driver's library and its kernel module are of different versions: reboot the host, or reload the module.",
    804: "The CUDA compatibility libraries do not fit this GPU: take them off the library path.",
    805: "The MPS server cannot be reached: check CUDA_MPS_PIPE_DIRECTORY and the MPS control daemon.",
}


class CudaCallError(Exception):
    """A call of the driver failed. `code` is the driver's number for the reason, -1 where it could not be called."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code

    @property
    def is_capture(self) -> bool:
        """Whether a graph capture stood in the way, which is no fault."""
        return self.code in _CAPTURE

    @property
    def is_sticky(self) -> bool:
        """Whether CUDA is unusable in this process from now on."""
        return self.code in _STICKY

    @property
    def advice(self) -> str:
        """The advice for this code."""
        return _ADVICE.get(self.code, "Check the kernel log (dmesg) for NVRM, and nvidia-smi.")


class ContextReplacedError(CudaCallError):
    """The user's program has reset the shared context, and the memory of the checks is gone with it."""

    def __init__(self) -> None:
        super().__init__(CONTEXT_DESTROYED, "the context was reset by the program")


class Cuda:
    """The driver, initialised in this process.

    Args:
        driver: the module `cuda.bindings.driver`.
    """

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    def call(self, function: str, *arguments: Any) -> Any:
        """Call a function of the driver.

        Returns:
            What it gives; `None` for nothing.

        Raises:
            CudaCallError: it failed, or the driver does not have it.
        """
        try:
            status, *results = getattr(self._driver, function)(*arguments)
        except (AttributeError, RuntimeError, ValueError) as error:
            # The package is too old, could not load the driver's library, found that too old, or does not know what it
            # answered.
            raise CudaCallError(-1, f"{function}: {error}") from error
        if int(status) != _SUCCESS:
            raise CudaCallError(int(status), f"{function} gave {status.name} ({self._explained(status)})")
        return results[0] if results else None

    @contextlib.contextmanager
    def relaxed(self) -> Iterator[None]:
        """Keep this thread's calls from invalidating graph captures of other threads.

        By default, a call that allocates, or asks for the state of a stream, makes the capture invalid, and fails.

        Raises:
            CudaCallError: this cannot be had; nothing else was called.
        """
        function = "cuThreadExchangeStreamCaptureMode"
        before = self.call(function, self._driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
        try:
            yield
        finally:
            with contextlib.suppress(CudaCallError):
                self.call(function, before)

    def is_done(self, stream: Any) -> bool:
        """Whether all work in a stream is done.

        Raises:
            CudaCallError: some of it failed.
        """
        try:
            self.call("cuStreamQuery", stream)
        except CudaCallError as error:
            if error.code == _NOT_READY:
                return False
            raise
        return True

    def uuids(self) -> list[str]:
        """Return the UUIDs of all devices that CUDA shows this process, in CUDA's order, without `GPU-` or `MIG-`."""
        # In CUDA 12 the one without a number gives a MIG device the UUID of its GPU.
        function = "cuDeviceGetUuid_v2" if hasattr(self._driver, "cuDeviceGetUuid_v2") else "cuDeviceGetUuid"
        devices = [self.call("cuDeviceGet", ordinal) for ordinal in range(self.call("cuDeviceGetCount"))]
        return [str(uuid.UUID(bytes=bytes(self.call(function, device).bytes))) for device in devices]

    def has_mps(self) -> bool:
        """Whether the first device is reached through the Multi-Process Service, which has a choice of GPUs itself."""
        attribute = getattr(self._driver.CUdevice_attribute, "CU_DEVICE_ATTRIBUTE_MPS_ENABLED", None)
        if attribute is None:
            return False
        try:
            return bool(self.call("cuDeviceGetAttribute", attribute, self.call("cuDeviceGet", 0)))
        except CudaCallError:
            return False  # the driver is too old to know

    def device_pointer(self, address: int) -> Any:
        """Return an address in the memory of a GPU as the driver takes it."""
        return self._driver.CUdeviceptr(address)

    def _explained(self, status: Any) -> str:
        _, text = self._driver.cuGetErrorString(status)
        return text.decode(errors="replace") if isinstance(text, bytes) else "unknown error"


def open_cuda(client_id: int, driver_version: str) -> Cuda:
    """Load the package and the driver's library, and initialise it.

    Args:
        client_id: for errors.
        driver_version: of the NVIDIA driver, for errors.

    Raises:
        DeviceInitializationError: one of these is not possible.
    """
    try:
        driver = importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        cause = "the package cuda-bindings is not installed" if isinstance(error, ModuleNotFoundError) else str(error)
        raise DeviceInitializationError(
            f"client {client_id}: this host has NVIDIA GPUs (driver {driver_version}), but {cause}, so none can be "
            f"brought up. Install it: {INSTALL}.",
            client_id=client_id,
            cause=cause,
        ) from None
    cuda = Cuda(driver)
    try:
        cuda.call("cuInit", 0)
    except CudaCallError as error:
        advice = error.advice if error.code != -1 else _library_advice(driver_version)
        raise DeviceInitializationError(
            f"client {client_id}: CUDA could not be initialised with driver {driver_version}: {error}. {advice}",
            client_id=client_id,
            cause=str(error),
        ) from None
    return cuda


def _library_advice(driver_version: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        bindings = version("cuda-bindings")
    except PackageNotFoundError:
        bindings = "of unknown version"
    return (
        f"cuda-bindings {bindings} needs a libcuda.so.1 that fits: version 13 of it a driver from 580 on, version 12 "
        f"one from 525 on, and this is {driver_version}. In a container, NVIDIA_DRIVER_CAPABILITIES must have "
        "`compute`."
    )
