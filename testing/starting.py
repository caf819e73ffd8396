"""Starts the clients of a `LocalJob`: as fresh interpreters, or forked from a process that has imported everything."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ..processes.fork_server import ForkServer, ForkServerError
from ..processes.guard import Guard
from .namespaces import NamespaceNetwork
from .process import AnyProcess

_IMPORTED = (
    "bringup.sync",
    "bringup.testing.client",
    "bringup.testing.enter_namespace",
    "bringup.runtime.client.startup",
    "bringup.transport.network",
    "bringup.transport.security.tls_credentials",
    "bringup.devices.sim.backend",
    "uvloop",
)
"""The modules that every client imports until it is up."""

# Without the folder that it runs in: those of a checkout would shadow installed packages.
_OWN_CLIENT = (sys.executable, "-P", "-c", "from bringup.testing.client import main; main()")
_ENTER = "from bringup.testing.enter_namespace import enter_both; enter_both({!r}, {!r})"


class Starter:
    """Starts the processes of one job, each of which leads a group and ends with this process, until `close`."""

    def __init__(self) -> None:
        self._guard: Guard | None = None

    def start(
        self,
        command: Sequence[str] | None,
        environment: Mapping[str, str],
        *,
        cwd: str | None,
        forks: bool,
        network: NamespaceNetwork | None,
        client_id: int,
    ) -> tuple[AnyProcess, Callable[[int], None]]:
        """Start a client.

        Args:
            command: what to run; `None` for a client that makes the calls it is told to.
            environment: all of its environment.
            cwd: the folder to run the command in; `None` for this process's own.
            forks: whether to fork it where that can be done.
            network: what it is to be in.
            client_id: where in there.

        Returns:
            The process, and what to call with its group once that has ended.
        """
        chosen = command or _OWN_CLIENT
        program, server = None, _SHARED.get() if forks else None
        if server is not None:
            program = server.program_of(chosen, environment)
        if server is None or program is None:
            prefix = [] if network is None else network.prefix(client_id)
            return self._start_fresh([*prefix, *chosen], environment, cwd, listens=command is None)
        if network is not None:
            program = replace(program, prologue=_ENTER.format(*network.paths(client_id)))
        process = server.start(program, environment, cwd)
        if command is not None:
            process.stdin.close()
        return process, server.forget

    def close(self) -> None:
        """End the processes that still run."""
        if self._guard is not None:
            self._guard.close()
            self._guard = None

    def _start_fresh(
        self, command: Sequence[str], environment: Mapping[str, str], cwd: str | None, *, listens: bool
    ) -> tuple[AnyProcess, Callable[[int], None]]:
        if self._guard is None:
            self._guard = Guard()
        process = subprocess.Popen(
            self._guard.joined(command),
            stdin=subprocess.PIPE if listens else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=dict(environment),
            cwd=cwd,
            pass_fds=(self._guard.pipe,),
            start_new_session=True,
        )
        return process, self._guard.forget


class _SharedServer:
    """One server for all jobs of this process, as its start takes longer than a job. It ends with the interpreter."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server: ForkServer | None = None
        self._owner = 0

    def get(self) -> ForkServer | None:
        """Return the server, or `None` where this platform has none."""
        with self._lock:
            if self._owner != os.getpid():  # else a forked copy of this would talk to its parent's
                self._owner = os.getpid()
                try:
                    self._server = ForkServer(_IMPORTED)
                except ForkServerError:
                    self._server = None
                else:
                    atexit.register(self._server.close)
            return self._server


_SHARED = _SharedServer()
