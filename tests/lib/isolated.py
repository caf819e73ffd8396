"""Isolated backends for tests: a plug-in with any code in its calls, and the simulated one."""

from __future__ import annotations

import contextlib
import os
import select
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bringup.devices.base import BackendConfig
from bringup.devices.isolation.backend import IsolatedBackend

LONG = 60.0
"""Seconds: longer than anything takes, and short enough to end a test that hangs."""

Native = Callable[..., IsolatedBackend]

_PLUG_IN = """
    import os, signal, sys, threading, time
    from bringup.devices.base import Discovery, Health, LocalDevice

    class Backend:
        device_type = "NATIVE"
        simulated = False

        def __init__(self, config):
            self.told = config.environment
            {init}

        def discover(self):
            {discover}
            return Discovery(present=True, detail="here")

        def start(self):
            {start}
            return [LocalDevice("native")]

        def check_health(self):
            {check_health}
            return Health(ok=True)

        def stop(self):
            {stop}
"""


def native_backends(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Native:
    """Return a function that makes an isolated backend with the given bodies of calls, from a plug-in in `folder`."""

    def make(**bodies: str) -> IsolatedBackend:
        names = ("init", "discover", "start", "check_health", "stop")
        source = textwrap.dedent(_PLUG_IN).format(**{name: bodies.get(name, "pass") for name in names})
        (folder / "native_module.py").write_text(source)
        info = folder / "native-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: native\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[bringup.backends]\nNATIVE = native_module:Backend\n")
        # The child has the path of the client, which is not that of the environment.
        monkeypatch.syspath_prepend(folder)
        return IsolatedBackend("native", BackendConfig(client_id=7, num_clients=8, environment={"GIVEN": "it"}))

    return make


def sim(fault: str = "", client_id: int = 0, **settings: str) -> IsolatedBackend:
    return IsolatedBackend("SIM", sim_config(fault, client_id, **settings))


def sim_config(fault: str = "", client_id: int = 0, **settings: str) -> BackendConfig:
    environment = {"BRINGUP_SIM_FAULT": fault} | {f"BRINGUP_SIM_{name}": text for name, text in settings.items()}
    return BackendConfig(client_id=client_id, num_clients=4, environment=environment)


def pid_of(backend: IsolatedBackend) -> int:
    assert backend.pid is not None
    return backend.pid


@contextlib.contextmanager
def watched(pid: int) -> Iterator[Callable[[], bool]]:
    """Yield a function that waits for the end of a process, and returns whether it has ended in time."""
    descriptor = os.pidfd_open(pid)
    try:
        yield lambda: bool(select.select([descriptor], [], [], LONG)[0])
    finally:
        os.close(descriptor)
