"""Busy processes beside the measured clients."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# It looks now and then whether its parent is gone: one that was killed cannot end it.
_BUSY = """
import os
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(10**6):
        pass
"""


@contextmanager
def busy_processes(count: int) -> Iterator[list[float]]:
    """Run processes that never wait; yields a list that gets their seconds and processor seconds at their end."""
    used: list[float] = []
    began = time.monotonic()
    busy: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(count):
            busy.append(subprocess.Popen([sys.executable, "-I", "-S", "-c", _BUSY]))  # noqa: PERF401 - all are ended
        yield used
    finally:
        used.append(time.monotonic() - began)
        for process in busy:
            process.kill()
        usages = [os.wait4(process.pid, 0)[2] for process in busy]
        used.append(sum(usage.ru_utime + usage.ru_stime for usage in usages))
        for process in busy:
            process.returncode = -signal.SIGKILL  # it has been waited for
