"""A job of real client processes on this machine, to be started, told what to do, killed, stopped and continued."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

__all__ = ["Answer", "Call", "LocalClient", "LocalJob", "free_ports"]

ANSWER_TIMEOUT = 20.0
"""Seconds that a test waits for an answer before it takes the client for hung."""

_END_TIMEOUT = 10.0


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return `count` different TCP ports of `host` that are free now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sockets = [socket.socket(family, socket.SOCK_STREAM) for _ in range(count)]
    try:
        for sock in sockets:
            sock.bind((host, 0))
        return [int(sock.getsockname()[1]) for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a call.

    Attributes:
        value: what it returned.
        error: the type of the exception it raised, or `None`.
        text: the exception's text.
        attributes: its public attributes; mappings have text keys.
        bases: the names of the exception's classes, its own first.
        at: when, on the machine's monotonic clock, in seconds.
    """

    value: Any
    error: str | None
    text: str
    attributes: Mapping[str, Any]
    bases: tuple[str, ...]
    at: float


class Call:
    """A call that a client was told to make."""

    def __init__(self, client: LocalClient, number: int, name: str) -> None:
        self.number = number
        self._client = client
        self._name = name
        self._done = threading.Event()
        self._answer: Answer | None = None

    def settle(self, answer: Answer | None) -> None:
        """Take the answer; `None` when the process ended without one."""
        self._answer = answer
        self._done.set()

    def answer(self, timeout: float = ANSWER_TIMEOUT) -> Answer:
        """Wait for the answer.

        Raises:
            AssertionError: none came; says what the client has written.
        """
        came = self._done.wait(timeout)
        what = f"{self._name}() of client {self._client.client_id}"
        assert came, f"{what} did not answer within {timeout:g} s; {self._client.describe()}"
        assert self._answer is not None, f"{what} was cut short; {self._client.describe()}"
        return self._answer

    def value(self, timeout: float = ANSWER_TIMEOUT) -> Any:
        """Wait for what the call returns; raises `AssertionError` where it raised."""
        answer = self.answer(timeout)
        assert answer.error is None, f"{self._name}() raised {answer.error}: {answer.text}; {self._client.describe()}"
        return answer.value

    def error(self, timeout: float = ANSWER_TIMEOUT) -> Answer:
        """Wait for the exception that the call raises; raises `AssertionError` where it returned."""
        answer = self.answer(timeout)
        assert answer.error is not None, f"{self._name}() returned {answer.value!r}; {self._client.describe()}"
        return answer


class LocalClient:
    """One client process."""

    def __init__(self, client_id: int, environment: Mapping[str, str]) -> None:
        self.client_id = client_id
        self._numbers = itertools.count(1)
        self._calls: dict[int, Call] = {}
        self._lock = threading.Lock()
        self._ended = False
        self._log: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bringup.testing.client"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=dict(environment),
            # Elsewhere than in a checkout, whose folders would shadow installed packages.
            cwd=os.path.dirname(sys.executable),
        )
        self._readers = [
            threading.Thread(target=target, daemon=True, name=f"client-{client_id}-{target.__name__}")
            for target in (self._read_answers, self._read_log)
        ]
        for reader in self._readers:
            reader.start()

    def call(self, name: str, /, **arguments: Any) -> Call:
        """Tell the client to make a call: a method of its system, or one of `testing.client`'s own."""
        number = next(self._numbers)
        call = Call(self, number, name)
        with self._lock:
            if self._ended:
                call.settle(None)
                return call
            self._calls[number] = call
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({"id": number, "call": name, "arguments": arguments}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self._end()
        return call

    def kill(self) -> None:
        """Kill the process (SIGKILL) and wait for its end."""
        self.process.kill()
        self.process.wait(_END_TIMEOUT)

    def stop(self) -> None:
        """Stop the process (SIGSTOP)."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a stopped process go on (SIGCONT)."""
        self.process.send_signal(signal.SIGCONT)

    def wait(self, timeout: float = ANSWER_TIMEOUT) -> int:
        """Wait for the process to end by itself; returns its exit status."""
        return self.process.wait(timeout)

    def close(self) -> None:
        """End the process, whatever it does."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(_END_TIMEOUT)
        for reader in self._readers:
            reader.join(_END_TIMEOUT)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue

    @property
    def log(self) -> str:
        """What it has written to stderr."""
        return "".join(self._log)

    def describe(self) -> str:
        """Return the state of the process for a failed assertion."""
        status = self.process.poll()
        state = "it runs" if status is None else f"it ended with status {status}"
        return f"{state}; its stderr:\n{self.log}"

    def _read_answers(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            answer = json.loads(line)
            call = self._calls.pop(answer["id"])
            call.settle(
                Answer(
                    answer.get("value"),
                    answer.get("error"),
                    answer.get("text", ""),
                    answer.get("attributes", {}),
                    tuple(answer.get("bases", ())),
                    answer["at"],
                )
            )
        self._end()

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        self._log.extend(self.process.stderr)

    def _end(self) -> None:
        with self._lock:
            self._ended = True
            calls, self._calls = list(self._calls.values()), {}
        for call in calls:
            call.settle(None)


class LocalJob:
    """The clients of one job, as processes on this machine; a context manager that leaves none behind.

    Args:
        num_clients: how many.
        host: the loopback address that they use.
        environment: set for all of them, beside `BRINGUP_JOBS` and `BRINGUP_CLIENT_ID`.
    """

    def __init__(
        self, num_clients: int, *, host: str = "127.0.0.1", environment: Mapping[str, str] | None = None
    ) -> None:
        shown = f"[{host}]" if ":" in host else host
        self.num_clients = num_clients
        self.jobs = tuple(
            f"{shown}:{port}" for port in free_ports(num_clients, "127.0.0.1" if host == "localhost" else host)
        )
        self.clients: dict[int, LocalClient] = {}
        self._environment = dict(environment or {})
        self._retired: list[LocalClient] = []

    def start(self, client_ids: Iterable[int] | None = None, **environment: str) -> list[LocalClient]:
        """Start the processes of some clients, or of all; a client that ran before is replaced by a new one.

        `environment` is set for these alone.
        """
        started = []
        for client_id in range(self.num_clients) if client_ids is None else client_ids:
            if client_id in self.clients:
                self._retired.append(self.clients[client_id])
            own = {"BRINGUP_JOBS": ",".join(self.jobs), "BRINGUP_CLIENT_ID": str(client_id)}
            inherited = {k: v for k, v in os.environ.items() if not k.startswith(("BRINGUP_", "DTENSOR_", "JAX_"))}
            client = LocalClient(client_id, {**inherited, **own, **self._environment, **environment})
            self.clients[client_id] = client
            started.append(client)
        return started

    def call(self, name: str, client_ids: Iterable[int] | None = None, /, **arguments: Any) -> list[Call]:
        """Tell some clients, or all that were started, to make a call at once."""
        chosen = self.clients if client_ids is None else client_ids
        return [self.clients[client_id].call(name, **arguments) for client_id in chosen]

    def resources(self) -> list[dict[str, int]]:
        """Return the threads, open files and tasks that each client has when it is in no job, in client order.

        Each client brings itself up alone once, since what is loaded then starts threads that stay.
        """
        for name, arguments in (("initialize", {"jobs": "127.0.0.1:1", "client_id": 0}), ("shutdown", {})):
            for call in self.call(name, range(self.num_clients), **arguments):
                call.value()
        return [call.value() for call in self.call("resources", range(self.num_clients))]

    def resources_beyond(self, before: list[dict[str, int]]) -> list[dict[str, int]]:
        """Return what each client has more of than `resources` returned, once it has had time to give it back."""
        calls = [self.clients[c].call("resources", expected=before[c]) for c in range(self.num_clients)]
        after = [call.value() for call in calls]
        return [
            {key: found[key] - old[key] for key in found if found[key] > old[key]}
            for found, old in zip(after, before, strict=True)
        ]

    def initialize(self, **arguments: Any) -> list[dict[str, Any]]:
        """Start whoever was not, bring all up, and return the facts of each, in client order."""
        self.start([client_id for client_id in range(self.num_clients) if client_id not in self.clients])
        calls = self.call("initialize", range(self.num_clients), **arguments)
        return [call.value() for call in calls]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for client in (*self.clients.values(), *self._retired):
            client.close()
