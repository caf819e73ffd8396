"""A client process on asyncio: its command leads a process group, and its output arrives in whole lines."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal

from .guard import Guard

Stream = Literal["stdout", "stderr"]
OnOutput = Callable[[int, Stream, bytes], Awaitable[None]]
"""Takes a client's id, the stream, and whole lines of it; the client waits, if it writes on, until this returns."""

_CHUNK_BYTES = 64 * 1024
_LINE_BYTES_MAX = 16 * 1024 * 1024
_SILENCE_DEADLINE = 1.0


class ClientProcess:
    """A client from its start until the end of its output.

    Attributes:
        client_id: which client it is.
        pid: its process, and its process group.
    """

    def __init__(self, client_id: int, process: asyncio.subprocess.Process, on_output: OnOutput) -> None:
        self.client_id = client_id
        self.pid = process.pid
        self._process = process
        self._on_output = on_output
        self._pumps: list[asyncio.Task[None]] = []
        self._chunks = 0
        self._printing = 0

    @classmethod
    async def start(
        cls,
        client_id: int,
        command: Sequence[str],
        *,
        environ: Mapping[str, str],
        guard: Guard,
        stdin: int,
        on_output: OnOutput,
        tasks: asyncio.TaskGroup,
        descriptors: Sequence[int] = (),
    ) -> ClientProcess:
        """Start `command`, which inherits `descriptors`, and read its output in tasks of `tasks`.

        Raises:
            OSError: the machine cannot start a process more.
        """
        # Not asyncio's own pipes: with them, some versions of Python report an end only when the output has ended too.
        pipes = {"stdout": os.pipe(), "stderr": os.pipe()}
        try:
            process = await asyncio.create_subprocess_exec(
                *guard.joined(command),
                stdin=stdin,
                stdout=pipes["stdout"][1],
                stderr=pipes["stderr"][1],
                env=environ,
                pass_fds=(guard.pipe, *descriptors),
                start_new_session=True,
            )
        except BaseException:
            for reading, _ in pipes.values():
                os.close(reading)
            raise
        finally:
            for _, writing in pipes.values():
                os.close(writing)
        client = cls(client_id, process, on_output)
        client._pumps = [
            tasks.create_task(client._pump("stdout", pipes["stdout"][0])),
            tasks.create_task(client._pump("stderr", pipes["stderr"][0])),
        ]
        return client

    @property
    def returncode(self) -> int | None:
        """The exit status, minus the signal that ended it, or `None` while it runs."""
        return self._process.returncode

    async def wait(self) -> int:
        """Wait for the process, not for those that it started, and return its `returncode`."""
        return await self._process.wait()

    async def drain(self) -> None:
        """Wait for the end of the output.

        A process that has left the group may hold it open: it has ended as well when nothing came for a second.
        """
        while pending := [pump for pump in self._pumps if not pump.done()]:
            chunks = self._chunks
            await asyncio.wait(pending, timeout=_SILENCE_DEADLINE)
            if self._chunks == chunks and not self._printing:
                self.abandon_output()

    def abandon_output(self) -> None:
        """Read no more of it."""
        for pump in self._pumps:
            pump.cancel()

    async def _pump(self, stream: Stream, pipe: int) -> None:
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(pipe, "rb", buffering=0)
        )
        pending = b""
        try:
            while data := await reader.read(_CHUNK_BYTES):
                self._chunks += 1
                whole, newline, rest = data.rpartition(b"\n")
                if newline:
                    await self._put(stream, pending + whole + newline)
                    pending = b""
                pending += rest
                if len(pending) > _LINE_BYTES_MAX:
                    await self._put(stream, pending + b"\n")
                    pending = b""
        finally:
            transport.close()
        if pending:
            await self._put(stream, pending + b"\n")

    async def _put(self, stream: Stream, lines: bytes) -> None:
        self._printing += 1
        try:
            await self._on_output(self.client_id, stream, lines)
        finally:
            self._printing -= 1
