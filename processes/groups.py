"""Signals to process groups, and the states of processes in `/proc`."""

from __future__ import annotations

import asyncio
import os
import signal

_POLL_INTERVAL = 0.05


async def end_group(group: int, grace: float) -> None:
    """End what is left of a process group: `SIGTERM`, and after `grace` seconds `SIGKILL`."""
    if not _runs(group):
        return
    signal_group(group, signal.SIGTERM)
    try:
        async with asyncio.timeout(grace):
            while _runs(group):  # noqa: ASYNC110 - nothing tells when a process ends that is not one's child
                await asyncio.sleep(_POLL_INTERVAL)
    except TimeoutError:
        kill_group(group)


def kill_group(group: int) -> None:
    """Kill whatever is left of a process group."""
    _send(group, signal.SIGKILL)


def signal_group(group: int, number: int) -> None:
    """Send a signal to all of a process group; those that were stopped go on, to see it."""
    _send(group, number)
    _send(group, signal.SIGCONT)


def _send(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass  # all of it has ended, or has become somebody else's


def _runs(group: int) -> bool:
    """Whether a process of the group is alive. Zombies do not count: there may be nobody who will wait for them."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        pids = [name for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return True
    return any(_is_alive_in(group, pid) for pid in pids) if pids else True


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal; never where there is no `/proc`."""
    return _state_of(str(pid))[0] == b"T"


def _is_alive_in(group: int, pid: str) -> bool:
    state, process_group = _state_of(pid)
    return process_group == group and state not in b"ZX"


def _state_of(pid: str) -> tuple[bytes, int]:
    """Return the state of a process and its group; `X` and 0 for one that has gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name of the command, in parentheses, may hold anything.
            state, _parent, process_group, *_ = file.read().rpartition(b")")[2].split()
    except (OSError, ValueError):
        return b"X", 0
    return state, int(process_group)
