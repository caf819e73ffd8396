"""The CUDA driver, through the package `cuda-bindings`: contexts on GPUs, and a checked copy in each."""

from __future__ import annotations

import contextlib
import ctypes
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
_INVALID, _DESTROYED = 201, 709
# After these every call fails in the same way until the process ends; so says their documentation.
_STICKY = frozenset({214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911})
_NON_BLOCKING = 1

_SIZE = 65_536
_WORD = 0xA5C3_5A3C
_PATTERN_STEP = 0x9E37_79B9

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
        """Whether nothing is wrong but that a graph is being captured."""
        return self.code in _CAPTURE

    @property
    def is_sticky(self) -> bool:
        """Whether CUDA will not work again in this process."""
        return self.code in _STICKY

    @property
    def advice(self) -> str:
        """What to do about it."""
        return _ADVICE.get(self.code, "Check the kernel log (dmesg) for NVRM, and nvidia-smi.")


class ContextReplacedError(CudaCallError):
    """The program has reset the context that it shares with the checks: what they made in it is gone."""

    def __init__(self) -> None:
        super().__init__(_DESTROYED, "the context was reset by the program")


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
        """Have this thread's calls leave alone the graphs that other threads capture.

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


class CudaDevice:
    """A GPU with this process's primary context, the one that frameworks use as well, and memory for checks.

    All calls come from one thread. A check moves a pattern to the GPU, inside it, and back, and has it fill memory, in
    a stream of its own: the user's programs are not held up, nor are graphs that they capture disturbed. Memory that
    went with the context, where the program has reset it, is not touched: it may be the program's by now.

    Args:
        cuda: the driver.
        ordinal: CUDA's number of the device.

    Raises:
        CudaCallError: it did not come up; nothing is left behind.
    """

    def __init__(self, cuda: Cuda, ordinal: int) -> None:
        self._cuda = cuda
        self._held = contextlib.ExitStack()
        self._runs = 0
        self._device = cuda.call("cuDeviceGet", ordinal)
        with cuda.relaxed():
            self._context = cuda.call("cuDevicePrimaryCtxRetain", self._device)
        self._is_retained = True
        self._context_id: int | None = None
        try:
            self._context_id = self._asked_id()
            with self._current():
                self._stream = self._hold("cuStreamDestroy", "cuStreamCreate", _NON_BLOCKING)
                memory = self._hold("cuMemFree", "cuMemAlloc", 2 * _SIZE)
                host = self._hold("cuMemFreeHost", "cuMemHostAlloc", 3 * _SIZE, 0)
        except CudaCallError:
            self.release()
            raise
        self._here, self._there = (cuda.device_pointer(int(memory) + offset) for offset in (0, _SIZE))
        self._given, self._moved, self._filled = (int(host) + index * _SIZE for index in range(3))

    def begin_check(self) -> None:
        """Ask for the copies; returns at once.

        Raises:
            CudaCallError: a call failed.
            ContextReplacedError: the context is not the one that the memory was in.
        """
        self._runs += 1
        # Another pattern each time: what is left of the last one must not pass.
        word = (self._runs * _PATTERN_STEP) & 0xFFFF_FFFF
        ctypes.memmove(
            self._given, bytes(range(256)) * (_SIZE // 512) + word.to_bytes(4, "little") * (_SIZE // 8), _SIZE
        )
        ctypes.memset(self._moved, 0, 2 * _SIZE)
        call, stream = self._cuda.call, self._stream
        with self._current():
            call("cuMemcpyHtoDAsync", self._here, self._given, _SIZE, stream)
            call("cuMemcpyDtoDAsync", self._there, self._here, _SIZE, stream)
            call("cuMemcpyDtoHAsync", self._moved, self._there, _SIZE, stream)
            call("cuMemsetD32Async", self._here, _WORD, _SIZE // 4, stream)
            call("cuMemcpyDtoHAsync", self._filled, self._here, _SIZE, stream)

    def is_checked(self) -> bool:
        """Whether all that `begin_check` asked for is done.

        Raises:
            CudaCallError: some of it failed, or a call did.
            ContextReplacedError: the context is not the one that the memory was in.
        """
        with self._current():
            return self._cuda.is_done(self._stream)

    def what_is_wrong(self) -> str:
        """Compare; returns what is wrong, or nothing. After `is_checked`."""
        given, moved, filled = (ctypes.string_at(part, _SIZE) for part in (self._given, self._moved, self._filled))
        if moved != given:
            return f"a pattern that was copied to it and back came back changed in {_differences(given, moved)}"
        expected = _WORD.to_bytes(4, "little") * (_SIZE // 4)
        if filled != expected:
            return f"memory that it was to fill with one value has others in {_differences(expected, filled)}"
        return ""

    def release(self) -> None:
        """Give everything back. Idempotent; what a broken context does not give back ends with the process."""
        held, self._held = self._held, contextlib.ExitStack()
        with contextlib.suppress(CudaCallError), self._current():
            held.close()
        if self._is_retained:
            self._is_retained = False
            with contextlib.suppress(CudaCallError), self._cuda.relaxed():
                self._cuda.call("cuDevicePrimaryCtxRelease", self._device)

    def _hold(self, give_back: str, function: str, *arguments: Any) -> Any:
        result = self._cuda.call(function, *arguments)
        self._held.callback(self._cuda.call, give_back, result)
        return result

    @contextlib.contextmanager
    def _current(self) -> Iterator[None]:
        with self._cuda.relaxed():
            if self._asked_id() != self._context_id:
                raise ContextReplacedError
            self._cuda.call("cuCtxPushCurrent", self._context)
            try:
                yield
            finally:
                self._cuda.call("cuCtxPopCurrent")

    def _asked_id(self) -> int | None:
        """Return the number of the context, which no other ever gets; `None` where the driver has no such numbers."""
        try:
            return int(self._cuda.call("cuCtxGetId", self._context))
        except CudaCallError as error:
            if error.code in (_INVALID, _DESTROYED):
                raise ContextReplacedError from error
            if error.code == -1:
                return None
            raise


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


def _differences(expected: bytes, found: bytes) -> str:
    wrong = [index for index, (one, other) in enumerate(zip(expected, found, strict=True)) if one != other]
    return f"{len(wrong)} of {len(expected)} bytes, the first at {wrong[0]}"
