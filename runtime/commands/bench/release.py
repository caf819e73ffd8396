"""The harness: start the clients of one run as processes, release them at one instant, time the last to come up.

The clients are forked from a process with one thread that has imported the measured library (`host.py`), or are fresh
interpreters. Every client says when it is ready, waits at a gate (a pipe whose other end is closed: one system call
wakes them all), and sends back the time at which its call returned: CLOCK_MONOTONIC is one clock for all processes of a
machine, so that the stamps compare.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Self

from .station import LAST_MESSAGE, LONGEST_MESSAGE, LOOPBACK, Place, Station, attend, execute

if TYPE_CHECKING:
    from types import TracebackType

READY_TIMEOUT = 600.0
_LAST_LINES = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """One run: the ports, the order in which the processes start, and who is released early.

    Attributes:
        ports: A free loopback port per client, in client order.
        order: The client ids in the order in which their processes are started.
        early: The client ids that are released `offset` before the others; the time counts from the others' release.
        offset: Seconds between the two releases.
        timeout: Seconds from the release until all must have returned, and again for all to have left.
    """

    ports: tuple[int, ...]
    order: tuple[int, ...]
    early: tuple[int, ...] = ()
    offset: float = 0.0
    timeout: float = 60.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run gave: `seconds` from the release until the last client had returned, or why it failed."""

    seconds: float | None
    failure: str | None = None


def free_ports(count: int) -> tuple[int, ...]:
    """Pick ports of the loopback interface that nobody holds at this moment."""
    with ExitStack() as sockets:
        held = [sockets.enter_context(socket.socket()) for _ in range(count)]
        for one in held:
            one.bind((LOOPBACK, 0))
        return tuple(one.getsockname()[1] for one in held)


class _RunFailed(Exception):
    """Ends a run; the text is the outcome's failure."""


class _Clients:
    """The processes of one run, from their start to their end."""

    def __init__(self, library: str, plan: Plan, fork: bool) -> None:
        self._library, self._plan, self._fork = library, plan, fork
        self._pids: dict[int, int] = {}
        self._output: dict[int, IO[bytes]] = {}
        self._selector = selectors.DefaultSelector()
        self._early, self._late, self._leave = os.pipe(), os.pipe(), os.pipe()
        self._writers = {self._early[1], self._late[1], self._leave[1]}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for pid in self._pids.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        for file in self._output.values():
            file.close()
        for key in list(self._selector.get_map().values()):
            os.close(key.fd)
        self._selector.close()
        for descriptor in {self._early[0], self._late[0], self._leave[0], *self._writers}:
            os.close(descriptor)

    def start(self) -> None:
        """Start all processes in the plan's order."""
        for client_id in self._plan.order:
            reading, writing = os.pipe()
            self._output[client_id] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the run
            pid = os.fork()
            if pid == 0:
                self._become_client(client_id, writing)
            self._pids[client_id] = pid
            os.close(writing)
            self._selector.register(reading, selectors.EVENT_READ, client_id)

    def hear(self, kind: str, timeout: float) -> list[Any]:
        """Wait for one message of a kind from every client; the values come in the order of arrival."""
        deadline = time.monotonic() + timeout
        missing = set(self._plan.order)
        values = []
        while missing:
            events = self._selector.select(max(0.0, deadline - time.monotonic()))
            if not events and time.monotonic() >= deadline:
                ids = ", ".join(str(client_id) for client_id in sorted(missing))
                raise _RunFailed(f"after {timeout:g} s {kind!r} had not been heard of client {ids}")
            for key, _ in events:
                values.append(self._message(key.fd, key.data, kind))
                missing.discard(key.data)
                if kind == LAST_MESSAGE:
                    self._selector.unregister(key.fd)
                    os.close(key.fd)
        return values

    def release(self) -> float:
        """Open the gates; the time is the last one's."""
        if self._plan.early:
            self._close(self._early[1])
            time.sleep(self._plan.offset)
        now = time.monotonic()
        self._close(self._late[1])
        return now

    def dismiss(self) -> None:
        """Tell all clients to leave."""
        self._close(self._leave[1])

    def _close(self, writer: int) -> None:
        self._writers.remove(writer)
        os.close(writer)

    def _message(self, descriptor: int, client_id: int, kind: str) -> Any:
        data = os.read(descriptor, LONGEST_MESSAGE)
        if not data:
            raise _RunFailed(f"client {client_id} {self._last_words(client_id)} before it said {kind!r}")
        said, value = json.loads(data)
        if said != kind:
            raise _RunFailed(f"client {client_id} {said}: {value}")
        return value

    def _last_words(self, client_id: int) -> str:
        _, status = os.waitpid(self._pids.pop(client_id), 0)
        code = os.waitstatus_to_exitcode(status)
        end = f"ended with status {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"
        return end + tail(self._output[client_id])

    def _become_client(self, client_id: int, reports: int) -> None:
        try:
            gate = self._early[0] if client_id in self._plan.early else self._late[0]
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(self._output[client_id].fileno(), 1)
            os.dup2(1, 2)
            for writer in self._writers:
                os.close(writer)
            place = Place(client_id, self._plan.ports)
            if self._fork:
                attend(self._library, place, Station(reports, gate, self._leave[0]))
            else:
                execute(self._library, place, (reports, gate, self._leave[0]))
        finally:
            os._exit(1)


def tail(file: IO[bytes]) -> str:
    """The last lines of what a process wrote, as a clause of a message."""
    file.seek(0)
    lines = file.read().decode(errors="replace").strip().splitlines()
    return f" ({' / '.join(line.strip() for line in lines[-_LAST_LINES:])})" if lines else ""


def carry_out(library: str, plan: Plan, fork: bool) -> Outcome:
    """Carry one run out in this process, which must have one thread.

    Args:
        library: `module:attribute` of the `Library` that is measured.
        plan: The run.
        fork: Whether the clients are forked from this process, which then should have loaded the library.
    """
    with _Clients(library, plan, fork) as clients:
        try:
            clients.start()
            clients.hear("ready", READY_TIMEOUT)
            released = clients.release()
            last = max(clients.hear("returned", plan.timeout))
            clients.dismiss()
            clients.hear(LAST_MESSAGE, plan.timeout)
        except _RunFailed as failure:
            return Outcome(None, str(failure))
    return Outcome(last - released)
