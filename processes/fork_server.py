"""A server process that imports modules once, and forks Python programs from itself.

An import of numpy, gRPC and bringup takes 0.3 s of processor time; a fork takes some milliseconds. A forked
program is a process as any other: it leads a session, has its own environment, folder, arguments and standard streams,
and ends as an interpreter ends. It differs in the modules that are imported already, and in its parent.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO, Self

from .endings import describe_end, last_lines
from .groups import kill_group
from .json_lines import json_line
from .program import PythonProgram, has_equal_start

REQUEST = struct.Struct("!I")
"""Before each request: how many bytes it has. Its descriptors come with that."""

_START_TIMEOUT = 60.0
"""Seconds that the imports may take; a machine under load takes ten times what it takes alone."""

_FORK_TIMEOUT = 30.0
"""Seconds that a fork may take; far above what it takes, so that a server that hangs is an error and not a hang."""

_END_TIMEOUT = 10.0
_SHOWN_LINES = 4
_ENTRY = "from bringup.processes.fork_main import main; main()"


class ForkServerError(Exception):
    """The server could not be started, or has ended."""


class ForkedProcess:
    """A forked program, with the interface of `subprocess.Popen` as far as a process with another parent allows.

    Attributes:
        pid: its process, and the group that it leads.
        returncode: its exit status, minus the signal that ended it, or `None` while it runs, as far as is known.
        stdin: where to write what it reads.
        stdout: where to read what it writes.
        stderr: where to read what it writes to standard error.
    """

    def __init__(self, pid: int, stdin: int, stdout: int, stderr: int, status: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdin: IO[str] = os.fdopen(stdin, "w", errors="replace")
        self.stdout: IO[str] = os.fdopen(stdout, errors="replace")
        self.stderr: IO[str] = os.fdopen(stderr, errors="replace")
        self._status = status
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Return `returncode`, looked up."""
        return self._look(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its `returncode`.

        Raises:
            subprocess.TimeoutExpired: it runs on after `timeout` seconds.
            ForkServerError: the server has ended before it.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        returncode = self._look(timeout)
        while returncode is None:
            if deadline is not None and time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            returncode = self._look(None if deadline is None else deadline - time.monotonic())
        return returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Send it SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Send it SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """Close what connects it with this process."""
        if self._status >= 0:
            os.close(self._status)
        self._status = -1
        for pipe in (self.stdin, self.stdout, self.stderr):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def _look(self, timeout: float | None) -> int | None:
        """Wait up to `timeout` seconds, without one for ever, and return `returncode`."""
        if self.returncode is None and _is_readable(self._status, timeout):
            with self._lock:
                if self.returncode is None:  # else another thread has seen it
                    self.returncode = self._read_status()
        return self.returncode

    def _read_status(self) -> int:
        if line := _read_line(self._status):
            return int(line)
        raise ForkServerError(f"how process {self.pid} ended is not known: the process that had forked it ended first")


class ForkServer:
    """A server process, from its start until `close`; a context manager. It ends with this process.

    The process groups of its programs are killed at its end, unless they were forgotten. Threads may share it.

    Args:
        modules: what to import; those that cannot be are passed over.

    Raises:
        ForkServerError: it could not be started; so elsewhere than on Linux, and where the modules start threads.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        if not hasattr(os, "pidfd_open") or not sys.executable:
            raise ForkServerError("this is no Linux, or the path of the interpreter is unknown (sys.executable)")
        self._environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _ENTRY, str(theirs.fileno()), *modules],
                # Pipes, as those of the programs will be: Python looks at what its streams are.
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**self._environ, **_NO_THREADS},
                # Elsewhere than in a checkout, whose folders would shadow installed packages.
                cwd=os.path.dirname(sys.executable),
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._control.settimeout(_START_TIMEOUT)
        try:
            self._read_reply()
        except BaseException:
            self.close()
            raise

    def program_of(self, command: Sequence[str], environ: Mapping[str, str]) -> PythonProgram | None:
        """Return the program that the server can fork in place of a command; `None` where it cannot."""
        if os.getpid() != self._owner or not has_equal_start(environ, self._environ):
            return None
        return PythonProgram.of_command(command)

    def start(self, program: PythonProgram, environ: Mapping[str, str], cwd: str | None = None) -> ForkedProcess:
        """Fork a program.

        Args:
            program: what it is.
            environ: all of its environment.
            cwd: the folder that it runs in; `None` for this process's own.

        Raises:
            ForkServerError: the server has ended, or cannot fork.
        """
        request = {"program": program.to_json(), "environ": dict(environ), "cwd": cwd or os.getcwd()}
        with contextlib.ExitStack() as undo, contextlib.ExitStack() as handed_over:
            theirs, ours = list[int](), list[int]()
            for name in ("stdin", "stdout", "stderr", "status"):
                reading, writing = os.pipe()
                mine, its = (writing, reading) if name == "stdin" else (reading, writing)
                handed_over.callback(os.close, its)
                undo.callback(os.close, mine)
                theirs.append(its)
                ours.append(mine)
            with self._lock:
                self._send(request, theirs)
            handed_over.close()
            pid = _read_pid(ours[-1])
            undo.pop_all()
        return ForkedProcess(pid, *ours)

    def forget(self, pid: int) -> None:
        """Take a group that has ended off the list of those that end with the server."""
        with self._lock, contextlib.suppress(ForkServerError):
            self._send({"forget": pid}, ())

    def close(self) -> None:
        """End the server, and what it has forked and was not told to forget."""
        if os.getpid() != self._owner:
            return
        self._control.close()
        try:
            self._process.wait(_END_TIMEOUT)
        except subprocess.TimeoutExpired:
            kill_group(self._process.pid)
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _send(self, request: object, descriptors: Sequence[int]) -> None:
        line = json_line(request)
        try:
            # All of it or, as the header is small, nothing.
            socket.send_fds(self._control, [REQUEST.pack(len(line))], descriptors)
            self._control.sendall(line)
        except OSError as error:
            raise ForkServerError(f"the process that forks clients {self._describe_end()}: {error}") from None

    def _read_reply(self) -> None:
        try:
            reply = self._control.recv(1)
        except OSError as error:
            raise ForkServerError(f"the process that forks clients did not start: {error}") from None
        if not reply:
            raise ForkServerError(f"the process that forks clients {self._describe_end()}")

    def _describe_end(self) -> str:
        try:
            end = describe_end(self._process.wait(_END_TIMEOUT))
        except subprocess.TimeoutExpired:
            return "has closed its connection"
        assert self._process.stdout is not None
        return end + last_lines(self._process.stdout.read(), _SHOWN_LINES)


_NO_THREADS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""A process with threads cannot be forked, and numpy's start with its import."""


def _read_pid(status: int) -> int:
    line = _read_line(status) if _is_readable(status, _FORK_TIMEOUT) else b"the server is silent"
    if not line.startswith(b"+"):
        raise ForkServerError(f"no process could be forked: {line.decode().strip() or 'the server has ended'}")
    return int(line)


def _read_line(pipe: int) -> bytes:
    """Read a line, and no more than that; less at the end."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(pipe, 1)):
        line += byte
    return line


def _is_readable(descriptor: int, timeout: float | None) -> bool:
    if descriptor < 0:
        raise ValueError("the process has been closed")
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if timeout is None else max(0.0, timeout) * 1000))
