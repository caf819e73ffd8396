"""The process of an isolated backend, seen from the client: started, asked, killed, and what it said last."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable
from typing import Any

from .child import BOOTSTRAP
from .frames import HEADER_BYTES, MalformedFrameError, frame_of, message_of, size_of

__all__ = ["BackendProcess", "CutShortError", "ProcessEndedError"]

# Seconds between two looks at whether it still runs, where its end does not close its pipe.
_TICK = 0.5
# Seconds that it may take to end by itself, to write its stack where it hangs, and to die.
_END, _STACK, _STACK_TICK, _DEATH = 2.0, 1.0, 0.02, 2.0
_READ_BYTES = 1 << 16
# Of what it and its libraries print: how much is stored, and how much of the end is shown.
_STORED_BYTES_MAX, _SHOWN_BYTES_MAX = 1 << 20, 3000


class ProcessEndedError(Exception):
    """The process ended by itself; the text says how."""


class CutShortError(Exception):
    """`interrupt` was called: the process was killed; the text is the stack that it was killed in, if it said one."""


class BackendProcess:
    """A child process that runs one backend. One thread uses it, `interrupt` apart.

    It dies with the thread that made it, and when nobody refers to it any more.

    Raises:
        OSError: the process could not be started.
    """

    def __init__(self) -> None:
        if not sys.executable:
            raise FileNotFoundError("the path of the Python interpreter is unknown (sys.executable is empty)")
        with contextlib.ExitStack() as undo:
            self._printed = _make_store()
            undo.callback(os.close, self._printed)
            self._wake_read, self._wake_write = os.pipe()
            undo.callback(os.close, self._wake_read)
            undo.callback(os.close, self._wake_write)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", BOOTSTRAP, json.dumps(sys.path), str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._printed,
                bufsize=0,
            )
            close_all = undo.pop_all().close
        # Guards the descriptor that `interrupt` writes to.
        self._lock = threading.Lock()
        self._is_interrupted = False
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._stdin, False)
        self._discard = weakref.finalize(self, _discard, self._process, close_all, os.getpid())

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def interrupt(self) -> None:
        """Have the running `ask`, or the next one, kill it and raise. Called on any thread, never blocks."""
        with self._lock:
            if not self._is_interrupted and self._discard.alive:
                self._is_interrupted = True
                os.write(self._wake_write, b"!")

    def ask(self, message: object) -> dict[str, Any]:
        """Send a message and return the answer, however long that takes.

        Raises:
            ProcessEndedError: it ended, and is reaped.
            CutShortError: it was interrupted, and is killed.
            MalformedFrameError: what it answered makes no sense.
        """
        out = memoryview(frame_of(message))
        answer = bytearray()
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        poll.register(self._stdout, select.POLLIN)
        poll.register(self._stdin, select.POLLOUT)
        while len(answer) < _due(answer):
            ready = {descriptor for descriptor, _ in poll.poll(_TICK * 1000)}
            if self._wake_read in ready:
                raise CutShortError(self._kill_with_stack())
            if self._stdin in ready:
                out = self._write(out)
                if not out:
                    poll.unregister(self._stdin)
            if self._stdout in ready:
                self._read(answer)
            elif self._process.poll() is not None:
                raise self._ended()
            self._bound_store()
        if len(answer) > _due(answer):
            raise MalformedFrameError(f"{bytes(answer[_due(answer) :][:80])!r} follows an answer")
        return message_of(bytes(answer[HEADER_BYTES:]))

    def printed(self) -> str:
        """Return the end of what it printed, its lines joined."""
        first = max(0, os.fstat(self._printed).st_size - _SHOWN_BYTES_MAX)
        text = os.pread(self._printed, _SHOWN_BYTES_MAX, first).decode(errors="replace")
        lines = " | ".join(filter(None, map(str.strip, text.splitlines())))
        return f"...{lines}" if first else lines

    def end(self) -> bool:
        """Let it end by itself, and else kill it; returns whether it is gone."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END)
        return self.kill()

    def kill(self) -> bool:
        """Kill it and forget it; returns whether it is gone, which the kernel may put off."""
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_DEATH)
        with self._lock:
            self._discard()
        return self._process.returncode is not None

    def _write(self, out: memoryview) -> memoryview:
        try:
            return out[os.write(self._stdin, out) :]
        except BlockingIOError:
            return out
        except BrokenPipeError:
            raise self._ended() from None

    def _read(self, answer: bytearray) -> None:
        data = os.read(self._stdout, _READ_BYTES)
        if not data:
            raise self._ended()
        answer += data

    def _ended(self) -> ProcessEndedError:
        """Reap it, and say how it ended."""
        try:
            status = self._process.wait(_END)
        except subprocess.TimeoutExpired:
            return ProcessEndedError("closed its pipe")
        if status >= 0:
            return ProcessEndedError(f"ended with status {status}")
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        return ProcessEndedError(f"was killed by {name}")

    def _kill_with_stack(self) -> str:
        """Have it write its stack, which works even where native code keeps Python from running, and kill it."""
        before = os.fstat(self._printed).st_size
        self._process.send_signal(signal.SIGUSR1)
        sizes = [before]
        while len(sizes) < _STACK / _STACK_TICK and (sizes[-1] == before or sizes[-1] != sizes[-2]):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STACK_TICK)
            sizes.append(os.fstat(self._printed).st_size)
        return os.pread(self._printed, _SHOWN_BYTES_MAX, before).decode(errors="replace").strip()

    def _bound_store(self) -> None:
        if os.fstat(self._printed).st_size > _STORED_BYTES_MAX:
            os.ftruncate(self._printed, 0)


def _due(answer: bytearray) -> int:
    """Return how many bytes a whole answer has, as far as is known."""
    return HEADER_BYTES if len(answer) < HEADER_BYTES else HEADER_BYTES + size_of(bytes(answer[:HEADER_BYTES]))


def _make_store() -> int:
    """Return a file without a name, to whose end everybody writes."""
    if sys.platform == "linux":
        store = os.memfd_create("bringup-backend")
    else:
        with tempfile.TemporaryFile() as file:
            store = os.dup(file.fileno())
    fcntl.fcntl(store, fcntl.F_SETFL, fcntl.fcntl(store, fcntl.F_GETFL) | os.O_APPEND)
    return store


def _discard(process: subprocess.Popen[bytes], close_all: Callable[[], None], owner: int) -> None:
    # A forked copy of the client has a copy of this, and no business with the process.
    if os.getpid() == owner:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_TICK)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    close_all()
