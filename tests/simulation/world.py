"""A job of simulated processes, determined by one seed."""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import cached_property, partial
from types import TracebackType
from typing import Any, Self

from bringup.devices.base import CoreLocation, LocalDevice
from bringup.runtime.machines.coordinator import events as ev
from bringup.runtime.machines.coordinator.config import CoordinatorConfig
from bringup.runtime.machines.coordinator.machine import CoordinatorMachine
from bringup.runtime.machines.coordinator.members import welcome
from bringup.runtime.machines.peer.config import PeerConfig
from bringup.transport.wire.messages import CoordinatorMessage

from . import costs, invariants
from .clock import Clock
from .faults import Fault
from .job import Job
from .machine_runner import MachineRunner
from .network import EVER, LAN, Latency, Network
from .process import Process
from .ring import SimulatedRing
from .services import SimulatedServices
from .store_oracle import StoreOracle
from .wire import Wire

_DEVICES_MAX = 4
_NOT_SHOWN = ("Heartbeat", "HeartbeatAck", "Beat")
_LINES_SHOWN = 80


class World:
    """The clients of one job, their network and their devices. As a context, it explains what made a test fail.

    Attributes:
        host: the process whose coordinator can be connected to, where there is one.
        jobs: every forming of the job.
        devices: of each client; unequal numbers, with core ids in no order.
        garblers: the clients whose merge goes wrong in a way that no check of theirs shows.
        misprinters: the clients that get a roster with one row wrong.
        unsettled: the processes that have neither come up nor ended, in order.
        running: those that have not let go of all they held, but for those that are stopped for ever.
        prepare: told of every process that is started, before it begins.
        is_calm: whether no more faults strike.
        is_metered: whether the calls are counted that a step of the services makes, and charged for.
        patience: seconds by which a client may be later than its deadline, as others are served before it.
        stall_timeout: what a coordinator that is started is configured with, like the next.
        group_size: the clients of a group, about; 0 for one group of all.
        struck: how often which fault struck.
    """

    def __init__(self, seed: int, num_clients: int, *, latency: Latency = LAN, **settings: Any) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.clock = Clock()
        self.network = Network(self.clock, self.rng, latency)
        self.wire = Wire(self)
        self.num_clients = num_clients
        self.host: Process | None = None
        self.jobs: list[Job] = []
        self.processes: list[Process] = []
        self.garblers: set[int] = set()
        self.misprinters: set[int] = set()
        self.unsettled: dict[Process, None] = {}
        self.running: dict[Process, None] = {}
        self.prepare: Callable[[Process], None] = lambda process: None
        self.is_calm = False
        self.is_metered = False
        self.patience = invariants.PATIENCE + costs.slack(num_clients)
        self.stall_timeout: float | None = None
        self.group_size = 0
        self.struck: Counter[str] = Counter()
        self.devices = _draw_devices(self.rng, num_clients)
        self._sound_devices = dict(self.devices)
        self._settings = settings
        self._rings: dict[str, SimulatedRing] = {}
        self._listeners: dict[str, Process] = {}
        self._processes_of: defaultdict[int, list[Process]] = defaultdict(list)
        self._addresses = tuple(f"host-{client_id}:10000" for client_id in range(num_clients))

    # Beginning.

    def start(self, client_id: int, *, at: float = 0.0, link_address: str = "", **settings: Any) -> Process:
        """Start a client's process at a time; its settings win over the world's."""
        number = len(self.processes)
        address = link_address or f"host-{client_id}:{20_000 + number}"
        name = f"client {client_id}" + (f" ({number})" if self._processes_of[client_id] else "")
        process = Process(self, self._peer_config(client_id, settings), address, name, at)
        self.processes.append(process)
        self._processes_of[client_id].append(process)
        self.unsettled[process] = self.running[process] = None
        self._listeners[address] = process
        self.prepare(process)
        self.clock.at(at, process.deliver, process.begin)
        due = at + process.config.initialization_timeout + self.patience
        self.clock.at(due, invariants.waits_no_longer, process, "for the job to come up", process.is_settled, at)
        return process

    def start_all(self, *, within: float = 0.0, absent: tuple[int, ...] = (), **settings: Any) -> list[Process]:
        """Start all clients but `absent` in any order, all `within` so many seconds from now."""
        now = self.clock.now
        present = [client_id for client_id in range(self.num_clients) if client_id not in absent]
        return [self.start(client_id, at=now + self.rng.uniform(0, within), **settings) for client_id in present]

    def host_coordinator(self, process: Process) -> bool:
        """Host a coordinator in a process; returns whether the port was free."""
        if self.host is not None:
            return False
        config = self._coordinator_config(process.config)
        name = "coordinator" + (f" ({len(self.jobs)})" if self.jobs else "")
        perform = partial(self._perform, process)
        machine = CoordinatorMachine(config)
        machine.welcome = welcome(process.config.registration(process.link_address))
        process.coordinator = MachineRunner(process, machine, perform, name)
        store = StoreOracle()
        process.hosted = Job(process, config, SimulatedServices(process, machine, store), store)
        self.jobs.append(process.hosted)
        self.host = process
        self.wire.serve()
        return True

    # Going on.

    def run(self, until: float) -> None:
        """Run all events up to a time."""
        while self.clock.step(until):
            pass

    def run_until(self, is_done: Callable[[], bool], limit: float) -> None:
        """Run events until `is_done`, which must be before the time `limit`."""
        while not is_done():
            assert self.clock.step(limit), f"it is not done at {limit} s"

    def settle(self, limit: float) -> None:
        """Run events until every client is up or has ended, which must be before the time `limit`."""
        self.run_until(lambda: not self.unsettled, limit)

    def bring_up(self, **settings: Any) -> list[Process]:
        """Start all clients together, and let them come up."""
        processes = self.start_all(within=0.1, **settings)
        self.settle(60.0)
        assert all(process.up is not None for process in processes)
        return processes

    @cached_property
    def core_ids(self) -> list[int]:
        """The devices of the whole job, in the order of its clients."""
        return [device.core_id or 0 for client_id in range(self.num_clients) for device in self.devices[client_id]]

    @property
    def has_disputed_cores(self) -> bool:
        """Whether two clients claim one core."""
        return len(set(self.core_ids)) < len(self.core_ids)

    # What befalls it.

    def strike(self, fault: Fault) -> None:
        """Inject a fault, unless the run is over."""
        if not self.is_calm and fault.strike(self):
            self.struck[type(fault).__name__] += 1
            self.clock.note("fault", fault)

    def current(self, client_id: int) -> Process | None:
        """Return the last of a client's processes that runs, where one does."""
        running = (p for p in reversed(self._processes_of[client_id]) if p.has_begun and p.gone_at == EVER)
        return next(running, None)

    def processes_of(self, client_id: int) -> list[Process]:
        """Return all processes of a client, in the order in which they were started."""
        return self._processes_of[client_id]

    def first(self, client_id: int) -> Process | None:
        """Return the first of a client's processes, where there is one."""
        return next(iter(self._processes_of[client_id]), None)

    def dispute_cores(self) -> None:
        """Have one client claim a core of another."""
        one, other = self.rng.sample(range(self.num_clients), 2)
        self.devices[one] = (*self.devices[one][:-1], self.devices[other][0])
        self.__dict__.pop("core_ids", None)

    def settle_disputes(self) -> None:
        """Have every client claim its own cores again."""
        self.devices = dict(self._sound_devices)
        self.__dict__.pop("core_ids", None)

    def give_up_on(self, process: Process) -> None:
        """Wait no longer for a process, which is stopped for ever."""
        self.running.pop(process, None)
        self.unsettled.pop(process, None)

    # What the processes ask of it.

    def host_number(self, address: str) -> int:
        """Return the number of the host in an address."""
        return int(address.partition(":")[0].removeprefix("host-"))

    def listener(self, link_address: str) -> Process | None:
        """Return the process that accepts connections on an address, where there is one."""
        process = self._listeners.get(link_address)
        return process if process is not None and process.is_listening else None

    def ring_of(self, job_id: str) -> SimulatedRing:
        """Return the ring of a job."""
        if job_id not in self._rings:
            self._rings[job_id] = SimulatedRing(self, self.num_clients)
        return self._rings[job_id]

    def process_ended(self, process: Process) -> None:
        """A process has let go of all it held."""
        self.unsettled.pop(process, None)
        self.running.pop(process, None)
        for ring in self._rings.values():
            ring.leave(process)
        if self.host is process:
            self.host = None

    def _perform(self, host: Process, effect: ev.CoordinatorEffect) -> None:
        match effect:
            case ev.SendTo(sessions, message):
                self._answer(host, sessions, message)
            case ev.Departed(client_id):
                host.hosted.services.leave(client_id)
            case ev.CloseSession(number):
                host.sessions.finish(number)
            case ev.Probe():
                self.wire.probe(host, effect, host.tell_coordinator)

    def _answer(self, host: Process, sessions: tuple[int, ...], message: CoordinatorMessage) -> None:
        host.sessions.send_to(sessions, message)

    # Failing.

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(
                f"seed {self.seed}, {self.num_clients} clients, trace {self.clock.trace}. The seed alone decides what "
                f"happens. The last events:\n{self.clock.history(_LINES_SHOWN, but=_NOT_SHOWN)}"
            )

    # Helpers.

    def _peer_config(self, client_id: int, settings: dict[str, Any]) -> PeerConfig:
        defaults: dict[str, Any] = {
            "client_id": client_id,
            "num_clients": self.num_clients,
            "job_name": "worker",
            "coordinator_address": "host-0:10000",
            "addresses": self._addresses,
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

    def _coordinator_config(self, host: PeerConfig) -> CoordinatorConfig:
        return CoordinatorConfig(
            num_clients=host.num_clients,
            job_name=host.job_name,
            job_id=f"{self.rng.getrandbits(128):032x}",
            heartbeat_interval=host.heartbeat_interval,
            heartbeat_timeout=host.heartbeat_timeout,
            stall_timeout=self.stall_timeout,
            group_size=self.group_size,
        )


def _draw_devices(rng: random.Random, num_clients: int) -> dict[int, tuple[LocalDevice, ...]]:
    counts = [rng.randint(1, _DEVICES_MAX) for _ in range(num_clients)]
    core_ids = rng.sample(range(2 * sum(counts)), sum(counts))
    cores = iter(zip(core_ids, itertools.count(), strict=False))
    return {
        client_id: tuple(LocalDevice("SIM", core, CoreLocation(x, 0, 0, 0)) for core, x in itertools.islice(cores, n))
        for client_id, n in enumerate(counts)
    }
