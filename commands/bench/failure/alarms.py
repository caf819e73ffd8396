"""`bringup bench failure --alarms`: how often a healthy job fails beside a load on every core."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ....runtime.configuration.options import Options
from ....transport.tcp.interfaces import free_ports
from ..libraries import BRINGUP
from ..load import busy_processes
from ..report import new_table
from ..runner import Case, Entrant
from ..trials import WatchTrial

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.table import Table

    from ..runner import Hosts

WATCHER = Entrant(BRINGUP, f"{__package__}.client:WATCH_CLIENT")

_SHORTEST_RUN = 0.5  # seconds; a shorter rest of the time is not worth the start of another job
_JOBS_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """One job beside the load.

    Attributes:
        seconds: The time for which it was up.
        largest_age: The largest heartbeat age that any client saw of any other, in seconds.
        overdue: The clients that were overdue in the eyes of any other.
        failure: The end of the job, or the reason why it did not come up.
    """

    seconds: float = 0.0
    largest_age: float = 0.0
    overdue: Sequence[int] = ()
    failure: str | None = None


class AlarmScenario:
    """A job beside a load for some seconds; where it fails, another for the rest of the time; a `Scenario`."""

    def __init__(self, clients: int, seconds: float) -> None:
        self._clients, self._seconds = clients, seconds
        self._cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self._options = Options()
        self._jobs: list[Watched] = []
        self._load: list[float] = []
        self.title = f"{clients} clients for {seconds:g} s, beside a load"
        self.facts: dict[str, Any] = {}

    def cases(self, entrants: Sequence[Entrant], hosts: Hosts) -> list[Case]:
        return [Case("watching", lambda: self._watch(hosts))]

    def _watch(self, hosts: Hosts) -> Iterator[str]:
        with busy_processes(self._cores) as self._load:
            left = self._seconds
            while not self._jobs or (left > _SHORTEST_RUN and len(self._jobs) < _JOBS_MAX):
                job = self._run_job(hosts, left)
                self._jobs.append(job)
                left -= job.seconds
                if job.failure is not None:
                    yield job.failure

    def _run_job(self, hosts: Hosts, seconds: float) -> Watched:
        trial = WatchTrial(
            ports=tuple(free_ports(self._clients)),
            order=list(range(self._clients)),
            seconds=seconds,
            heartbeat_interval=self._options.heartbeat_interval,
        )
        outcome = hosts.run(WATCHER.program, trial)
        return Watched(failure=outcome.failure) if outcome.value is None else Watched(**outcome.value)

    def as_object(self) -> dict[str, Any]:
        seconds, cpu_seconds = self._load
        alarms = {
            "clients": self._clients,
            "seconds": sum(job.seconds for job in self._jobs),
            "load_processes": self._cores,
            "load_seconds": seconds,
            "load_cpu_seconds": cpu_seconds,
            "heartbeat_interval": self._options.heartbeat_interval,
            "heartbeat_timeout": self._options.heartbeat_timeout,
            "largest_age": max(job.largest_age for job in self._jobs),
            "overdue": sorted({client_id for job in self._jobs for client_id in job.overdue}),
            "failures": [job.failure for job in self._jobs if job.failure is not None],
        }
        return {"alarms": alarms}

    def tables(self) -> list[Table]:
        alarms = self.as_object()["alarms"]
        table = new_table("False alarms beside a load that uses every core", ["what"], ["figure", "allowed"])
        load = f"{alarms['load_cpu_seconds'] / alarms['load_seconds']:.2f} of {self._cores} cores"
        table.add_row("time watched", f"{alarms['seconds']:.0f} s", "")
        table.add_row("clients", str(self._clients), "")
        table.add_row(f"used by the load, {self._cores} processes", load, "")
        table.add_row("jobs that failed", str(len(alarms["failures"])), "0")
        table.add_row("clients that were ever overdue", str(len(alarms["overdue"])), "")
        allowed = f"{alarms['heartbeat_timeout']:g} s"
        table.add_row("largest heartbeat age seen", f"{alarms['largest_age']:.2f} s", allowed)
        return [table]

    @property
    def is_sound(self) -> bool:
        """Whether no job failed."""
        return not any(job.failure for job in self._jobs)
