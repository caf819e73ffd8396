"""The client of `bringup demo`: brings its job up, uses it, and reports the facts in lines of JSON.

The lines go to standard output: `ready` once all is imported, then, after standard input has ended, `up`, `report`
with all that this client knows, and `left`; or `failed`, with the error.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import BringupError
from ...processes.report import error_to_json
from ...runtime.initialize import initialize
from ...runtime.system import System

# What a job of more than one client loads when it starts: the demo's clock is to measure the job.
_USED_BY_EVERY_JOB = ("bringup.transport.network", "bringup.transport.security.tls_credentials", "uvloop")
_OF_A_MEMBER = ("client_id", "address", "hostname", "pid", "incarnation")
_STEP_TIMEOUT = 30.0


def main(arguments: Sequence[str]) -> int:
    """Take part; returns the exit status. `arguments`: the device type."""
    for module in _USED_BY_EVERY_JOB:
        try:
            importlib.import_module(module)
        except ImportError:
            pass  # uvloop is not everywhere; a job says itself what it cannot do without
    _say("ready")
    sys.stdin.buffer.read()
    try:
        asyncio.run(_take_part(arguments[0]))
    except BringupError as error:
        _say("failed", **error_to_json(error))
        return 1
    return 0


async def _take_part(device_type: str) -> None:
    async with initialize(device_type) as system:
        _say("up", at=time.monotonic())
        contribution = np.array([1, system.client_id + 1, len(system.local_devices)], np.int64)
        total = await system.all_reduce(contribution, timeout=_STEP_TIMEOUT)
        await system.barrier("demo", timeout=_STEP_TIMEOUT)
        _say("report", **_report(system), all_reduce=total.tolist())
    _say("left")


def _report(system: System) -> dict[str, Any]:
    """Return all that a client holds, less what changes from one moment to the next."""
    report = system.to_json()
    report["members"] = [{name: member[name] for name in _OF_A_MEMBER} for member in report["members"]]
    report["timeline"] = [span for span in report["timeline"] if span["client_id"] == system.client_id]
    return report


def _say(event: str, **facts: Any) -> None:
    print(json.dumps({"event": event, **facts}), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
