"""What each client of `bringup demo` runs: it brings its job up, uses it, and says what it holds, a JSON line each.

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

from ...errors import BringupError, PeerFailedError
from ...runtime.initialize import initialize
from ...runtime.system import System

# What a job of more than one client loads when it starts: the demo's clock is to measure the job.
_USED_BY_EVERY_JOB = ("bringup.transport.network", "uvloop")
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
        culprit = error.client_id if isinstance(error, PeerFailedError) else None
        _say("failed", type=type(error).__name__, text=str(error), culprit=culprit)
        return 1
    return 0


async def _take_part(device_type: str) -> None:
    async with initialize(device_type) as system:
        _say("up", at=time.monotonic())
        contribution = np.array([1, system.client_id + 1, len(system.local_devices)], np.int64)
        total = await system.all_reduce(contribution, timeout=_STEP_TIMEOUT)
        await system.barrier("demo", timeout=_STEP_TIMEOUT)
        _say("report", **describe(system), all_reduce=total.tolist())
    _say("left")


def describe(system: System) -> dict[str, Any]:
    """Return all that a client holds, for JSON; the lists of devices and members are those of the whole job."""
    return {
        "client_id": system.client_id,
        "num_clients": system.num_clients,
        "job_id": system.job_id,
        "job_name": system.job_name,
        "jobs": list(system.jobs),
        "device_type": system.device_type,
        "core_ids": system.core_ids.tolist(),
        "devices": [
            {
                "id": device.id,
                "client_id": device.client_id,
                "local_index": device.local_index,
                "core_id": device.core_id,
                "location": None if device.location is None else list(device.location),
                "kind": device.kind,
                "name": device.name,
            }
            for device in system.devices
        ],
        "local_device_ids": [device.id for device in system.local_devices],
        "topology": None if system.topology is None else system.topology.to_json(),
        "members": [
            {
                "client_id": member.client_id,
                "address": member.address,
                "hostname": member.hostname,
                "pid": member.pid,
                "incarnation": member.incarnation,
            }
            for member in system.members
        ],
        "timeline": [
            {"phase": str(span.name), "start": span.start, "duration": span.duration}
            for span in system.timeline
            if span.client_id == system.client_id
        ],
    }


def _say(event: str, **facts: Any) -> None:
    print(json.dumps({"event": event, **facts}), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
