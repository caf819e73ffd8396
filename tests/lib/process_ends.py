"""The end of a process that is no child of this one."""

from __future__ import annotations

import time
from pathlib import Path

_TIMEOUT = 10.0
_TICK = 0.01


def has_ended(pid: int) -> bool:
    """Poll a process until it has ended, or is a zombie, with a time-out; returns whether it has."""
    deadline = time.monotonic() + _TIMEOUT
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except OSError:
            return True
        time.sleep(_TICK)
    return False
