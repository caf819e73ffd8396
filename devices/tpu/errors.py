"""Diagnosis of TPU failures from the errors of jax and libtpu. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ...errors import BringupError, DeviceInitializationError, DeviceNotFoundError
from .chips import TpuChip, TpuFindings
from .environment import TpuEnvironment, told

# What jax puts around libtpu's own words.
_WRAPPING = (
    re.compile(r"^(Unable to initialize backend 'tpu'|Backend 'tpu' failed to initialize): "),
    re.compile(r"\. Available backends are .*$"),
    re.compile(r"\s*\(set JAX_PLATFORMS='' to automatically choose an available backend\)"),
)
_NO_TPU = ("No jellyfish device found", "NOT_FOUND", "no platforms that are instances of tpu", "Unknown backend")
_NO_LIBRARY = ("Failed to open libtpu.so", "No module named", "libtpu.so: cannot open")
_IN_USE = ("already in use", "libtpu_lockfile", "Device or resource busy", "TPU_LOAD_LIBRARY=0")
_DENIED = ("PERMISSION_DENIED", "Permission denied", "Operation not permitted")
_MISCONFIGURED = ("INVALID_ARGUMENT", "host bounds", "accelerator type")
# What libtpu says where chips do not answer, and where it was told of a slice that they are not.
_NO_TOPOLOGY = ("Failed to get global TPU topology",)
_EXHAUSTED = ("RESOURCE_EXHAUSTED",)

_PCI_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]", re.IGNORECASE)
_NODE = re.compile(r"/dev/(?:accel|vfio/)[0-9]+")
_NUMBER = re.compile(r"\bchip(?:[ _]?(?:id|index|number))?[ :=#]*([0-9]{1,4})\b", re.IGNORECASE)


class TpuErrors:
    """Makes the errors of one client's TPUs.

    Args:
        client_id: the client.
        host: its host name.
        findings: what the file system showed.
        environment: the variables of the client.
    """

    def __init__(self, client_id: int, host: str, findings: TpuFindings, environment: Mapping[str, str]) -> None:
        self._client_id = client_id
        self._owner = f"client {client_id} on host {host}"
        self._findings = findings
        self._environment = environment

    def not_found(self, cause: str = "") -> DeviceNotFoundError:
        """Return the error for a host without a TPU that this process can use."""
        findings, platforms = self._findings, self._environment.get("JAX_PLATFORMS", "")
        if platforms and "tpu" not in platforms.split(","):
            advice = f"JAX_PLATFORMS={platforms} keeps jax from TPUs: unset it, or add tpu to it."
        elif findings.chips and not findings.usable:
            advice = (
                "There are chips, but none of their device files: give them to this container (on Kubernetes, request "
                "google.com/tpu), or load the driver."
            )
        elif findings.denied:
            advice = "Give this process the permission to read and write the device files."
        elif findings.usable:
            advice = "Check that the driver of these chips is loaded, and that libtpu is new enough to know them."
        else:
            advice = "Run on a TPU host, or use another device_type."
        said = f" libtpu said: {cause}." if cause else ""
        return DeviceNotFoundError(
            f"Initialization failed, no valid TPUs found. What {self._owner} looked at: {findings}; environment: "
            f"{told(self._environment)}.{said} {advice}",
            client_id=self._client_id,
            cause=cause or "no valid TPUs found",
        )

    def no_library(self, cause: str) -> DeviceInitializationError:
        """Return the error for TPUs without the libraries that bring them up."""
        return self._failed(
            f"found {self._summary()}, but not what brings them up: {cause}",
            "Install jax with libtpu: pip install 'bringup[tpu]'.",
            cause,
        )

    def failed(self, error: BaseException, suspects: Sequence[TpuChip]) -> BringupError:
        """Return the error for an exception of jax during bring-up.

        Args:
            error: what it raised.
            suspects: the chips that do not answer any more.
        """
        cause = _unwrapped(error)
        if _says(cause, _NO_LIBRARY) or isinstance(error, ImportError):
            return self.no_library(cause)
        if _says(cause, _IN_USE):
            return self._failed(
                cause,
                "A TPU belongs to one process at a time: end that process, which lsof /dev/accel* /dev/vfio/* shows.",
                cause,
            )
        if _says(cause, _DENIED) or (self._findings.denied and _says(cause, _NO_TPU)):
            return self._failed(
                f"{cause}; no permission for {', '.join(self._findings.denied) or 'the device files of the TPU'}",
                "Give this process the permission to read and write them.",
                cause,
            )
        if _says(cause, _NO_TPU):
            return self.not_found(cause)
        if _says(cause, _EXHAUSTED):
            return self._failed(cause, "Another program takes the memory of the TPUs: end it.", cause)
        if _says(cause, _MISCONFIGURED) and not suspects:
            variables = told(self._environment)
            return self._failed(
                f"libtpu does not accept what it was told of the slice: {cause}; environment: {variables}",
                "Correct the TPU_* variables, or unset them on a host that has its own from its cloud.",
                cause,
            )
        return self.hardware(cause, suspects)

    def hardware(self, cause: str, suspects: Sequence[TpuChip] = (), place: str = "") -> DeviceInitializationError:
        """Return the error for a failure that is likely one of the hardware.

        Args:
            cause: what libtpu said, or what was found.
            suspects: the chips that do not answer any more.
            place: the device it happened on, if libtpu got so far.
        """
        chips = ", ".join(map(str, self._named(cause) or suspects)) or place
        where = f"on {chips}" if chips else f"on one of {self._summary()}; libtpu does not say which chip"
        advice = "It is likely a hardware failure: restart the job, or leave that host out and have it checked."
        if _says(cause, _NO_TOPOLOGY):
            advice += f" Else what libtpu was told of the slice is wrong: {told(self._environment)}."
        return self._failed(f"hit an error during TPU system initialization {where}: {cause}", advice, cause)

    def missing_chips(self) -> str:
        """Return a text on the missing chips of this host; empty where none are missing, or where that is unknown."""
        expected, found = TpuEnvironment.of(self._environment).chips_expected, len(self._findings.chips)
        if not found or expected is None or found >= expected:
            return ""
        return f"the environment promises {expected} chips, and the host has {found} ({self._summary()})"

    def _named(self, cause: str) -> list[TpuChip]:
        """Return the chips that a text names by address, device file or number."""
        addresses = {address.lower() for address in _PCI_ADDRESS.findall(cause)}
        nodes, numbers = set(_NODE.findall(cause)), {int(number) for number in _NUMBER.findall(cause)}
        return [
            chip
            for chip in self._findings.chips
            if chip.pci_address in addresses
            or chip.node in nodes
            or (not addresses and not nodes and chip.index in numbers)
        ]

    def _summary(self) -> str:
        chips = ", ".join(map(str, self._findings.chips))
        return f"{len(self._findings.chips)} chips: {chips}" if chips else ", ".join(self._findings.nodes)

    def _failed(self, what: str, advice: str, cause: str) -> DeviceInitializationError:
        return DeviceInitializationError(
            f"the TPUs of {self._owner}: {what.rstrip('.')}. {advice}", client_id=self._client_id, cause=cause
        )


def _unwrapped(error: BaseException) -> str:
    text = " ".join(str(error).split())
    for wrapping in _WRAPPING:
        text = wrapping.sub("", text)
    return text.rstrip(". ") or type(error).__name__


def _says(text: str, phrases: Sequence[str]) -> bool:
    return any(phrase in text for phrase in phrases)
