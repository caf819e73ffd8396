"""The figures of one process: what `import bringup` costs, and what a whole process in local mode costs."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

from ..libraries import BRINGUP
from ..report import Row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..report import Ran

_TIMEOUT = 60.0
_LOCAL = """
import asyncio, time
import bringup
async def main():
    await bringup.initialize("SIM")
    print(time.monotonic(), flush=True)
asyncio.run(main())
"""


def measure_process(runs: int, environment: Mapping[str, str], ran: Ran) -> list[Row]:
    """Measure the import and the local mode in turn, each in fresh interpreters.

    Args:
        runs: How many samples of each.
        environment: The processes' environment.
        ran: Called after every run.
    """
    imported = Row(BRINGUP.name, 1, "import, less a bare interpreter's start")
    returned = Row(BRINGUP.name, 1, "local mode, interpreter start to system returned")
    exited = Row(BRINGUP.name, 1, "local mode, interpreter start to exit")
    # A checkout's first import compiles; an installed package's does not.
    environment = {name: value for name, value in environment.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(_command(_LOCAL), env=environment, capture_output=True, check=False, timeout=_TIMEOUT)
    for _ in range(runs):
        failure = None
        try:
            bare, _ = _run("pass", environment)
            whole, _ = _run("import bringup", environment)
            imported.seconds.append(whole - bare)
            began = time.monotonic()
            whole, stamp = _run(_LOCAL, environment)
            returned.seconds.append(float(stamp) - began)
            exited.seconds.append(whole)
        except subprocess.SubprocessError as error:
            output = error.stderr if isinstance(error, subprocess.CalledProcessError) else ""
            failure = (output.strip().splitlines() or [str(error)])[-1]
            exited.failures.append(failure)
        ran(exited, failure)
    return [imported, returned, exited]


def _command(code: str) -> list[str]:
    return [sys.executable, "-P", "-c", code]


def _run(code: str, environment: Mapping[str, str]) -> tuple[float, str]:
    began = time.monotonic()
    done = subprocess.run(
        _command(code),
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=_TIMEOUT,
    )
    return time.monotonic() - began, done.stdout
