"""NVML, the NVIDIA Management Library, through the package `nvidia-ml-py`."""

from __future__ import annotations

import importlib
from typing import Any

from ...errors import DeviceInitializationError, DeviceNotFoundError
from .sysfs import GpuTraces

INSTALL = "pip install 'bringup[gpu]'"
GPU_IS_LOST, GPU_NEEDS_RESET = 15, 16
_UNINITIALIZED = 1

LINKS_MAX = 64
"""NVLinks of a GPU: no GPU has as many, and the library ends the count earlier with an error."""

# What a driver, a library or a GPU that is older, smaller or virtual answers to a question it does not know: invalid
# argument, not supported, no permission, not found, function not found, no data, not for virtual GPUs, another version
# of the argument, deprecated.
_UNKNOWN = frozenset({2, 3, 4, 6, 13, 21, 22, 25, 26})

_ADVICE = {
    4: "This process may not use the NVIDIA device nodes: check their permissions, or what the container was given.",
    8: "A GPU lacks its external power: check the power cables.",
    9: "The NVIDIA kernel driver is not loaded: load it (modprobe nvidia), or install the driver.",
    11: "The interrupts of a GPU do not arrive: check the kernel log (dmesg) for NVRM.",
    12: "The library of the NVIDIA driver is not there: install the driver; in a container, start it with GPUs "
    "(--gpus all, or a GPU resource).",
    15: "A GPU has fallen off the bus: the driver cannot reach it any more. Power-cycle the host; if it happens again, "
    "reseat or replace the GPU.",
    18: "The driver's library and its kernel module are of different versions, as after an update: reboot the host, or "
    "reload the module.",
}


class NvmlCallError(Exception):
    """A call of the library failed. `code` is the library's number for the reason."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Nvml:
    """A session with the library. Calls may come from any thread.

    The library counts who has begun a session and who has ended one: another part of the process that ends one too many
    ends this one.

    Args:
        library: the module `pynvml`, initialised.

    Attributes:
        session: how often it was begun anew; what was made in an earlier session must not be handed to the library.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        self._open = True
        self.session = 0

    def ask(self, function: str, *arguments: Any) -> Any:
        """Call a function of the module.

        Returns:
            Its result; `None` where this driver, library or GPU does not know the answer.

        Raises:
            NvmlCallError: it failed, e.g. as the GPU is lost.
        """
        called = getattr(self._library, function, None)
        if called is None:
            return None
        try:
            return called(*arguments)
        except self._library.NVMLError as error:
            if error.value in _UNKNOWN:
                return None
            raise NvmlCallError(error.value, str(error)) from error

    def ask_optional(self, function: str, *arguments: Any) -> Any:
        """Call as `ask` does, and return `None` on a failure: a single query proves nothing.

        Raises:
            NvmlCallError: the GPU is lost, or must be reset.
        """
        try:
            return self.ask(function, *arguments)
        except NvmlCallError as error:
            if error.code in (GPU_IS_LOST, GPU_NEEDS_RESET):
                raise
            return None

    def revive(self) -> None:
        """Start a new session where other code has ended this one.

        Raises:
            NvmlCallError: it could not be begun.
        """
        try:
            self.ask("nvmlSystemGetDriverVersion")
        except NvmlCallError as error:
            if error.code == _UNINITIALIZED:
                self.ask("nvmlInit")
                self.session += 1

    def constant(self, name: str) -> int | None:
        """Return a constant of the module, `None` where it is too old to have it."""
        value = getattr(self._library, name, None)
        return None if value is None else int(value)

    def close(self) -> None:
        """End the session. Idempotent."""
        if not self._open:
            return
        self._open = False
        try:
            self._library.nvmlShutdown()
        except self._library.NVMLError:
            pass  # the driver was unloaded meanwhile, and the session with it


def open_nvml(traces: GpuTraces, client_id: int) -> Nvml:
    """Begin a session.

    Args:
        traces: what else there is of GPUs, which tells a host without GPUs from one whose driver is broken.
        client_id: for errors.

    Raises:
        DeviceNotFoundError: there is no usable GPU.
        DeviceInitializationError: there is one, but the library is missing, or fails.
    """
    try:
        library = importlib.import_module("pynvml")
    except ImportError:
        raise _failure(
            "libnvidia-ml.so.1 was not asked, as the package nvidia-ml-py is not installed",
            f"Install it: {INSTALL}.",
            traces,
            client_id,
        ) from None
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        cause = f"libnvidia-ml.so.1 gives error {error.value} ({error})"
        raise _failure(
            cause, _ADVICE.get(error.value, "Check the NVIDIA driver (nvidia-smi)."), traces, client_id
        ) from None
    return Nvml(library)


def _failure(
    cause: str, advice: str, traces: GpuTraces, client_id: int
) -> DeviceNotFoundError | DeviceInitializationError:
    told = f"{traces}; {cause}"
    if traces.nodes:
        return DeviceInitializationError(
            f"client {client_id}: the GPUs of this host cannot be used: {told}. {advice}",
            client_id=client_id,
            cause=told,
        )
    if not traces.pci and not traces.driver:
        advice = "Run it on a host with NVIDIA GPUs"
    return DeviceNotFoundError(
        f"client {client_id}: no NVIDIA GPU was found. Looked at: {told}. {advice.rstrip('.')}, or use another "
        "device_type.",
        client_id=client_id,
        cause=told,
    )
