"""A GPU with this process's CUDA context, and memory in it for checks."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

from .cuda import CONTEXT_DESTROYED, INVALID_CONTEXT, ContextReplacedError, Cuda, CudaCallError

# Bytes of a pattern: large enough to be moved by the copy engines, and moved in microseconds.
_SIZE = 65_536
# The value to fill memory with: no byte of it is like another, nor 0.
_WORD = 0xA5C3_5A3C
# Odd, so that the patterns of 2**32 checks in a row are all different.
_PATTERN_STEP = 0x9E37_79B9
# CU_STREAM_NON_BLOCKING: the stream does not wait for the default one, on which programs may run.
_NON_BLOCKING = 1


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
        """Enqueue the copies; returns at once.

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
        """Whether the copies of `begin_check` are done.

        Raises:
            CudaCallError: some of it failed, or a call did.
            ContextReplacedError: the context is not the one that the memory was in.
        """
        with self._current():
            return self._cuda.is_done(self._stream)

    def what_is_wrong(self) -> str:
        """Return the differences in the copied data, empty for none. After `is_checked`."""
        given, moved, filled = (ctypes.string_at(part, _SIZE) for part in (self._given, self._moved, self._filled))
        if moved != given:
            return f"a pattern that was copied to it and back came back changed in {_differences(given, moved)}"
        expected = _WORD.to_bytes(4, "little") * (_SIZE // 4)
        if filled != expected:
            return f"memory that it was to fill with one value has others in {_differences(expected, filled)}"
        return ""

    def release(self) -> None:
        """Free memory and release the context. Idempotent; a broken context frees nothing before the process ends."""
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
            if error.code in (INVALID_CONTEXT, CONTEXT_DESTROYED):
                raise ContextReplacedError from error
            if error.code == -1:
                return None
            raise


def _differences(expected: bytes, found: bytes) -> str:
    wrong = [index for index, (one, other) in enumerate(zip(expected, found, strict=True)) if one != other]
    return f"{len(wrong)} of {len(expected)} bytes, the first at {wrong[0]}"
