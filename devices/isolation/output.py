"""The output of a backend's process: read by a thread, its end kept in a bounded buffer."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import weakref

_READ_BYTES = 1 << 16
# Bytes of the end of the output in memory: more than any error shows.
_KEPT_BYTES_MAX = 1 << 16

# Milliseconds between two full reads: one that prints without end must not cost the client a core.
_THROTTLE = 1

# Seconds to join the thread, which is in a poll or a read that the end of its pipes finishes.
_END = 1.0


class ProcessOutput:
    """A pipe for a process to print into, and a thread that reads it into a bounded buffer.

    Attributes:
        descriptor: the end to print into; for the process, closed here by `hand_over`.

    Raises:
        OSError: there can be no more pipes.
        RuntimeError: there can be no more threads.
    """

    def __init__(self) -> None:
        with contextlib.ExitStack() as undo:
            source, self.descriptor = os.pipe()
            undo.callback(os.close, source)
            undo.callback(os.close, self.descriptor)
            stop, self._stop = os.pipe()
            undo.callback(os.close, stop)
            undo.callback(os.close, self._stop)
            self._buffer = _Buffer()
            self._thread = threading.Thread(
                target=_read, args=(source, stop, self._buffer), name="bringup-backend-output", daemon=True
            )
            self._thread.start()
            undo.pop_all()
        self._is_handed_over = False
        # The thread refers to the buffer alone, so that whoever forgets this ends it.
        self._end = weakref.finalize(self, os.close, self._stop)
        self._end.atexit = False

    @property
    def size(self) -> int:
        """The number of bytes received so far."""
        return self._buffer.size

    def hand_over(self) -> None:
        """Close the write end here: the process has a copy, or was not started."""
        if not self._is_handed_over:
            self._is_handed_over = True
            os.close(self.descriptor)

    def since(self, mark: int, length: int) -> bytes:
        """Return up to `length` of the kept bytes after the first `mark` of all."""
        return self._buffer.since(mark)[:length]

    def last(self, length: int) -> bytes:
        """Return the last `length` bytes."""
        return self._buffer.since(max(0, self.size - length))

    def wait_beyond(self, mark: int, timeout: float) -> bool:
        """Wait `timeout` seconds for more than `mark` bytes in all; returns whether they came."""
        return self._buffer.wait_beyond(mark, timeout)

    def wait_end(self, timeout: float) -> None:
        """Wait `timeout` seconds for the end of the output, when all write ends are closed."""
        self._thread.join(timeout)

    def close(self) -> None:
        """Stop reading and end the thread; the buffer is kept."""
        self.hand_over()
        self._end()
        if self._thread is not threading.current_thread():
            self._thread.join(_END)


class _Buffer:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._kept = bytearray()
        self.size = 0

    def add(self, data: bytes) -> None:
        with self._changed:
            self._kept += data
            del self._kept[:-_KEPT_BYTES_MAX]
            self.size += len(data)
            self._changed.notify_all()

    def since(self, mark: int) -> bytes:
        with self._changed:
            return bytes(self._kept[max(0, len(self._kept) - (self.size - mark)) :])

    def wait_beyond(self, mark: int, timeout: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self.size > mark, timeout)


def _read(source: int, stop: int, buffer: _Buffer) -> None:
    try:
        poll = select.poll()
        poll.register(stop, select.POLLIN)
        pause = select.poll()
        pause.register(stop, select.POLLIN)
        poll.register(source, select.POLLIN)
        while not any(descriptor == stop for descriptor, _ in poll.poll()):
            data = os.read(source, _READ_BYTES)
            if not data:
                break
            buffer.add(data)
            if len(data) == _READ_BYTES and pause.poll(_THROTTLE):
                break
    finally:
        os.close(source)
        os.close(stop)
