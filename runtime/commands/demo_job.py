"""Runs the demo's job: its clients as processes, released at one instant, and what each of them said."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import BringupError
from ..options import Options
from .client_process import OnOutput, Stream
from .launcher import Launcher
from .outcome import Outcome

__all__ = ["DemoRun", "Said", "run_job"]

_CLIENT = "bringup.runtime.commands.demo_client"

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


@dataclass(slots=True)
class _Gate:
    """The pipe that is the clients' standard input: they wait for its end."""

    reading: int
    writing: int
    released_at: float | None = None
    overdue: str = ""
    all_ready: asyncio.Event = field(default_factory=asyncio.Event)

    def open(self) -> None:
        self.released_at = time.monotonic()
        self.close()

    def close(self) -> None:
        if self.writing >= 0:
            os.close(self.writing)
            self.writing = -1


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
    environ = _DEADLINES | dict(environ)
    options = Options.resolve(None, {}, environ)
    said = tuple(Said() for _ in range(num_clients))
    notices: list[str] = []
    gate = _Gate(*os.pipe())

    async def hear(client_id: int, stream: Stream, lines: bytes) -> None:
        for line in lines.removesuffix(b"\n").split(b"\n"):
            if stream == "stderr" or not _take(said[client_id], line):
                await on_output(client_id, "stderr", line + b"\n")
        if all(one.ready for one in said):
            gate.all_ready.set()
        on_progress(said)

    try:
        launcher = Launcher(
            [sys.executable, "-P", "-m", _CLIENT, device_type],
            num_clients,
            environ,
            on_output=hear,
            say=notices.append,
            patience=_PATIENCE,
            stdin=gate.reading,
            end_signal=signal.SIGTERM,  # SIGINT would have each of them print where it was
        )
        timeout = options.initialization_timeout + options.shutdown_timeout + _USE_DEADLINE
        watch = asyncio.create_task(_watch(launcher, gate, timeout))
        try:
            outcome = await launcher.run()
        finally:
            watch.cancel()
    finally:
        gate.close()
        os.close(gate.reading)
    if gate.overdue:
        raise BringupError(gate.overdue)
    pids = {ended.client_id: ended.pid for ended in outcome.ended}
    return DemoRun(
        outcome=outcome,
        said=said,
        pids=tuple(pids.get(client_id, 0) for client_id in range(num_clients)),
        addresses=launcher.addresses,
        released_at=gate.released_at,
        notices=tuple(notices),
    )


async def _watch(launcher: Launcher, gate: _Gate, timeout: float) -> None:
    """Release the clients when all are ready; end them where that, or what follows, takes too long."""
    step, limit = "import what they need", _IMPORT_DEADLINE
    try:
        async with asyncio.timeout(limit):
            await gate.all_ready.wait()
        gate.open()
        step, limit = "come up, use their job and leave it", timeout
        await asyncio.sleep(limit)
    except TimeoutError:
        pass
    gate.overdue = f"the demo was ended: its clients took longer than {limit:g} s to {step}"
    launcher.stop(signal.SIGTERM)


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
