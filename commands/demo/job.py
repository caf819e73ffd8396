"""Runs the demo's job: its clients as processes, released at one instant, and what each of them said."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import BringupError
from ...processes.child import OnOutput, Stream
from ...runtime.configuration.options import Options
from ..launcher import Launcher
from ..outcome import Outcome

_CLIENT = "bringup.commands.demo.client"

# A demo that hangs is to say so while one still looks at it; who sets the variables wants something else.
_DEADLINES = {"BRINGUP_INITIALIZATION_TIMEOUT": "60", "BRINGUP_DEVICE_TIMEOUT": "30"}
_IMPORT_DEADLINE = 120.0
_USE_DEADLINE = 60.0

# Seconds that the other clients have to say what they know of a failure, which they learn of at once.
_PATIENCE = 2.0


@dataclass(slots=True)
class Said:
    """What one client has said so far; `None` for what it has not.

    Attributes:
        ready: it has imported all, and waits to be released.
        up_at: when its `initialize()` returned, monotonic.
        report: what it holds.
        left: it has shut down in order.
        failure: its error.
    """

    ready: bool = False
    up_at: float | None = None
    report: dict[str, Any] | None = None
    left: bool = False
    failure: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class DemoRun:
    """A run that has ended.

    Attributes:
        outcome: how the processes ended.
        said: what the clients said, in client order.
        pids: their processes, in client order.
        addresses: their addresses, in client order.
        released_at: when all were let go at once, monotonic; `None` where it did not come to that.
        notices: what the launcher had to say of failures.
    """

    outcome: Outcome
    said: tuple[Said, ...]
    pids: tuple[int, ...]
    addresses: tuple[str, ...]
    released_at: float | None
    notices: tuple[str, ...]


async def run_job(
    num_clients: int,
    device_type: str,
    environ: Mapping[str, str],
    *,
    on_output: OnOutput,
    on_progress: Callable[[tuple[Said, ...]], None],
) -> DemoRun:
    """Run a job of `num_clients` clients on this machine.

    Args:
        num_clients: how many.
        device_type: what they initialize.
        environ: the environment that theirs are made from.
        on_output: gets what else the clients write.
        on_progress: called whenever a client has said something.

    Raises:
        BringupError: the clients could not be started, or did not end in time.
        ConfigurationError: an option in the environment is wrong.
    """
    job = _DemoJob(num_clients, device_type, _DEADLINES | dict(environ), on_output, on_progress)
    try:
        return await job.run()
    finally:
        job.close()


class _DemoJob:
    """One run. The clients' standard input is a pipe, whose end releases them all at once."""

    def __init__(
        self,
        num_clients: int,
        device_type: str,
        environ: Mapping[str, str],
        on_output: OnOutput,
        on_progress: Callable[[tuple[Said, ...]], None],
    ) -> None:
        options = Options.resolve(None, {}, environ)
        self._timeout = options.initialization_timeout + options.shutdown_timeout + _USE_DEADLINE
        self._said = tuple(Said() for _ in range(num_clients))
        self._notices: list[str] = []
        self._on_output = on_output
        self._on_progress = on_progress
        self._all_ready = asyncio.Event()
        self._released_at: float | None = None
        self._overdue = ""
        self._reading, self._writing = os.pipe()
        self._launcher = Launcher(
            [sys.executable, "-P", "-m", _CLIENT, device_type],
            num_clients,
            environ,
            on_output=self._hear,
            say=self._notices.append,
            patience=_PATIENCE,
            stdin=self._reading,
            end_signal=signal.SIGTERM,  # SIGINT would have each of them print where it was
        )

    async def run(self) -> DemoRun:
        watch = asyncio.create_task(self._watch())
        try:
            outcome = await self._launcher.run()
        finally:
            watch.cancel()
        if self._overdue:
            raise BringupError(self._overdue)
        pids = {ended.client_id: ended.pid for ended in outcome.ended}
        return DemoRun(
            outcome=outcome,
            said=self._said,
            pids=tuple(pids.get(client_id, 0) for client_id in range(len(self._said))),
            addresses=self._launcher.addresses,
            released_at=self._released_at,
            notices=tuple(self._notices),
        )

    def close(self) -> None:
        os.close(self._reading)
        self._end_input()

    async def _watch(self) -> None:
        """Release the clients when all are ready; end them where that, or what follows, takes too long."""
        step, limit = "import what they need", _IMPORT_DEADLINE
        try:
            async with asyncio.timeout(limit):
                await self._all_ready.wait()
            self._released_at = time.monotonic()
            self._end_input()
            step, limit = "come up, use their job and leave it", self._timeout
            await asyncio.sleep(limit)
        except TimeoutError:
            pass
        self._overdue = f"the demo was ended: its clients took longer than {limit:g} s to {step}"
        self._launcher.stop(signal.SIGTERM)

    async def _hear(self, client_id: int, stream: Stream, lines: bytes) -> None:
        for line in lines.removesuffix(b"\n").split(b"\n"):
            if stream == "stderr" or not _take(self._said[client_id], line):
                await self._on_output(client_id, "stderr", line + b"\n")
        if all(one.ready for one in self._said):
            self._all_ready.set()
        self._on_progress(self._said)

    def _end_input(self) -> None:
        if self._writing >= 0:
            os.close(self._writing)
            self._writing = -1


def _take(said: Said, line: bytes) -> bool:
    """Note what a client says; returns whether the line is one of its messages."""
    try:
        message = json.loads(line)
        event = message.pop("event")
    except (ValueError, TypeError, AttributeError, KeyError):
        return False
    match event:
        case "ready":
            said.ready = True
        case "up":
            said.up_at = message["at"]
        case "report":
            said.report = message
        case "left":
            said.left = True
        case "failed":
            said.failure = message
        case _:
            return False
    return True
