"""Merges the clients' output into this process's own, line by line, with the client's id before each line."""

from __future__ import annotations

import asyncio
import os
import queue
import select
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future

import click

from ..processes.child import Stream

CLIENT_COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "bright_cyan", "bright_yellow", "bright_green")
_CLOSE_DEADLINE = 1.0  # seconds; a reader that has stopped must not keep this process from its end


class PrefixedOutput:
    """Writes whole lines in a thread of its own: a slow reader delays the clients, never the event loop.

    Args:
        on_broken: Called on the running loop, once, when an output can no longer be written, with the reason.
        environ: `NO_COLOR` in it switches colours off.
    """

    def __init__(self, on_broken: Callable[[OSError], None], environ: Mapping[str, str]) -> None:
        self._on_broken = on_broken
        self._files = {"stdout": sys.stdout, "stderr": sys.stderr}
        self._coloured = {stream: file.isatty() and not environ.get("NO_COLOR") for stream, file in self._files.items()}
        self._loop = asyncio.get_running_loop()
        self._broken = False
        self._orders: queue.SimpleQueue[tuple[int, bytes, Future[None]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write_all, daemon=True, name="bringup-output")
        self._thread.start()

    async def write(self, client_id: int, stream: Stream, lines: bytes) -> None:
        """Write whole lines of a client; returns when they are written."""
        prefix = self._prefix(client_id, stream)
        await asyncio.wrap_future(
            self._put(stream, b"".join(prefix + line + b"\n" for line in lines.removesuffix(b"\n").split(b"\n")))
        )

    def say(self, text: str) -> None:
        """Write a line of this process to stderr, after all earlier output."""
        self._put("stderr", f"bringup: {text}\n".encode(errors="replace"))

    def close(self) -> None:
        """Write the rest, for a second at most."""
        self._orders.put(None)
        self._thread.join(_CLOSE_DEADLINE)

    def _prefix(self, client_id: int, stream: Stream) -> bytes:
        text = f"[{client_id}]"
        if self._coloured[stream]:
            text = click.style(text, fg=CLIENT_COLOURS[client_id % len(CLIENT_COLOURS)])
        return f"{text} ".encode()

    def _put(self, stream: Stream, data: bytes) -> Future[None]:
        written: Future[None] = Future()
        self._orders.put((self._files[stream].fileno(), data, written))
        return written

    def _write_all(self) -> None:
        while (order := self._orders.get()) is not None:
            descriptor, data, written = order
            try:
                _write(descriptor, data)
            except OSError as error:
                self._report(error)
            written.set_result(None)

    def _report(self, error: OSError) -> None:
        if not self._broken:
            self._broken = True
            self._loop.call_soon_threadsafe(self._on_broken, error)


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:  # another process that shares this terminal or pipe has made it non-blocking
            select.select((), (descriptor,), ())
