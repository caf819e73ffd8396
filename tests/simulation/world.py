"""A job of simulated processes. Everything random comes from one seed, and nothing else decides what happens."""

from __future__ import annotations

import bisect
import itertools
import random
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from bringup.devices.base import CoreLocation, LocalDevice
from bringup.runtime.machines import events as ev
from bringup.runtime.machines.coordinator import CoordinatorConfig, CoordinatorMachine
from bringup.runtime.machines.ids import format_ids
from bringup.runtime.machines.peer import PeerConfig
from bringup.transport.messages import CoordinatorMessage

from . import invariants
from .clock import Clock
from .process import Driven, Process
from .ring import SimulatedRing
from .wire import Wire

__all__ = ["World"]

_DEVICES_MAX = 4


class World:
    """The clients of one job, their network and their devices. As a context, it explains what made a test fail.

    Attributes:
        host: the process whose coordinator can be connected to, where there is one.
        devices: of each client; unequal numbers, with core ids in no order.
        culprits: the clients that a fault befell, or that shut down: only they may be blamed for anything.
        garblers: the clients whose merge goes wrong in a way that no check of theirs shows.
        unsettled: the processes that have neither come up nor ended.
        ready: what each client reported, client id to digest.
        by_deadline: the processes by the end of their patience.
    """

    def __init__(self, seed: int, num_clients: int, **settings: Any) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.clock = Clock()
        self.wire = Wire(self)
        self.num_clients = num_clients
        self.host: Process | None = None
        self.processes: list[Process] = []
        self.culprits: set[int] = set()
        self.garblers: set[int] = set()
        self.unsettled: set[Process] = set()
        self.ready: dict[int, bytes] = {}
        self.by_deadline: list[tuple[float, int, Process]] = []
        self.devices = _draw_devices(self.rng, num_clients)
        self._settings = settings
        self._rings: dict[str, SimulatedRing] = {}
        self._listeners: dict[str, Process] = {}

    # Beginning.

    def start(self, client_id: int, *, at: float = 0.0, **settings: Any) -> Process:
        """Start a client's process at a time; its settings win over the world's."""
        number = len(self.processes)
        link_address = f"host-{client_id}:{20_000 + number}"
        name = f"client {client_id}" + ("" if client_id not in self._ids() else f" ({number})")
        process = Process(self, self._peer_config(client_id, settings), link_address, name, at)
        self.processes.append(process)
        self.unsettled.add(process)
        self._listeners[link_address] = process
        bisect.insort(self.by_deadline, (at + process.config.initialization_timeout, number, process))
        self.clock.at(at, lambda: process.deliver(lambda: self._begin(process)))
        return process

    def start_all(self, *, within: float = 0.0, absent: tuple[int, ...] = (), **settings: Any) -> list[Process]:
        """Start all clients but `absent` in any order, all `within` so many seconds."""
        present = [client_id for client_id in range(self.num_clients) if client_id not in absent]
        return [self.start(client_id, at=self.rng.uniform(0, within), **settings) for client_id in present]

    def _begin(self, process: Process) -> None:
        if process.client_id == 0 and self.host is None:
            machine = CoordinatorMachine(self._coordinator_config())
            process.coordinator = Driven(process, machine, self._perform, "coordinator")
            self.host = process
            self.wire.serve()
        process.tell_peer(ev.Begin())

    # Going on.

    def run(self, until: float) -> None:
        """Let everything happen up to a time."""
        while self.clock.step(until):
            invariants.nobody_waits_past_its_deadline(self)
        invariants.nobody_waits_past_its_deadline(self)

    def run_until(self, is_done: Callable[[], bool], limit: float) -> None:
        """Let things happen until `is_done`, which must be before the time `limit`."""
        while not is_done():
            assert self.clock.step(limit), f"it is not done at {limit} s"
            invariants.nobody_waits_past_its_deadline(self)

    def settle(self, limit: float) -> None:
        """Let things happen until every client has come up or ended, which must be before the time `limit`."""
        self.run_until(lambda: not self.unsettled, limit)

    def bring_up(self, **settings: Any) -> list[Process]:
        """Start all clients together, and let them come up."""
        processes = self.start_all(within=0.1, **settings)
        self.settle(60.0)
        assert all(process.up is not None for process in processes)
        return processes

    # What the processes ask of it.

    def listener(self, link_address: str) -> Process | None:
        """Return the process that accepts connections on an address, where there is one."""
        process = self._listeners.get(link_address)
        return process if process is not None and process.is_listening else None

    def is_silent(self, link_address: str) -> bool:
        """Return whether nothing answers on an address, not even that nobody is there."""
        process = self._listeners.get(link_address)
        return process is not None and (process.is_stopped or process.is_unreachable)

    def ring_of(self, job_id: str) -> SimulatedRing:
        """Return the ring of a job."""
        return self._rings.setdefault(job_id, SimulatedRing(self))

    def leave_rings(self, process: Process) -> None:
        """End the links of a process."""
        for ring in self._rings.values():
            ring.leave(process)

    def lose_host(self, host: Process) -> None:
        """The coordinator on `host` is gone."""
        self.host = None
        self.wire.lose_host(host)

    def _perform(self, effect: ev.CoordinatorEffect) -> None:
        match effect:
            case ev.Answer(sessions, message):
                self._answer(sessions, message)
            case ev.CloseSession(number):
                self.wire.sessions[number].end_down("the coordinator ended the session")
            case ev.Probe():
                assert self.host is not None
                self.wire.probe(self.host, effect)

    def _answer(self, sessions: tuple[int, ...], message: CoordinatorMessage) -> None:
        for number in sessions:
            self.wire.sessions[number].send_down(message)

    # Failing.

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(
                f"seed {self.seed}, {self.num_clients} clients, trace {self.clock.trace}; at fault: "
                f"{format_ids(self.culprits) or 'nobody'}. The seed alone decides what happens: run this test again to "
                f"replay it. The last events:\n{self.clock.history()}"
            )

    # Helpers.

    def _ids(self) -> set[int]:
        return {process.client_id for process in self.processes}

    def _peer_config(self, client_id: int, settings: dict[str, Any]) -> PeerConfig:
        defaults: dict[str, Any] = {
            "client_id": client_id,
            "num_clients": self.num_clients,
            "job_name": "worker",
            "coordinator_address": "host-0:10000",
            "addresses": tuple(f"host-{other}:10000" for other in range(self.num_clients)),
            "device_type": "SIM",
            "incarnation": self.rng.getrandbits(64),
            "hostname": f"host-{client_id}",
            "pid": 1000 + len(self.processes),
            "package_version": "0",
            "initialization_timeout": 300.0,
            "heartbeat_interval": 1.0,
            "heartbeat_timeout": 10.0,
            "shutdown_timeout": 30.0,
        }
        return PeerConfig(**(defaults | self._settings | settings))

    def _coordinator_config(self) -> CoordinatorConfig:
        assert self.host is None
        own = next(process for process in self.processes if process.client_id == 0).config
        return CoordinatorConfig(
            num_clients=own.num_clients,
            job_name=own.job_name,
            job_id=f"{self.rng.getrandbits(128):032x}",
            heartbeat_interval=own.heartbeat_interval,
            heartbeat_timeout=own.heartbeat_timeout,
        )


def _draw_devices(rng: random.Random, num_clients: int) -> dict[int, tuple[LocalDevice, ...]]:
    counts = [rng.randint(1, _DEVICES_MAX) for _ in range(num_clients)]
    core_ids = rng.sample(range(2 * sum(counts)), sum(counts))
    cores = iter(zip(core_ids, itertools.count(), strict=False))
    return {
        client_id: tuple(LocalDevice("SIM", core, CoreLocation(x, 0, 0, 0)) for core, x in itertools.islice(cores, n))
        for client_id, n in enumerate(counts)
    }
