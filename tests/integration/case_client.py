"""A client that runs cases: functions of a module that all clients of a job run at once, and that assert.

`python case_client.py MODULE.py CASE...` comes up, and runs the cases one after the other; each gets the system. They
begin together. For each it writes a line, `{"case": NAME, "problem": null}`, or the traceback. A case may be a
coroutine. Others block the thread of the running loop, as a cell of a notebook does.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import runpy
import sys
import traceback
from collections.abc import Callable
from typing import Any

import bringup

_PATIENCE = 60.0


async def run(module: str, names: list[str]) -> None:
    cases = runpy.run_path(module)
    async with bringup.initialize("SIM") as system:
        for name in names:
            await system.barrier(f"before {name}", timeout=_PATIENCE)
            print(json.dumps({"case": name, "problem": await _problem(cases[name], system)}), flush=True)


async def _problem(case: Callable[[bringup.System], Any], system: bringup.System) -> str | None:
    try:
        if inspect.isawaitable(result := case(system)):
            await result
    except Exception:  # noqa: BLE001 - whatever it is, the test wants to see it
        return traceback.format_exc()
    return None


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2:]))
