"""The process of an isolated backend, as its client starts, calls and kills it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from ...processes.endings import describe_end
from .child import BOOTSTRAP, GROUP_SIGNALS, STACK_SIGNAL
from .frames import END, HEADER_BYTES, MalformedPipeFrameError, frame_of, message_of, size_of
from .output import ProcessOutput

# Seconds between two polls of whether it runs: its end closes its pipe, unless a process that it started has a copy.
_TICK = 0.5
# Seconds to end by itself: libraries that release devices at exit take tenths of a second.
_END = 2.0
# Seconds for the first line of its stack, which it writes in milliseconds unless its signals are blocked, and between
# two pieces of it on a busy machine.
_STACK, _STACK_TICK = 1.0, 0.1
# Seconds to die of SIGKILL: the kernel puts it off while a driver is in a call that cannot be interrupted.
_DEATH = 2.0
# Seconds for the rest of its output after its death: processes that it started may go on printing.
_LAST_WORDS = 0.2
_READ_BYTES = 1 << 16
# Bytes of the end of its output in an error: a stack and some lines of a library's log.
_SHOWN_BYTES_MAX = 3000


class ProcessEndedError(Exception):
    """The process ended by itself; the text is its end status."""


class CutShortError(Exception):
    """`interrupt` was called: the process is to be killed; the text is its stack, if known."""


class BackendProcess:
    """A child process that runs one backend. One thread uses it, `interrupt` apart.

    It dies with the thread that made it, and when nobody refers to it any more.

    Raises:
        OSError: the process could not be started.
    """

    def __init__(self) -> None:
        _check_executable()
        # Whatever else there is, as an object of pathlib, Python's imports pass over.
        self._unsent = frame_of({"path": [entry for entry in sys.path if isinstance(entry, str)]})
        with contextlib.ExitStack() as undo, contextlib.ExitStack() as handed_over:
            self._output = ProcessOutput()
            undo.callback(self._output.close)
            handed_over.callback(self._output.hand_over)
            asked, asking = os.pipe()
            handed_over.callback(os.close, asked)
            self._requests = open(asking, "wb", buffering=0)  # noqa: SIM115 - closed by `end`, or with the rest
            undo.callback(self._requests.close)
            self._answers, answering = os.pipe()
            undo.callback(os.close, self._answers)
            handed_over.callback(os.close, answering)
            self._wake_read, self._wake_write = os.pipe()
            undo.callback(os.close, self._wake_read)
            undo.callback(os.close, self._wake_write)
            with _held_back_signals():
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-c", BOOTSTRAP, str(asked), str(answering), str(os.getpid())],
                    stdin=subprocess.DEVNULL,
                    stdout=self._output.descriptor,
                    stderr=self._output.descriptor,
                    pass_fds=(asked, answering),
                )
            close_all = undo.pop_all().close
        os.set_blocking(self._requests.fileno(), False)
        self._discard = weakref.finalize(self, _discard, self._process, close_all, os.getpid())

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def interrupt(self) -> None:
        """Have the running `ask`, or the next one, raise `CutShortError`. Once, from any thread; never blocks.

        Not after `end` or `kill`, which close the pipe that it writes to.
        """
        if self._discard.alive:  # it is not at the exit of the interpreter
            os.write(self._wake_write, b"!")

    def ask(self, message: object) -> dict[str, Any]:
        """Send a message and wait for the answer, without a time-out.

        Raises:
            ProcessEndedError: it ended, and is reaped.
            CutShortError: it was interrupted, and is to be killed.
            MalformedPipeFrameError: what it answered makes no sense.
        """
        out = memoryview(self._unsent + frame_of(message))
        self._unsent = b""
        size = len(out)
        answer = bytearray()
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        poll.register(self._answers, select.POLLIN)
        requests = self._requests.fileno()
        poll.register(requests, select.POLLOUT)
        while len(answer) < _due(answer):
            ready = {descriptor for descriptor, _ in poll.poll(_TICK * 1000)}
            if self._wake_read in ready:
                # As long as it has been asked nothing, it hangs in nothing; it may not even have begun to run.
                raise CutShortError("" if len(out) == size else self._stack())
            if requests in ready:
                out = self._write(requests, out)
                if not out:
                    poll.unregister(requests)
            if self._answers in ready:
                self._read(answer)
            elif self._process.poll() is not None:
                raise self._ended()
        if len(answer) > _due(answer):
            raise MalformedPipeFrameError(f"{bytes(answer[_due(answer) :][:80])!r} follows an answer")
        return message_of(bytes(answer[HEADER_BYTES:]))

    def printed(self) -> str:
        """Return the end of what it printed, its lines joined."""
        text = self._output.last(_SHOWN_BYTES_MAX).decode(errors="replace")
        lines = " | ".join(filter(None, map(str.strip, text.splitlines())))
        return f"...{lines}" if self._output.size > _SHOWN_BYTES_MAX else lines

    def end(self) -> bool:
        """Order the process to end, and kill it if it does not; returns whether it is gone."""
        with contextlib.suppress(OSError):  # it has ended, or reads no more
            self._requests.write(END)
        self._requests.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END)
        return self.kill()

    def kill(self) -> bool:
        """Kill it and forget it; returns whether it is gone, which the kernel may put off."""
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_DEATH)
        self._discard()
        return self._process.returncode is not None

    def _write(self, requests: int, out: memoryview) -> memoryview:
        try:
            return out[os.write(requests, out) :]
        except BlockingIOError:
            return out
        except BrokenPipeError:
            raise self._ended() from None

    def _read(self, answer: bytearray) -> None:
        data = os.read(self._answers, _READ_BYTES)
        if not data:
            raise self._ended()
        answer += data

    def _ended(self) -> ProcessEndedError:
        """Reap it, and say how it ended."""
        try:
            status = self._process.wait(_END)
        except subprocess.TimeoutExpired:
            return ProcessEndedError("closed its pipe")
        self._output.wait_end(_LAST_WORDS)
        if status == 0 and signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
            return ProcessEndedError("ended, how is not known, as the client process ignores SIGCHLD,")
        if status == 0:  # Python's word for it, too, where somebody else has waited for it
            return ProcessEndedError("ended with status 0 (or was waited for by other code of the client process)")
        return ProcessEndedError(describe_end(status))

    def _stack(self) -> str:
        """Have it write its stack, which works even where native code keeps Python from running."""
        mark = self._output.size
        self._process.send_signal(STACK_SIGNAL)
        self._output.wait_beyond(mark, _STACK)
        # It comes in many pieces.
        for _ in range(int(_STACK / _STACK_TICK)):
            if not self._output.wait_beyond(self._output.size, _STACK_TICK):
                break
        return self._output.since(mark, _SHOWN_BYTES_MAX).decode(errors="replace").strip()


def _due(answer: bytearray) -> int:
    """Return how many bytes a whole answer has, as far as is known."""
    return HEADER_BYTES if len(answer) < HEADER_BYTES else HEADER_BYTES + size_of(bytes(answer[:HEADER_BYTES]))


def _check_executable() -> None:
    """Raise `OSError` where `sys.executable` is no interpreter to be started again."""
    if not sys.executable:
        raise FileNotFoundError("the path of the Python interpreter is unknown (sys.executable is empty)")
    if getattr(sys, "frozen", False):
        raise OSError(f"this application is frozen, so that {sys.executable} is no Python interpreter")
    if any(BOOTSTRAP in argument for argument in (*sys.orig_argv, *sys.argv)):
        raise OSError(f"{sys.executable} (sys.executable) is no Python interpreter: it has started this program again")


@contextlib.contextmanager
def _held_back_signals() -> Iterator[None]:
    """Have signals to the group wait in a process that is started meanwhile, until it is ready to outlive them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*GROUP_SIGNALS, STACK_SIGNAL})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _discard(process: subprocess.Popen[bytes], close_all: Callable[[], None], owner: int) -> None:
    # A forked copy of the client has a copy of this, and no business with the process.
    if os.getpid() == owner:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_TICK)
    close_all()
