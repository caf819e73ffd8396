"""What the runtime prints and logs, from a thread that may wait for its readers while the runtime's own does not.

A terminal that was stopped with Ctrl-S, a pipe that nobody reads, a handler of the user's that waits for a disk: what
writes there waits, too. On the runtime's loop that would stop the heartbeats, and the job would take this client for
dead. So what is logged there is handed to a thread of its own. That thread waits until there is room before it calls a
handler: one that was caught within would hold the handler's lock, for which the interpreter waits at its end.

Other threads of the process that log in the name of bringup wait for room for a second, and then do without.
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

_RECORDS_MAX = 10_000
_CLOSE_TIMEOUT = 1.0
_ROOM_TIMEOUT_MS = 1000
_LOOK_INTERVAL_MS = 100
_PREFIX = "bringup: "
_OTHERS = ("asyncio", "grpc._cython.cygrpc")
"""Loggers of others that are used on the runtime's loop."""


class Output:
    """Writes from a thread of its own, which is there from the first order on, and may be left behind.

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
        """Have a record logged, after those before it. Never waits; with very many before it, it is dropped."""
        with self._news:
            if len(self._records) < _RECORDS_MAX:
                self._records.append(record)
                self._call()
            else:
                self._dropped += 1

    def show(self, line: bytes) -> None:
        """Have bytes written to stderr as they are; what was to be shown before, and was not yet, is forgotten."""
        with self._news:
            self._line = line
            self._call()

    def close(self, timeout: float = _CLOSE_TIMEOUT) -> None:
        """Let what is left be written, for `timeout` seconds; what has found no room then is dropped."""
        with self._news:
            self._deadline = time.monotonic() + timeout
            self._news.notify()
            thread = self._thread
        if thread is not None:
            # A little more than it has: it ends by itself, unless it is caught in a handler.
            thread.join(timeout + 2 * _LOOK_INTERVAL_MS / 1000)

    def _call(self) -> None:
        self._news.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_all, daemon=True, name=self._name)
            try:
                self._thread.start()
            except RuntimeError:  # no more threads can be had: then there is nobody to say it
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
            with self._news:  # a filter or handler of the user's has raised: the next order starts another thread
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
        # Not through sys.stderr: who is caught in there holds its lock, at which the interpreter dies when it ends.
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
    """Sends what the runtime's threads log through their `Output`, and lets nobody wait for long.

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
    """Return what this thread logs through from now on; close it at its end."""
    output: Output
    _LOCAL.output = output = Output(f"{thread_name}-output")
    return output


def own_output() -> Output | None:
    """Return what this thread logs through, or `None` where it is none of the runtime's."""
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
    """Return where a record will be written, as far as can be told."""
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
    """Whether all can be written to; waits for one that cannot."""
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
