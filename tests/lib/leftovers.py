"""Tasks, threads and descriptors that an asynchronous test leaves behind in this process."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time

import uvloop

# Its first loop opens a pipe for signals, which stays for good.
uvloop.new_event_loop().close()

# Seconds for threads of libraries to close what they are done with: they announce it to nobody.
_PATIENCE = 5.0
_TICK = 0.01


def tasks_left() -> set[asyncio.Task[object]]:
    """Return the tasks of the running loop, but for the one that asks."""
    return asyncio.all_tasks() - {asyncio.current_task()}


class Resources:
    """The threads and descriptors of this process at one time."""

    def __init__(self) -> None:
        self._threads = set(threading.enumerate())
        self._descriptors = _descriptors()

    def left(self) -> str:
        """Return the threads and descriptors that are there now and were not before, or nothing."""
        deadline = time.monotonic() + _PATIENCE
        found = self._new()
        if found:
            gc.collect()
        while found and time.monotonic() < deadline:
            time.sleep(_TICK)
            found = self._new()
        return ", ".join(found)

    def _new(self) -> list[str]:
        threads = [f"thread {thread.name}" for thread in threading.enumerate() if thread not in self._threads]
        # A number may be used again, by something that stays.
        now = _descriptors()
        files = [f"{target} ({number})" for number, target in now.items() if self._descriptors.get(number) != target]
        return threads + files


def _descriptors() -> dict[str, str]:
    found: dict[str, str] = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            found[number] = os.readlink(f"/proc/self/fd/{number}")
        except OSError:  # the one that lists the folder
            continue
    return found
