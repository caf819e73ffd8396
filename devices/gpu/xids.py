"""Xids, the error numbers of the NVIDIA driver: their meaning and severity. Pure.

After NVIDIA's Xid catalog for Ampere and newer GPUs (https://docs.nvidia.com/deploy/xid-errors/).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Severity(enum.Enum):
    """The severity of an Xid for its GPU."""

    PROGRAM = "a fault of a program on the GPU, which is fine itself"
    NOTICE = "the GPU goes on, and should be looked at when there is time"
    RESET = "the GPU must be reset before it can be relied on"
    REBOOT = "the host must be power-cycled"


@dataclass(frozen=True, slots=True)
class Xid:
    """An Xid with its meaning.

    Attributes:
        number: the Xid.
        meaning: what happened.
        severity: what that means for the GPU.
    """

    number: int
    meaning: str
    severity: Severity

    def __str__(self) -> str:
        return f"Xid {self.number} ({self.meaning})"

    @property
    def is_fault(self) -> bool:
        """Whether the GPU is unreliable from now on."""
        return self.severity in (Severity.RESET, Severity.REBOOT)


_PROGRAM = {
    8: "a program's work did not come to an end",
    11: "corrupted commands from a program",
    13: "a program's kernel made an invalid access or ran an illegal instruction",
    25: "corrupted commands from a program",
    31: "a program's kernel accessed memory that is not its own",
    32: "corrupted commands reached the GPU, which points to the PCI Express link",
    43: "a program was stopped after a fault of its own",
    45: "a program was ended, and its work on the GPU removed",
    68: "video decoder error",
    69: "a program used the graphics engine wrongly",
    137: "a program accessed another GPU's memory over NVLink without permission",
}
_NOTICE = {
    63: "memory is to be remapped or a page retired at the next reset of the GPU",
    92: "many single-bit memory errors, all corrected",
    94: "a memory error that was contained: the program that had it must be restarted, others go on",
    121: "corrected errors on the link to the CPU",
    154: "the driver now advises another action to recover the GPU",
    157: "broken parts cannot be replaced any more",
    160: "a memory channel was retired",
    161: "a memory channel could not be retired",
    168: "less memory than there should be",
}
_RESET = {
    46: "the GPU stopped processing",
    48: "an uncorrectable memory error (double-bit ECC)",
    62: "the GPU's internal controller stopped",
    64: "memory could not be remapped or a page not retired",
    74: "an NVLink error",
    95: "a memory error that was not contained: no program on the GPU can be trusted",
    109: "the GPU did not switch between programs in time",
    110: "security fault",
    119: "the GPU's system processor (GSP) did not answer in time",
    120: "the GPU's system processor (GSP) failed",
    136: "an NVLink could not be trained",
    140: "an uncorrectable memory error that could not be set right",
    143: "the GPU could not be initialised",
    155: "an NVLink was taken down",
    156: "broken parts were replaced, as of the next reset of the GPU",
    158: "the GPU stopped answering",
    167: "the PCI Express link timed out",
    169: "the GPU's security controller stopped",
    171: "an uncorrectable error in the GPU's DRAM",
    172: "an uncorrectable error in the GPU's SRAM",
}
_REBOOT = {79: "the GPU has fallen off the bus"}

_COPY_ENGINES = frozenset({39, 40, 41, *range(70, 73), *range(75, 78), 85, *range(126, 136)})
_NVLINK_5 = range(144, 151)


def explain_xid(number: int) -> Xid:
    """Return an Xid with its meaning; an unknown one refers to NVIDIA's catalog."""
    for table, severity in (
        (_PROGRAM, Severity.PROGRAM),
        (_NOTICE, Severity.NOTICE),
        (_RESET, Severity.RESET),
        (_REBOOT, Severity.REBOOT),
    ):
        if number in table:
            return Xid(number, table[number], severity)
    if number in _COPY_ENGINES:
        return Xid(number, "copy engine error: restart the program", Severity.PROGRAM)
    if number in _NVLINK_5:
        # Whether these are fatal is in a part of the message that only the kernel log has; the driver also says it in
        # the action that it recommends.
        return Xid(number, "an NVLink error; the kernel log says which, and whether it is fatal", Severity.NOTICE)
    return Xid(number, "see NVIDIA's catalog of Xids", Severity.NOTICE)
