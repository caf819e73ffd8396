"""A client process with remote calls: JSON commands on its input, JSON answers on its output, one on each line.

`LocalJob` starts these; run it yourself with `python -m bringup.testing.client`. A command is
`{"id": 1, "call": "initialize", "arguments": {...}}`, its answer `{"id": 1, "value": ...}` or
`{"id": 1, "error": "PeerFailedError", "text": ..., "attributes": {...}}`. Commands run side by side.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import inspect
import json
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import bringup
from bringup.processes.report import error_to_json
from bringup.runtime.client.active import ACTIVE
from bringup.runtime.configuration.request import Request
from bringup.runtime.system import bring_up
from bringup.testing import fault_points

_POLL_INTERVAL = 0.002
_SETTLE_TIMEOUT = 5.0

_PARAMETERS = {field.name for field in dataclasses.fields(Request)} - {"overrides"}
"""Arguments of `initialize()` that are no options."""


class _Client:
    def __init__(self) -> None:
        self._system: bringup.System | None = None
        self._running: dict[int, asyncio.Task[None]] = {}
        self._file_limit: fault_points.FileLimit | None = None
        self._fault_points = fault_points.FaultPoints()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        commands: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        threading.Thread(target=_read_commands, args=(loop, commands), daemon=True, name="commands").start()
        while (command := await commands.get()) is not None:
            number = command["id"]
            self._running[number] = asyncio.create_task(self._answer(number, command["call"], command["arguments"]))

    async def _answer(self, number: int, call: str, arguments: dict[str, Any]) -> None:
        try:
            answer = {"id": number, "value": await self._perform(call, arguments)}
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test wants to see it
            answer = {"id": number, **error_to_json(error)}
        del self._running[number]
        sys.stdout.write(json.dumps({**answer, "at": time.monotonic()}) + "\n")
        sys.stdout.flush()

    async def _perform(self, call: str, arguments: dict[str, Any]) -> Any:
        local: dict[str, Callable[..., Awaitable[Any]]] = {
            "initialize": self._initialize,
            "reset": self._reset,
            "cancel": self._cancel,
            "cancel_after": self._cancel_after,
            "reach": self._reach,
            "block": self._block,
            "hold_gil": self._hold_gil,
            "limit_files": self._limit_files,
            "signal_at": self._signal_at,
            "resources": self._resources,
            "memory": self._memory,
            "facts": self._facts,
            "exit": self._exit,
            "get_key": self._get_key,
            "set_key": self._set_key,
            "wait_leaving": self._wait_leaving,
        }
        if call in local:
            return await local[call](**arguments)
        assert self._system is not None, "initialize first"
        value = getattr(self._system, call)(**arguments)
        if inspect.isawaitable(value):
            value = await value
        if isinstance(value, Exception):
            return error_to_json(value)
        return value.tolist() if hasattr(value, "tolist") else value

    async def _initialize(self, **arguments: Any) -> dict[str, Any]:
        own = {name: arguments.pop(name) for name in _PARAMETERS & arguments.keys()}
        self._system = await bring_up(Request(**own, overrides=arguments), self._fault_points.parts)
        return await self._facts()

    async def _reset(self) -> None:
        """Cancel what runs, leave the job, lift limits: be as one that has just been started."""
        others = [task for task in self._running.values() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others)
        if self._system is not None:
            await self._system.shutdown(raise_on_failure=False)
            self._system = None
        await self._limit_files(None)

    async def _cancel(self, number: int) -> None:
        """Cancel a running command, and wait until it has answered."""
        if (task := self._running.get(number)) is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _cancel_after(self, number: int, seconds: float) -> None:
        """Cancel a running command, at a moment of the test's choosing."""
        await asyncio.sleep(seconds)
        await self._cancel(number)

    async def _reach(self, phases: list[str], done: Sequence[str] = ()) -> str:
        """Wait until this client is in one of `phases`, and those in `done` are over."""
        while (phase := _phase_after(done)) not in phases:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(_POLL_INTERVAL)
        return str(phase)

    async def _block(self, seconds: float) -> None:
        """Keep this process's event loop busy, as a training step does."""
        time.sleep(seconds)  # noqa: ASYNC251 - that is the point

    async def _hold_gil(self, seconds: float) -> None:
        """Hold up all threads of this process, like a native call that keeps the interpreter's lock."""
        fault_points.hold_gil(seconds)

    async def _limit_files(self, spare: int | None) -> None:
        """Leave room for `spare` open files more than there are; `None` lifts that."""
        if self._file_limit is not None:
            self._file_limit.lift()
        self._file_limit = None if spare is None else fault_points.FileLimit(spare)

    async def _signal_at(self, signal: str, phase: str | None = None, send: int | None = None) -> None:
        """Get a signal as soon as this client is in a phase, or before it sends that many frames more over the ring."""
        if phase is not None:
            self._fault_points.signal_at_phase(phase, signal)
        if send is not None:
            self._fault_points.signal_at_send(send, signal)

    async def _resources(self, expected: dict[str, int] | None = None) -> dict[str, int]:
        """Count threads, open files and tasks; waits a while for them to be no more than `expected`.

        gRPC's core gives its last threads and files back in a thread of its own, shortly after it was told to.
        """
        deadline = time.monotonic() + _SETTLE_TIMEOUT
        while True:
            gc.collect()
            found = {
                "threads": len(os.listdir("/proc/self/task")),
                "files": len(os.listdir("/proc/self/fd")),
                "tasks": len(asyncio.all_tasks()),
            }
            is_settled = expected is None or all(found[key] <= expected[key] for key in found)
            if is_settled or time.monotonic() > deadline:
                return found
            await asyncio.sleep(_POLL_INTERVAL)

    async def _memory(self) -> int:
        """Return the kibibytes of memory that this process has in use, what it only keeps for later given back."""
        gc.collect()
        fault_points.trim_memory()
        return fault_points.resident_kib()

    async def _exit(self, status: int = 0) -> None:
        """End the interpreter without a shutdown."""
        asyncio.get_running_loop().call_soon(sys.exit, status)

    async def _get_key(self, key: str, timeout: float | None = None) -> str:
        assert self._system is not None
        return (await self._system.kv.get(key, timeout=timeout)).decode()

    async def _set_key(self, key: str, value: str) -> None:
        assert self._system is not None
        await self._system.kv.set(key, value)

    async def _wait_leaving(self) -> list[int]:
        """Wait until clients begin to leave, and return which."""
        assert self._system is not None
        return list(await self._system.leaving.wait())

    async def _facts(self) -> dict[str, Any]:
        assert self._system is not None
        return self._system.to_json()


def _phase_after(done: Sequence[str]) -> str | None:
    client = ACTIVE.get()
    if client is None or client.peer is None:
        return None
    over = {span.name for span in client.peer.machine.timeline.spans()}
    return client.phase if over.issuperset(done) else None


def _read_commands(loop: asyncio.AbstractEventLoop, commands: asyncio.Queue[dict[str, Any] | None]) -> None:
    for line in sys.stdin:
        loop.call_soon_threadsafe(commands.put_nowait, json.loads(line))
    loop.call_soon_threadsafe(commands.put_nowait, None)


def main() -> None:
    """Run until the input ends."""
    asyncio.run(_Client().run())


if __name__ == "__main__":
    main()
