"""`bringup bench failure --alarms`: how often a healthy job fails beside a load that uses every core."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ....runtime.configuration.options import Options
from ....transport.tcp.interfaces import free_ports
from ..host import Host
from .watch import Watched, WatchPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_LIBRARY = f"{__package__}.watch_client:LIBRARY"
_CONDUCTOR = f"{WatchPlan.__module__}:conduct"
# It looks now and then whether it has been left alone: whoever is killed cannot end it.
_BUSY = """
import os
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(10**6):
        pass
"""
_SHORTEST_RUN = 0.5
_JOBS_MAX = 20


@dataclass(frozen=True, slots=True)
class Alarms:
    """What was seen of false alarms.

    Attributes:
        clients: The number of clients of the job.
        seconds: For how long jobs were up.
        load_processes: How many processes did nothing but compute.
        load_seconds: For how long they ran.
        load_cpu_seconds: The processor time that they got together.
        heartbeat_interval: The clients' option, in seconds.
        heartbeat_timeout: The clients' option, in seconds.
        largest_age: The largest heartbeat age that any client saw of any other, in seconds.
        overdue: The clients that were ever overdue.
        failures: A text for each job that failed.
    """

    clients: int
    seconds: float
    load_processes: int
    load_seconds: float
    load_cpu_seconds: float
    heartbeat_interval: float
    heartbeat_timeout: float
    largest_age: float
    overdue: tuple[int, ...]
    failures: tuple[str, ...]


def watch_for_alarms(
    clients: int, seconds: float, environment: Mapping[str, str], say: Callable[[str], None]
) -> Alarms:
    """Keep a job up beside the load for `seconds`; where it fails, start another for the rest of the time, 20 at most.

    Args:
        clients: How many clients the job has.
        seconds: For how long.
        environment: The clients' environment, which must not change their options.
        say: Called with every failure.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    options = Options()
    runs: list[Watched] = []
    with _load(cores) as load, Host(_LIBRARY, "fork", environment, _CONDUCTOR) as host:
        left = seconds
        while not runs or (left > _SHORTEST_RUN and len(runs) < _JOBS_MAX):
            plan = WatchPlan(
                ports=tuple(free_ports(clients)),
                order=list(range(clients)),
                seconds=left,
                heartbeat_interval=options.heartbeat_interval,
            )
            runs.append(Watched(**host.ask(asdict(plan))))
            if runs[-1].failure is not None:
                say(runs[-1].failure)
            left = seconds - sum(run.seconds for run in runs)
    return Alarms(
        clients=clients,
        seconds=sum(run.seconds for run in runs),
        load_processes=cores,
        load_seconds=load[0],
        load_cpu_seconds=load[1],
        heartbeat_interval=options.heartbeat_interval,
        heartbeat_timeout=options.heartbeat_timeout,
        largest_age=max(run.largest_age for run in runs),
        overdue=tuple(sorted({client_id for run in runs for client_id in run.overdue})),
        failures=tuple(run.failure for run in runs if run.failure is not None),
    )


@contextmanager
def _load(processes: int) -> Iterator[list[float]]:
    """Keep every core busy; what is yielded then holds for how long, and the processor time used, in seconds."""
    used: list[float] = []
    began = time.monotonic()
    busy = [subprocess.Popen([sys.executable, "-I", "-S", "-c", _BUSY]) for _ in range(processes)]
    try:
        yield used
    finally:
        used.append(time.monotonic() - began)
        for process in busy:
            process.kill()
        usages = [os.wait4(process.pid, 0)[2] for process in busy]
        used.append(sum(usage.ru_utime + usage.ru_stime for usage in usages))
        for process in busy:
            process.returncode = -signal.SIGKILL  # it has been waited for
