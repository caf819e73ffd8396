"""The processor time and the memory of a live process, read from outside without costing it anything; Linux only."""

from __future__ import annotations

import time
from pathlib import Path

# The kernel's clock id of a process's processor time: its inverted number, and the kind of clock.
_CLOCK_BITS = 3
_PROCESSOR_CLOCK = 2

PROC = Path("/proc/self")
"""Is there where these figures can be read."""


def processor_seconds(pid: int) -> float | None:
    """The processor seconds of all threads of a process so far, to the nanosecond; `None` once it has ended."""
    try:
        return time.clock_gettime((~pid << _CLOCK_BITS) | _PROCESSOR_CLOCK)
    except OSError:
        return None


def anonymous_bytes(pid: int) -> float | None:
    """The resident memory of a process that no file backs, in bytes; `None` once it has ended.

    Pages that a forked process shares with its parent count from the fork on, so that what is added later is its own.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    kilobytes = (line.split()[1] for line in status.splitlines() if line.startswith("RssAnon:"))
    return next((1024.0 * int(number) for number in kilobytes), None)
