"""Output of the runtime's thread (log records, progress line), written by another thread, which may block on a reader.

A terminal that is stopped with Ctrl-S, a pipe without a reader, a log handler that waits for a disk: each blocks its
writer. On the runtime's loop that would stop the heartbeats, and the job would declare this client dead. Records that
are logged there go through a queue to a thread of their own. That thread polls for room before it calls a handler: a
thread that blocks inside a handler holds its lock, and the interpreter waits for that lock when it ends.

Other threads of the process that log by the name of bringup wait for room for a second, and then drop the record.
"""

from __future__ import annotations

import collections
import logging
import os
import select
import sys
import threading
import time
from collections.abc import Iterator

# Of the queue, some megabytes: a job logs a line a second at the most, unless something is wrong in a loop.
_RECORDS_MAX = 10_000

# Seconds for the last records when the client ends, and of other threads for one record: enough for a busy reader, and
# short enough not to be noticed with a stopped one.
_CLOSE_TIMEOUT = 1.0
_ROOM_TIMEOUT_MS = 1000

# Between two polls for room, so that `close` is heard of.
_LOOK_INTERVAL_MS = 100
_PREFIX = "bringup: "
_OTHERS = ("asyncio", "grpc._cython.cygrpc")
"""Other libraries' loggers that are used on the runtime's loop."""


class Output:
    """A queue of output and the thread that writes it; the thread starts with the first item, and is a daemon.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._news = threading.Condition()
        self._records: collections.deque[logging.LogRecord] = collections.deque()
        self._line: bytes | None = None
        self._dropped = 0
        self._deadline: float | None = None
        self._thread: threading.Thread | None = None

    def log(self, record: logging.LogRecord) -> None:
        """Queue a log record. Never blocks; a full queue drops it, and says later how many."""
        with self._news:
            if len(self._records) < _RECORDS_MAX:
                self._records.append(record)
                self._call()
            else:
                self._dropped += 1

    def show(self, line: bytes) -> None:
        """Write bytes to stderr as they are; they replace earlier ones that are still unwritten."""
        with self._news:
            self._line = line
            self._call()

    def close(self, timeout: float = _CLOSE_TIMEOUT) -> None:
        """Write the rest of the queue, for at most `timeout` seconds; then drop it."""
        with self._news:
            self._deadline = time.monotonic() + timeout
            self._news.notify()
            thread = self._thread
        if thread is not None:
            # A little more than its deadline: it ends by itself then, unless a handler blocks it.
            thread.join(timeout + 2 * _LOOK_INTERVAL_MS / 1000)

    def _call(self) -> None:
        self._news.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_all, daemon=True, name=self._name)
            try:
                self._thread.start()
            except RuntimeError:  # there can be no more threads, so there is no output
                self._thread = None

    def _write_all(self) -> None:
        _LOCAL.has_waited = True
        try:
            while (order := self._next()) is not None:
                if isinstance(order, bytes):
                    self._write(order)
                elif self._wait_for_room(_descriptors(order)):
                    logging.getLogger(order.name).handle(order)
        finally:
            with self._news:  # after an exception of a user's filter or handler, the next item starts another thread
                self._thread = None if self._deadline is None else self._thread

    def _next(self) -> logging.LogRecord | bytes | None:
        with self._news:
            while True:
                if self._records:
                    return self._records.popleft()
                if self._dropped:
                    count, self._dropped = self._dropped, 0
                    return _record(f"{count} lines of the log were dropped: nobody took them")
                if self._line is not None:
                    line, self._line = self._line, None
                    return line
                if self._deadline is not None:
                    return None
                self._news.wait()

    def _write(self, line: bytes) -> None:
        descriptor = stderr_descriptor()
        # Not through sys.stderr: a thread that blocks in it holds its lock, and the interpreter aborts at its end then.
        if descriptor is not None and self._wait_for_room([descriptor]):
            try:
                os.write(descriptor, line)
            except OSError:
                return  # a terminal that has gone, or one that somebody has made non-blocking

    def _wait_for_room(self, descriptors: list[int]) -> bool:
        while not _have_room(descriptors, _LOOK_INTERVAL_MS):
            if self._deadline is not None and time.monotonic() >= self._deadline:
                return False
        return True


class _Gate(logging.Filter):
    """A filter that moves records of the runtime's threads into their `Output`, and bounds the wait of other threads.

    Args:
        is_own: the logger is bringup's: where nobody has set up logging, its lines say whose they are.
    """

    def __init__(self, *, is_own: bool) -> None:
        super().__init__()
        self._is_own = is_own

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether to log a record here and now."""
        output = own_output()
        if output is not None:
            output.log(record)
            return False
        if not self._is_own:
            return True
        if not getattr(_LOCAL, "has_waited", False) and not _have_room(_descriptors(record), _ROOM_TIMEOUT_MS):
            return False
        if not logging.getLogger(record.name).hasHandlers():
            record.msg = f"{_PREFIX}{record.msg}"
        return True


_LOCAL = threading.local()


def open_output(thread_name: str) -> Output:
    """Give this thread an `Output` for its log records; close it at the end of the thread."""
    output: Output
    _LOCAL.output = output = Output(f"{thread_name}-output")
    return output


def own_output() -> Output | None:
    """Return the `Output` of this thread, or `None` outside the runtime's threads."""
    return getattr(_LOCAL, "output", None)


def stderr_descriptor() -> int | None:
    """Return the descriptor of `sys.stderr`, or `None` where it has none."""
    return _descriptor(sys.stderr)


def _descriptor(stream: object) -> int | None:
    try:
        number = stream.fileno()  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):  # none, one of somebody's own making, one that is closed
        return None
    return number if isinstance(number, int) and number >= 0 else None


def _descriptors(record: logging.LogRecord) -> list[int]:
    """Return the descriptors that a record will be written to, as far as they are known."""
    streams = [
        handler.stream
        for handler in _handlers(logging.getLogger(record.name))
        if isinstance(handler, logging.StreamHandler) and record.levelno >= handler.level
    ]
    found = (_descriptor(stream) for stream in streams)
    return [descriptor for descriptor in found if descriptor is not None]


def _handlers(logger: logging.Logger) -> Iterator[logging.Handler]:
    if not logger.hasHandlers():
        if logging.lastResort is not None:
            yield logging.lastResort
        return
    current: logging.Logger | None = logger
    while current is not None:
        yield from current.handlers
        current = current.parent if current.propagate else None


def _have_room(descriptors: list[int], timeout_ms: int) -> bool:
    """Whether all can be written to; polls each with the time-out."""
    for descriptor in descriptors:
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        if not poll.poll(timeout_ms):
            return False
    return True


def _record(text: str) -> logging.LogRecord:
    return logging.LogRecord("bringup", logging.WARNING, __file__, 0, text, None, None)


def _install() -> None:
    for name, is_own in (("bringup", True), *((other, False) for other in _OTHERS)):
        logging.getLogger(name).addFilter(_Gate(is_own=is_own))


_install()
