"""A job of real processes that works while strangers are at all of its ports, and what that costs it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from dataclasses import dataclass

from bringup.testing.job import LocalJob

from .strangers import come, idlers, ports_of

IDLE, SLOW = 0.2, 0.02
"""Connections that stay, for each that comes and goes."""

IDLE_MAX = 400
"""To each port: all of them are of one process, which has a limit of its own."""


@dataclass(frozen=True)
class Toll:
    """The outcome of an attack.

    Attributes:
        visits: how many ended how.
        ports: how many were visited.
        rounds: of a barrier and an all-reduce that the job did meanwhile.
        slowest: of these, in seconds.
        grown: MiB by which the memory of each client has grown.
        lines: that each client has logged.
    """

    visits: Counter[str]
    ports: int
    rounds: int
    slowest: float
    grown: list[float]
    lines: list[list[str]]


def works(job: LocalJob) -> float:
    """Have all clients meet, and reduce an array; returns the seconds it took."""
    began = time.monotonic()
    for call in job.call("barrier", name="it works", timeout=60.0):
        assert call.value() is None
    size = job.num_clients
    assert [call.value() for call in job.call("all_reduce", array=[1, 2])] == [[size, 2 * size]] * size
    return time.monotonic() - began


def memory(job: LocalJob) -> list[float]:
    return [call.value() / 1024 for call in job.call("memory")]


def attack(num_clients: int, count: int, seed: int) -> Toll:
    """Bring a job up, have strangers come to each of its ports `count` times, and check that it works all along."""
    with LocalJob(num_clients) as job:
        job.start()
        job.initialize(device_type="SIM")
        ports = sorted({port for client in job.clients.values() for port in ports_of(client.process.pid)})
        assert len(ports) == num_clients + 1  # for links one each, and the coordinator's
        works(job)
        # The first strangers make each client load what it tells them with.
        asyncio.run(come(ports, 20, seed=seed))
        files, before = [call.value() for call in job.call("resources")], memory(job)
        logged = [len(client.log) for client in job.clients.values()]
        visits, took = _besiege(job, ports, count, seed)
        took.append(works(job))
        left = job.resources_beyond(files)
        assert not any(map(any, (each.values() for each in left))), left
        grown = [after - earlier for after, earlier in zip(memory(job), before, strict=True)]
        lines = [client.log[start:].splitlines() for client, start in zip(job.clients.values(), logged, strict=True)]
        for call in job.call("shutdown"):
            call.value()
    return Toll(visits, len(ports), len(took), max(took), grown, lines)


def _besiege(job: LocalJob, ports: list[int], count: int, seed: int) -> tuple[Counter[str], list[float]]:
    visits: Counter[str] = Counter()
    failures: list[BaseException] = []

    async def come_and_stay() -> None:
        async with idlers(ports, min(IDLE_MAX, int(IDLE * count))), idlers(ports, 1 + int(SLOW * count), slow=True):
            visits.update(await come(ports, count, seed=seed))

    def run() -> None:
        try:
            asyncio.run(come_and_stay())
        except BaseException as error:  # noqa: BLE001 - shown by the thread that waits
            failures.append(error)

    strangers = threading.Thread(target=run)
    strangers.start()
    took = []
    while strangers.is_alive():
        took.append(works(job))
        strangers.join(0.05)
    assert not failures, failures[0]
    return visits, took
