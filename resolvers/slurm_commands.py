"""Slurm's commands, asked for what the variables of a task do not say: the layout of its step, a node's address."""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

# Seconds for a command, which takes 10 ms. Without its controller Slurm tries again for a minute.
_COMMAND_TIMEOUT = 5.0

# Seconds to resolve a host name: some name servers answer after their first time-out, of 5.
_NAME_TIMEOUT = 8.0

_LAYOUT = re.compile(r"^\s*Node \d+ \(([^)]+)\), \d+ task\(s\): ([\d ]*)$", re.MULTILINE)
_NODE_ADDRESS = re.compile(r"\bNodeAddr=(\S+)")


class SlurmCommands:
    """The commands of the cluster of one environment; only where that names its configuration, as every task's does."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)

    async def host_of_task_0(self, job: int, step: int) -> tuple[str | None, str]:
        """Return the host of a step's task 0 after `sattach --layout`; or `None`, and the reason."""
        output, failure = await self._run("sattach", "--layout", f"{job}.{step}")
        for host, tasks in _LAYOUT.findall(output):
            if "0" in tasks.split():
                return host, ""
        return None, failure or f"sattach --layout printed {output!r:.200}"

    async def first_of_host_file(self, hosts: Sequence[str], num_tasks: int, task: int, own: str | None) -> str | None:
        """Return the first host of the file that gave each task its host, where it agrees with this task."""
        path = self._environment.get("SLURM_HOSTFILE", "")
        if not path:
            return None
        try:
            lines = (await asyncio.to_thread(Path(path).read_text)).split()
        except (OSError, UnicodeDecodeError):
            return None
        agrees = len(lines) >= num_tasks and set(lines[:num_tasks]) == set(hosts) and own in (None, lines[task])
        return lines[0] if agrees else None

    async def reachable(self, host: str) -> str:
        """Return a host as it can be dialled: by its name, or where that does not resolve, by its address in Slurm."""
        if not self._can_run("scontrol") or await _resolves(host):
            return host
        output, _ = await self._run("scontrol", "show", "node", host, "--oneliner")
        found = _NODE_ADDRESS.search(output)
        return found[1] if found else host

    def _can_run(self, command: str) -> str | None:
        configuration = self._environment.get("SLURM_CONF", "")
        if not configuration or not Path(configuration).is_file():
            return None
        return shutil.which(command, path=self._environment.get("PATH"))

    async def _run(self, command: str, *arguments: str) -> tuple[str, str]:
        """Return what a command printed, and why there is nothing."""
        path = self._can_run(command)
        if path is None:
            return "", f"there is no {command} here, or no SLURM_CONF"
        try:
            # In a thread, not a process of the event loop, which would take over SIGCHLD of the whole program.
            done = await asyncio.to_thread(
                subprocess.run,
                [path, *arguments],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_COMMAND_TIMEOUT,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError) as error:
            return "", f"{command}: {error}"
        return done.stdout, "" if done.returncode == 0 else f"{command}: {done.stderr.strip()!r:.200}"


async def _resolves(host: str) -> bool:
    try:
        async with asyncio.timeout(_NAME_TIMEOUT):
            await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # a time-out, too
        return False
    return True
