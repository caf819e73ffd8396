"""One client process of a test: its start, its output, its signals and its end."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import TextIO

from ..processes.endings import describe_end
from ..processes.fork_server import ForkedProcess
from ..processes.groups import is_stopped, kill_group

AnyProcess = subprocess.Popen[str] | ForkedProcess

ANSWER_TIMEOUT = 40.0
"""Seconds that a test waits for a client before it takes it for hung."""

_END_TIMEOUT = 10.0
_LAST_WORDS_TIMEOUT = 5.0
"""Seconds for the threads that read its output to come to the end of that, once it has ended; it may have children that
hold the pipes open for longer."""


_POLL_INTERVAL = 0.002
_SHOWN_CHARACTERS = 20_000


class LocalProcess:
    """A client process, from its start until `close`. It leads a process group.

    Args:
        client_id: which client of its job it is.
        process: the process, whose standard streams are pipes with text.
        forget: called with its process group once that has ended.

    Attributes:
        client_id: which client it is.
        process: the process.
    """

    def __init__(self, client_id: int, process: AnyProcess, forget: Callable[[int], None]) -> None:
        self.client_id = client_id
        self.process = process
        self._forget = forget
        self._written: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self._has_news = threading.Condition()
        self._open = set(self._written)
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._readers = [
            threading.Thread(target=self._read, args=pipe, daemon=True, name=f"client-{client_id}-{pipe[0]}")
            for pipe in (("stdout", self.process.stdout), ("stderr", self.process.stderr))
        ]
        for reader in self._readers:
            reader.start()

    # What it has to say.

    @property
    def output(self) -> str:
        """Its output on stdout so far."""
        return "".join(self._written["stdout"])

    @property
    def log(self) -> str:
        """Its output on stderr so far."""
        return "".join(self._written["stderr"])

    def wait_for(self, text: str, timeout: float = ANSWER_TIMEOUT) -> str:
        """Wait until it has written a line with `text` in it to stdout or stderr, and return that line.

        Raises:
            AssertionError: it did not within `timeout` seconds, or has ended; says what it has written.
        """
        deadline = time.monotonic() + timeout
        with self._has_news:
            while (line := self._find(text)) is None:
                left = deadline - time.monotonic()
                if not self._open:
                    self._settle()
                    raise AssertionError(self._lacks(text, "before its output ended"))
                assert left > 0, self._lacks(text, f"within {timeout:.3g} s")
                self._has_news.wait(left)
        return line

    def wait(self, timeout: float = ANSWER_TIMEOUT) -> int:
        """Wait for the process to end by itself; returns its exit status, minus the signal where one ended it.

        Raises:
            AssertionError: it did not within `timeout` seconds; says what it has written.
        """
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"client {self.client_id} did not end within {timeout:.3g} s; {self.describe()}"
            ) from None
        # What it started may hold the pipes open for longer.
        for reader in self._readers:
            reader.join(_LAST_WORDS_TIMEOUT)
        return status

    def wait_stopped(self, timeout: float = ANSWER_TIMEOUT) -> None:
        """Wait until it is stopped, as by a SIGSTOP that it sends to itself. Only on Linux.

        Raises:
            AssertionError: it is not within `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while not is_stopped(self.process.pid):  # of a process that is not one's child nothing tells
            assert time.monotonic() < deadline, f"client {self.client_id} did not stop; {self.describe()}"
            time.sleep(_POLL_INTERVAL)

    def describe(self) -> str:
        """Return its state and its output, for a failed assertion."""
        status = self.process.poll()
        state = "it runs" if status is None else f"it {describe_end(status)}"
        written = [f"its {name}:\n{text}" for name, text in (("stdout", self.output), ("stderr", self.log)) if text]
        return "; ".join([state, *(text[-_SHOWN_CHARACTERS:] for text in written)])

    # What is done to it.

    def kill(self) -> None:
        """Kill it (SIGKILL) and wait for its end."""
        self.process.kill()
        self.process.wait(_END_TIMEOUT)

    def stop(self) -> None:
        """Stop it (SIGSTOP)."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue it after `stop` (SIGCONT)."""
        self.process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        """Ask it to end as a scheduler does (SIGTERM)."""
        self.process.terminate()

    def interrupt(self) -> None:
        """Press Ctrl-C (SIGINT)."""
        self.process.send_signal(signal.SIGINT)

    def close(self) -> None:
        """Kill it, with its process group."""
        kill_group(self.process.pid)
        self.process.wait(_END_TIMEOUT)
        self._forget(self.process.pid)
        for reader in self._readers:
            reader.join(_END_TIMEOUT)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        if isinstance(self.process, ForkedProcess):
            self.process.close()

    # For those who read its output in their own way.

    def _take(self, stream: str, line: str) -> None:
        """Note a line; called in the stream's own thread."""
        self._written[stream].append(line)

    def _end(self, stream: str) -> None:
        """Note the end of a stream; called in its own thread."""

    def _read(self, stream: str, pipe: TextIO) -> None:
        for line in pipe:
            self._take(stream, line)
            with self._has_news:
                self._has_news.notify_all()
        self._end(stream)
        with self._has_news:
            self._open.discard(stream)
            self._has_news.notify_all()

    def _settle(self) -> None:
        """Wait for the status of a process whose output has ended, unless it goes on without output."""
        try:
            self.process.wait(_LAST_WORDS_TIMEOUT)
        except subprocess.TimeoutExpired:
            return

    def _find(self, text: str) -> str | None:
        lines = (line for written in self._written.values() for line in written)
        return next((line.rstrip("\n") for line in lines if text in line), None)

    def _lacks(self, text: str, when: str) -> str:
        return f"client {self.client_id} did not write {text!r} {when}; {self.describe()}"
