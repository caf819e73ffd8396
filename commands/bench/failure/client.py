"""The clients of `bringup bench failure`: one kind waits for a fault in a given phase, one watches heartbeats."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from ....errors import BringupError
from ....runtime.client.active import ACTIVE
from ....runtime.initialize import initialize
from ..libraries import BRINGUP, describe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ....runtime.system import System
    from ..worker import Assignment, HostPipe

FAULT_TEXT = "the fault that is measured"
EXIT_STATUS = 3
_BEFORE_UP = ("connect", "rendezvous", "devices")
_POLL_INTERVAL = 0.005  # seconds; the phase is not announced, and faults come 0.1 s after it at the earliest
_ARRAY = np.ones(1 << 18, np.float32)
_SAMPLES_PER_INTERVAL = 10
_LATE_INTERVALS = 1.5


class FaultClient:
    """The `Program` of bringup's clients that wait for a fault.

    The orders of a client are `part` (`survivor`, `waits`, `raises` or `exits`), `phase`, `options` and `environment`.
    """

    def load(self) -> None:
        """Import all that the clients need."""
        BRINGUP.load()

    def work(self, assignment: Assignment, host: HostPipe) -> None:
        """Report `placed` once in position; a survivor then reports `told`, with the time and the error."""
        os.environ.update(assignment.orders["environment"])
        with suppress(BringupError):
            asyncio.run(_wait_for_fault(assignment, host))


async def _wait_for_fault(assignment: Assignment, host: HostPipe) -> None:
    phase, part = assignment.orders["phase"], assignment.orders["part"]
    watch = asyncio.create_task(_report_phase(phase, host)) if phase in _BEFORE_UP else None
    options = assignment.orders["options"]
    with _reporting_errors(host):
        system = await initialize("SIM", jobs=assignment.jobs, client_id=assignment.client_id, **options)
    assert watch is None, f"the job came up, which was to stay in phase {phase}"
    if part == "exits":
        await _wait_for_order(host)
        sys.exit(EXIT_STATUS)
    async with system:
        if part == "raises":
            await _wait_for_order(host)
            raise RuntimeError(FAULT_TEXT)
        is_late = part == "waits" and phase == "barrier"
        with _reporting_errors(host):
            await _call("idle" if is_late else phase, system, host)


async def _report_phase(phase: str, host: HostPipe) -> None:
    while (client := ACTIVE.get()) is None or client.phase != phase:  # noqa: ASYNC110 - no event tells of it
        await asyncio.sleep(_POLL_INTERVAL)
    host.say("placed", None)


async def _wait_for_order(host: HostPipe) -> None:
    host.say("placed", None)
    await asyncio.to_thread(host.wait_for_order)
    host.say("struck", time.monotonic())


async def _call(phase: str, system: System, host: HostPipe) -> NoReturn:
    """Make the call that is to be pending at the fault, or, for collectives, one after the other."""
    if phase == "collective":
        await system.all_reduce(_ARRAY)
        host.say("placed", None)
        while True:
            await system.all_reduce(_ARRAY)
    call = asyncio.ensure_future(system.barrier("bench") if phase == "barrier" else system.wait_failed())
    await asyncio.sleep(0)
    host.say("placed", None)
    error = await call
    assert error is not None, "a barrier was released that one client never came to"
    raise error


@contextmanager
def _reporting_errors(host: HostPipe) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        host.say("told", {"at": time.monotonic(), **describe(error)})
        raise


@dataclass(slots=True)
class Sighting:
    """The heartbeat ages that one client has seen of the others."""

    interval: float
    largest_age: float = 0.0
    overdue: set[int] = field(default_factory=set)

    def look(self, system: System) -> None:
        """Take the present ages in."""
        ages = {one.client_id: one.last_heartbeat_age for one in system.members if one.client_id != system.client_id}
        self.largest_age = max(self.largest_age, *ages.values())
        # News of all the others comes from the coordinator: what their ages have in common is its own silence.
        silence = min(ages.values())
        late = {client_id for client_id, age in ages.items() if age - silence > self.interval}
        self.overdue |= late | ({0} if silence > _LATE_INTERVALS * self.interval else set())


class WatchClient:
    """The `Program` of clients that watch for false alarms; their orders are the `heartbeat_interval`."""

    def load(self) -> None:
        """Import all that the clients need."""
        BRINGUP.load()

    def work(self, assignment: Assignment, host: HostPipe) -> None:
        """Come up, watch the others until the order to leave or the job's failure, and report."""
        asyncio.run(_watch(assignment, host))


async def _watch(assignment: Assignment, host: HostPipe) -> None:
    sighting = Sighting(assignment.orders["heartbeat_interval"])
    failure = None
    try:
        async with initialize("SIM", jobs=assignment.jobs, client_id=assignment.client_id) as system:
            host.returned()
            ends = {
                asyncio.ensure_future(asyncio.to_thread(host.wait_for_order)),
                asyncio.ensure_future(_raise_failure(system)),
            }
            ended: set[asyncio.Future[None]] = set()
            while not ended:
                sighting.look(system)
                timeout = sighting.interval / _SAMPLES_PER_INTERVAL
                ended, _ = await asyncio.wait(ends, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            for end in ended:
                end.result()
    except BringupError as error:
        failure = f"client {assignment.client_id} was told: {type(error).__name__}: {error}"
    host.say("watched", [sighting.largest_age, sorted(sighting.overdue), failure])


async def _raise_failure(system: System) -> None:
    if (error := await system.wait_failed()) is not None:
        raise error


FAULT_CLIENT = FaultClient()
WATCH_CLIENT = WatchClient()
