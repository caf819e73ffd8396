"""The client's side of a trial: its assignment, its pipes to the host, and its entry points."""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

LOOPBACK = "127.0.0.1"
LAST_MESSAGE = "left"
_ERROR_CHARACTERS_MAX = 2000  # a message longer than a pipe's buffer would block a client whose host has gone on


@dataclass(frozen=True, slots=True)
class Assignment:
    """The place of one client in a trial.

    Attributes:
        client_id: Its number.
        ports: The loopback port of every client, in client order.
        orders: The trial's orders for it, as JSON has them.
    """

    client_id: int
    ports: tuple[int, ...]
    orders: Mapping[str, Any] = field(default_factory=dict)

    @property
    def num_clients(self) -> int:
        """The number of clients of the trial."""
        return len(self.ports)

    @property
    def jobs(self) -> tuple[str, ...]:
        """One `host:port` per client, in client order."""
        return tuple(f"{LOOPBACK}:{port}" for port in self.ports)


class HostPipe:
    """A client's ends of three pipes: its messages to the host, its start gate, and the order to leave."""

    def __init__(self, messages: int, gate: int, leave: int) -> None:
        self._messages, self._gate, self._leave = messages, gate, leave

    def ready(self) -> None:
        """Report that all imports are done, and wait at the gate."""
        self.say("ready", None)
        os.read(self._gate, 1)

    def returned(self) -> None:
        """Report the time at which the measured call returned."""
        self.say("returned", time.monotonic())

    def wait_for_order(self) -> None:
        """Block until the host opens the last gate."""
        os.read(self._leave, 1)

    def say(self, kind: str, value: object) -> None:
        """Send the host a message with a value that JSON has."""
        os.write(self._messages, json.dumps([kind, value]).encode() + b"\n")


class Program(Protocol):
    """The program of a trial's clients, one for each library and scenario."""

    def load(self) -> None:
        """Import all that the measured call needs, and initialise none of it."""

    def work(self, assignment: Assignment, host: HostPipe) -> None:
        """Bring one client up, report, wait for the order to leave, and leave."""


def find(spec: str) -> Any:
    """Import an object by its name, `module:attribute`."""
    module, _, attribute = spec.partition(":")
    return getattr(importlib.import_module(module), attribute)


def work(spec: str, assignment: Assignment, host: HostPipe) -> None:
    """Run a client's program to its end; the process ends without the libraries' exit handlers, which may hang."""
    try:
        program: Program = find(spec)
        program.load()
        host.ready()
        program.work(assignment, host)
        host.say(LAST_MESSAGE, None)
    except BaseException as error:
        host.say("failed", f"{type(error).__name__}: {error}"[:_ERROR_CHARACTERS_MAX])
        raise
    os._exit(0)


def interpreter(function: str, *arguments: str) -> list[str]:
    """The command of a fresh interpreter that calls `module:function`, without the working directory on its path."""
    module, _, name = function.partition(":")
    return [sys.executable, "-P", "-c", f"from {module} import {name} as main; main()", *arguments]


def execute(spec: str, assignment: Assignment, descriptors: tuple[int, int, int]) -> None:
    """Replace this process by a client in a fresh interpreter."""
    for descriptor in descriptors:
        os.set_inheritable(descriptor, True)
    arguments = [spec, json.dumps(asdict(assignment)), *map(str, descriptors)]
    os.execv(sys.executable, interpreter(f"{__name__}:run_client", *arguments))


def run_client() -> None:
    """Entry of a client in a fresh interpreter; `execute` gives the arguments."""
    spec, assignment, *descriptors = sys.argv[1:]
    client_id, ports, orders = json.loads(assignment).values()
    work(spec, Assignment(client_id, tuple(ports), orders), HostPipe(*map(int, descriptors)))
