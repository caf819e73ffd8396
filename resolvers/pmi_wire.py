"""The wire to an MPI launcher, PMI version 1: lines of text on a socket that the launcher left open for its process."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import os
import select
import socket
import stat
import sys
from typing import Self

# Bytes of a line: Hydra allows values of 1 KiB. A stranger at the other end must not fill the memory.
_LINE_MAX = 8192


# Seconds for the launcher to acknowledge the end, which takes microseconds; it may have ended before.
_FINALIZE_TIMEOUT = 2.0


class WireError(Exception):
    """The launcher did not answer as PMI says; the message completes a sentence about it."""


class PMIWire:
    """One exchange with the launcher.

    MPI may use the same wire before or after it: it stays open, and in blocking mode, until the process ends.

    Args:
        descriptor: of the socket, `PMI_FD`.

    Raises:
        WireError: it is no open socket.
    """

    def __init__(self, descriptor: int) -> None:
        try:
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                raise WireError("is no socket: has a program between mpiexec and this one closed it?")
            self._socket = socket.socket(fileno=os.dup(descriptor))
        except OSError as error:
            raise WireError(f"is not open: has a program between mpiexec and this one closed it? ({error})") from None
        self._received = bytearray()
        _finalize_at_exit(descriptor, os.getpid())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    async def begin(self) -> str:
        """Greet the launcher, and return the name of the job's key-value space, which is unique on its hosts."""
        await self._ask("init pmi_version=1 pmi_subversion=1", "response_to_init")
        return (await self._ask("get_my_kvsname", "my_kvsname"))["kvsname"]

    async def exchange(self, space: str, key: str, value: str | None) -> str:
        """Publish `value`, of one process, and return it on all of them; each must call this.

        Args:
            space: the name of the key-value space.
            key: letters and hyphens, 64 at most.
            value: without blanks; `None` where another process publishes it.
        """
        if value is not None:
            await self._ask(f"put kvsname={space} key={key} value={value}", "put_result")
        await self._ask("barrier_in", "barrier_out")
        return (await self._ask(f"get kvsname={space} key={key}", "get_result"))["value"]

    async def _ask(self, command: str, reply: str) -> dict[str, str]:
        try:
            self._socket.sendall(f"cmd={command}\n".encode())  # far less than the buffer of a socket
            line = await self._line()
        except OSError as error:
            raise WireError(f"does not lead to a launcher: {error}") from None
        words = dict(word.partition("=")[::2] for word in line.split())
        if words.get("cmd") != reply or words.get("rc", "0") != "0":
            raise WireError(f"leads to a launcher that answered {command!r} with {line!r:.200}")
        return words

    async def _line(self) -> str:
        while (end := self._received.find(b"\n")) < 0:
            if len(self._received) > _LINE_MAX:
                raise WireError("leads to a launcher that sends no end of a line")
            await self._readable()
            try:
                # The blocking mode belongs to all who hold this socket, and MPI expects it.
                chunk = self._socket.recv(_LINE_MAX, socket.MSG_DONTWAIT)
            except BlockingIOError:
                continue
            if not chunk:
                raise WireError("leads to a launcher that has hung up")
            self._received += chunk
        line = self._received[:end].decode(errors="replace")
        del self._received[: end + 1]
        return line

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(self._socket, _settle, ready)
        try:
            await ready
        finally:
            loop.remove_reader(self._socket)


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


@functools.cache  # once in a process, however often it brings a job up
def _finalize_at_exit(descriptor: int, pid: int) -> None:
    atexit.register(_finalize, descriptor, pid)


def _finalize(descriptor: int, pid: int) -> None:
    """Say goodbye to the launcher: Hydra kills all ranks when one that has used the wire ends without it.

    Not before the end of the process, as MPI could not begin after that.
    """
    mpi = sys.modules.get("mpi4py.MPI")
    if os.getpid() != pid or (mpi is not None and mpi.Is_initialized()):
        return  # a forked child has no place of its own in the job; and MPI says it by itself, later than this
    with contextlib.suppress(OSError, ValueError), socket.socket(fileno=os.dup(descriptor)) as wire:
        wire.sendall(b"cmd=finalize\n")
        if select.select([wire], [], [], _FINALIZE_TIMEOUT)[0]:
            wire.recv(_LINE_MAX, socket.MSG_DONTWAIT)
