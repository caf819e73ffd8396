"""The modules that a process imports to bring up a job of one client, as a notebook, a test or a short script does."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import asyncio, sys
import bringup

async def main():
    async with await bringup.initialize(device_type="CPU", resolver="none"):  # to ask installed ones takes `email`
        print(*sys.modules)

asyncio.run(main())
"""

LIBRARIES = {"msgspec", "numpy", "typing_extensions", "uvloop"}
"""Beside the standard library. msgspec imports typing_extensions where it is installed."""

NEVER = {"argparse", "email", "http", "multiprocessing", "pydoc", "unittest", "xml", "zipfile"}
"""Large parts of the standard library that some imports bring along."""

ONLY_FOR_SEVERAL_CLIENTS = (
    "bringup.transport.grpc.",
    "bringup.transport.network",
    "bringup.transport.security.certificates",
    "bringup.transport.security.tls_credentials",
    "bringup.transport.tcp.connector",
    "bringup.transport.tcp.link",
)
FOR_OTHERS = ("bringup.commands", "bringup.compat", "bringup.devices.isolation", "bringup.handoff", "bringup.testing")


def test_a_job_of_one_client_loads_no_network_and_no_protobuf() -> None:
    run = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM], stdout=subprocess.PIPE, check=True, text=True, timeout=60
    )
    loaded = set(run.stdout.split())
    own = {name for name in loaded if name.startswith("bringup.")}
    assert own, run.stdout
    # What installers hook into every process has a name that begins with an underscore, as have parts of extensions.
    top = {name.split(".")[0] for name in loaded - own} - {"bringup", "__main__"}
    others = {name for name in top - sys.stdlib_module_names if not name.startswith(("_", "cython"))}
    assert others <= LIBRARIES, f"it loads {others - LIBRARIES}"
    assert not top & NEVER, f"it loads {top & NEVER}"
    wrong = {name for name in own if f"{name}.".startswith(ONLY_FOR_SEVERAL_CLIENTS + FOR_OTHERS)}
    assert not wrong, f"it loads {wrong}"
