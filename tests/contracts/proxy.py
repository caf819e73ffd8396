"""A TCP proxy on loopback whose connections can be broken, as the death of the process at an end breaks them."""

from __future__ import annotations

import asyncio
import socket
import struct
from types import TracebackType
from typing import Self

_CHUNK_BYTES = 64 * 1024


class Proxy:
    """Passes on what comes to `port` to another port of 127.0.0.1; connections are refused while nothing is there.

    Attributes:
        port: see above.
        recordings: of each connection, what the dialling and what the accepting side has said.
    """

    def __init__(self, target_port: int) -> None:
        self.port = 0
        self.recordings: list[tuple[bytearray, bytearray]] = []
        self._target_port = target_port
        self._listening: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._listening = await asyncio.start_server(self._welcome, "127.0.0.1", 0)
        self.port = self._listening.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._listening is not None
        self._listening.close()
        self.break_all()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def break_all(self) -> None:
        """Break all connections with a reset."""
        while self._writers:
            writer = self._writers.pop()
            if writer.transport.is_closing():
                continue
            sock: socket.socket = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.transport.abort()
            self._tasks.discard(task)
            return
        self._writers |= {writer, there_writer}
        said, answered = recording = bytearray(), bytearray()
        self.recordings.append(recording)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass_on(reader, there_writer, said))
                both.create_task(self._pass_on(there_reader, writer, answered))
        finally:
            self._writers -= {writer, there_writer}
            self._tasks.discard(task)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, recording: bytearray) -> None:
        try:
            while data := await reader.read(_CHUNK_BYTES):
                recording += data
                writer.write(data)
                await writer.drain()
        except OSError:
            pass  # broken on purpose, or by one of the ends
        writer.close()
