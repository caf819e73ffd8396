"""A client's side of a run: where it stands, what it says to the host, and how it comes to be."""

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
_LONGEST_ERROR = 2000


@dataclass(frozen=True, slots=True)
class Place:
    """Where one client stands in a run.

    Attributes:
        client_id: Which client it is.
        ports: The loopback port of every client.
        orders: What else it is told, for JSON.
    """

    client_id: int
    ports: tuple[int, ...]
    orders: Mapping[str, Any] = field(default_factory=dict)

    @property
    def num_clients(self) -> int:
        """How many clients the run has."""
        return len(self.ports)

    @property
    def jobs(self) -> tuple[str, ...]:
        """One `host:port` per client, in client order."""
        return tuple(f"{LOOPBACK}:{port}" for port in self.ports)


class Station:
    """A client's end of the three pipes: what it says to the host, the gate it waits at, and the order to leave."""

    def __init__(self, reports: int, gate: int, leave: int) -> None:
        self._reports, self._gate, self._leave = reports, gate, leave

    def ready(self) -> None:
        """Say that all imports are done, and wait at the gate."""
        self.say("ready", None)
        os.read(self._gate, 1)

    def returned(self) -> None:
        """Stamp the moment at which the measured call returned."""
        self.say("returned", time.monotonic())

    def wait_until_told(self) -> None:
        """Block until the host opens the last gate."""
        os.read(self._leave, 1)

    def left(self) -> None:
        """Say that the client has shut its library down."""
        self.say(LAST_MESSAGE, None)

    def failed(self, error: BaseException) -> None:
        """Say what went wrong, in one line."""
        self.say("failed", f"{type(error).__name__}: {error}"[:_LONGEST_ERROR])

    def say(self, kind: str, value: object) -> None:
        """Send the host a message; `value` is for JSON."""
        os.write(self._reports, json.dumps([kind, value]).encode() + b"\n")


class Library(Protocol):
    """What the harness needs of a library that it measures."""

    def load(self) -> None:
        """Import all that the measured call needs, and initialise none of it."""

    def work(self, place: Place, station: Station) -> None:
        """Bring one client up, report `returned`, wait until told, leave."""


def find(spec: str) -> Any:
    """Import what has the name `module:attribute`."""
    module, _, attribute = spec.partition(":")
    return getattr(importlib.import_module(module), attribute)


def library_of(spec: str) -> Library:
    """Import a library's record by its name."""
    library: Library = find(spec)
    return library


def attend(spec: str, place: Place, station: Station) -> None:
    """A client's whole life; the process ends without the libraries' exit handlers, which may hang."""
    try:
        library = library_of(spec)
        library.load()
        station.ready()
        library.work(place, station)
        station.left()
    except BaseException as error:
        station.failed(error)
        raise
    os._exit(0)


def interpreter(function: str, *arguments: str) -> list[str]:
    """The command of a fresh interpreter that calls `module:function`; `-P`: whatever lies in the working directory."""
    module, _, name = function.partition(":")
    return [sys.executable, "-P", "-c", f"from {module} import {name} as main; main()", *arguments]


def execute(spec: str, place: Place, descriptors: tuple[int, int, int]) -> None:
    """Turn this process into a client that is a fresh interpreter."""
    for descriptor in descriptors:
        os.set_inheritable(descriptor, True)
    arguments = [spec, json.dumps(asdict(place)), *map(str, descriptors)]
    os.execv(sys.executable, interpreter(f"{__name__}:run_client", *arguments))


def run_client() -> None:
    """Entry of a client that is a fresh interpreter; its arguments are those that `execute` gives."""
    spec, place, *descriptors = sys.argv[1:]
    client_id, ports, orders = json.loads(place).values()
    attend(spec, Place(client_id, tuple(ports), orders), Station(*map(int, descriptors)))
