"""Runs the demo's job: starts its clients as processes, releases them together, and collects their reports."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Self

from ...errors import BringupError
from ...processes.child import OnOutput, Stream
from ...runtime.configuration.options import Options
from ..launcher import Launcher
from ..outcome import Outcome

_CLIENT = "bringup.commands.demo.client"

_EVENTS = ("ready", "up", "report", "left", "failed")

# A demo that hangs is to say so while one still looks at it; who sets the variables wants something else.
_DEADLINES = {"BRINGUP_INITIALIZATION_TIMEOUT": "60", "BRINGUP_DEVICE_TIMEOUT": "30"}
_IMPORT_DEADLINE = 120.0
_USE_DEADLINE = 60.0

# Seconds that the other clients have to say what they know of a failure, which they learn of at once.
_PATIENCE = 2.0


class DemoJob:
    """One run: its clients as processes, released together, and their reports; a context manager.

    The clients' standard input is a pipe, whose end releases all of them at once.

    Args:
        num_clients: how many.
        device_type: what they initialize.
        environ: the environment that theirs are made from.
        on_output: gets what else the clients write.
        on_progress: called whenever a client has said something.

    Attributes:
        said: of each client its messages by their kinds: `ready`, `up`, `report`, `left`, `failed`; see `client`.
        notices: what the launcher has to say of failures.
        pids: the clients' processes, once they have ended; 0 for one that was not started.
        addresses: the clients' addresses.
        released_at: when all were released, monotonic; `None` before.

    Raises:
        ConfigurationError: an option in the environment is wrong.
    """

    def __init__(
        self,
        num_clients: int,
        device_type: str,
        environ: Mapping[str, str],
        *,
        on_output: OnOutput,
        on_progress: Callable[[DemoJob], None],
    ) -> None:
        environ = _DEADLINES | dict(environ)
        options = Options.resolve(None, {}, environ)
        self._timeout = options.initialization_timeout + options.shutdown_timeout + _USE_DEADLINE
        self.said: tuple[dict[str, dict[str, Any]], ...] = tuple({} for _ in range(num_clients))
        self.notices: list[str] = []
        self.pids = [0] * num_clients
        self.released_at: float | None = None
        self._on_output = on_output
        self._on_progress = on_progress
        self._all_ready = asyncio.Event()
        self._overdue = ""
        self._reading, self._writing = os.pipe()
        self._launcher = Launcher(
            [sys.executable, "-P", "-m", _CLIENT, device_type],
            num_clients,
            environ,
            on_output=self._hear,
            say=self.notices.append,
            patience=_PATIENCE,
            stdin=self._reading,
            end_signal=signal.SIGTERM,  # SIGINT would have each of them print where it was
        )
        self.addresses = self._launcher.addresses

    async def run(self) -> Outcome:
        """Run it to its end.

        Raises:
            BringupError: the clients could not be started, or did not end in time.
        """
        watch = asyncio.create_task(self._watch())
        try:
            outcome = await self._launcher.run()
        finally:
            watch.cancel()
        if self._overdue:
            raise BringupError(self._overdue)
        for ended in outcome.ended:
            self.pids[ended.client_id] = ended.pid
        return outcome

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self._reading)
        self._end_input()

    async def _watch(self) -> None:
        """Release the clients when all are ready; end them where that, or what follows, takes too long."""
        step, limit = "import what they need", _IMPORT_DEADLINE
        try:
            async with asyncio.timeout(limit):
                await self._all_ready.wait()
            self.released_at = time.monotonic()
            self._end_input()
            step, limit = "come up, use their job and leave it", self._timeout
            await asyncio.sleep(limit)
        except TimeoutError:
            pass
        self._overdue = f"the demo was ended: its clients took longer than {limit:g} s to {step}"
        self._launcher.stop(signal.SIGTERM)

    async def _hear(self, client_id: int, stream: Stream, lines: bytes) -> None:
        for line in lines.removesuffix(b"\n").split(b"\n"):
            message = _message_of(line) if stream == "stdout" else None
            if message is None:
                await self._on_output(client_id, "stderr", line + b"\n")
            else:
                self.said[client_id][message.pop("event")] = message
        if all("ready" in one for one in self.said):
            self._all_ready.set()
        self._on_progress(self)

    def _end_input(self) -> None:
        if self._writing >= 0:
            os.close(self._writing)
            self._writing = -1


def _message_of(line: bytes) -> dict[str, Any] | None:
    """Return a client's message, or `None` for what else it, or a library, prints."""
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) and message.get("event") in _EVENTS else None
