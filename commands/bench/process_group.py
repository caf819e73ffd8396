"""The clients of one trial as processes: their start, the gates that hold them, their messages, and their end.

They are forked from a process with one thread that has imported the measured library (`host.py`), or are fresh
interpreters. Every client reports when it is ready and waits at a gate, a pipe whose other end is closed: one system
call wakes them all. The times in their messages compare with each other: CLOCK_MONOTONIC is one clock for all processes
of a machine.
"""

from __future__ import annotations

import itertools
import os
import selectors
import signal
import tempfile
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Self

from ...processes.endings import describe_end, last_lines
from ...processes.json_lines import JsonLines
from .worker import HostPipe, execute, work

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from types import TracebackType

    from .worker import Assignment

_LAST_LINES = 4
_READ_BYTES = 65536
_ENDED = "ended"


class RunFailed(Exception):
    """Ends a trial; its text is the outcome's failure."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a client's process.

    Attributes:
        at: When it was seen, monotonic.
        how: `ended with status 1`, `was killed by SIGABRT`.
        output: The last lines of its output, as a clause of a message.
    """

    at: float
    how: str
    output: str


class ProcessGroup:
    """The processes of one trial, from their start to their end; a context manager that leaves none behind.

    Args:
        program: `module:attribute` of the clients' `Program`.
        assignments: The clients, in the order in which their processes are started.
        early: The clients with a gate of their own, which opens first.
        fresh: The clients that are fresh interpreters; the others are forked from this process, which must have one
            thread.
        lifeline: A descriptor that can be read once nobody waits for the trial any more, which ends it.
    """

    def __init__(
        self,
        program: str,
        assignments: Sequence[Assignment],
        *,
        early: Collection[int] = (),
        fresh: Collection[int] = (),
        lifeline: int | None = None,
    ) -> None:
        self._program, self._assignments, self._early, self._fresh = program, assignments, early, fresh
        self._pids: dict[int, int] = {}
        self._output: dict[int, IO[bytes]] = {}
        self._lines: dict[int, JsonLines] = {}
        self._inboxes: dict[int, deque[Sequence[Any]]] = {}
        self._unheard: set[int] = set()  # the clients whose inbox may have a message: a look into all takes n^2 looks
        self._selector = selectors.DefaultSelector()
        self._lifeline = lifeline
        if lifeline is not None:
            self._selector.register(lifeline, selectors.EVENT_READ)
        self._early_gate, self._late_gate, self._leave_gate = os.pipe(), os.pipe(), os.pipe()
        self._writers = {self._early_gate[1], self._late_gate[1], self._leave_gate[1]}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for pid in self._pids.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in self._pids.values():  # one by one, the last of many would have seen the others die
            os.waitpid(pid, 0)
        for file in self._output.values():
            file.close()
        for key in list(self._selector.get_map().values()):
            if key.fd != self._lifeline:
                os.close(key.fd)
        self._selector.close()
        for descriptor in {self._early_gate[0], self._late_gate[0], self._leave_gate[0], *self._writers}:
            os.close(descriptor)

    def start(self) -> None:
        """Start all processes."""
        for assignment in self._assignments:
            client_id = assignment.client_id
            reading, writing = os.pipe()
            self._output[client_id] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the group
            pid = os.fork()
            if pid == 0:
                self._become_client(assignment, writing)
            self._pids[client_id] = pid
            self._lines[client_id], self._inboxes[client_id] = JsonLines(), deque()
            os.close(writing)
            self._selector.register(reading, selectors.EVENT_READ, client_id)

    def hear(
        self, kind: str, timeout: float, of: Iterable[int] | None = None, *, or_end: bool = False
    ) -> dict[int, Any]:
        """Wait for the next message of each client, which must be of one kind.

        Args:
            kind: Of the message.
            timeout: Seconds.
            of: The ids of the clients; `None` for all.
            or_end: Take the end of a process for its message, with an `Ended` as the value.

        Returns:
            The messages' values by client id.

        Raises:
            RunFailed: a client was silent for `timeout`, sent another message, or ended.
        """
        deadline = time.monotonic() + timeout
        missing = {assignment.client_id for assignment in self._assignments} if of is None else set(of)
        values: dict[int, Any] = {}
        while True:
            for client_id in sorted(missing & self._unheard):
                values[client_id] = self._take(client_id, kind, or_end)
                missing.remove(client_id)
            if not missing:
                return values
            if not self.listen(deadline - time.monotonic()):
                ids = ", ".join(str(client_id) for client_id in sorted(missing))
                raise RunFailed(f"after {timeout:g} s {kind!r} had not been heard of client {ids}")

    def listen(self, timeout: float) -> bool:
        """Read the next messages; returns whether one came within `timeout` seconds.

        Raises:
            RunFailed: nobody waits for the trial any more.
        """
        events = self._selector.select(max(0.0, timeout))
        for key, _ in events:
            if key.fd == self._lifeline:
                raise RunFailed("the command that asked for the trial has ended")
            self._read(key.fd, key.data)
        return bool(events)

    def stay_silent(self, seconds: float) -> bool:
        """Return whether no client says anything for so long, nor has said anything that was not heard yet."""
        return not self._unheard and not self.listen(seconds)

    def release(self, offset: float = 0.0) -> float:
        """Open the start gates, the early one `offset` seconds before the other; returns the time of the last."""
        if self._early:
            self._open(self._early_gate[1])
            time.sleep(offset)
        now = time.monotonic()
        self._open(self._late_gate[1])
        return now

    def dismiss(self) -> None:
        """Open the last gate, which is the order to leave."""
        self._open(self._leave_gate[1])

    def signal(self, client_id: int, number: int) -> float:
        """Send a client a signal; returns the time of the moment before."""
        now = time.monotonic()
        os.kill(self._pids[client_id], number)
        return now

    def measure(self, what: Callable[[int], float | None]) -> dict[int, float]:
        """A figure of each process by client id; those that have ended are left out.

        Args:
            what: Takes a process id; see `usage`.
        """
        figures = ((client_id, what(pid)) for client_id, pid in self._pids.items())
        return {client_id: figure for client_id, figure in figures if figure is not None}

    def _open(self, writer: int) -> None:
        self._writers.remove(writer)
        os.close(writer)

    def _read(self, descriptor: int, client_id: int) -> None:
        data, inbox = os.read(descriptor, _READ_BYTES), self._inboxes[client_id]
        if data:
            inbox.extend(self._lines[client_id].feed(data))
        else:
            inbox.append((_ENDED, time.monotonic()))
            self._selector.unregister(descriptor)
            os.close(descriptor)
        if inbox:
            self._unheard.add(client_id)

    def _take(self, client_id: int, kind: str, or_end: bool) -> Any:
        inbox = self._inboxes[client_id]
        said, value = inbox.popleft()
        if not inbox:
            self._unheard.remove(client_id)
        if said == kind:
            return value
        if said != _ENDED:
            raise RunFailed(f"client {client_id} {said}: {value}")
        ended = self._reap(client_id, value)
        if or_end:
            return ended
        raise RunFailed(f"client {client_id} {ended.how}{ended.output} before it said {kind!r}")

    def _reap(self, client_id: int, at: float) -> Ended:
        _, status = os.waitpid(self._pids.pop(client_id), 0)
        output = self._output[client_id]
        output.seek(0)
        return Ended(at, describe_end(os.waitstatus_to_exitcode(status)), last_lines(output.read(), _LAST_LINES))

    def _become_client(self, assignment: Assignment, messages: int) -> None:
        try:
            gate = self._early_gate[0] if assignment.client_id in self._early else self._late_gate[0]
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(self._output[assignment.client_id].fileno(), 1)
            os.dup2(1, 2)
            pipes = (messages, gate, self._leave_gate[0])
            _close_others({0, 1, 2, *pipes})
            if assignment.client_id in self._fresh:
                execute(self._program, assignment, pipes)
            else:
                work(self._program, assignment, HostPipe(*pipes))
        finally:
            os._exit(1)


def _close_others(kept: Collection[int]) -> None:
    """Close what a forked client has of its host: the gates' writers, and two descriptors for each earlier client."""
    for low, high in itertools.pairwise([*sorted(kept), os.sysconf("SC_OPEN_MAX")]):
        os.closerange(low + 1, high)
