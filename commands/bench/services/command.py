"""`bringup bench services`: the key-value store and the barriers, in jobs on this machine's loopback, side by side."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from ....transport.tcp.interfaces import free_ports
from ..host import Host
from ..libraries import BRINGUP, client_environment
from ..options import clients_parser, make_progress
from ..report import introduce, machine_facts, versions_of
from .figures import Task
from .other_libraries import JAX_SERVICES, TORCH_SERVICES
from .own_library import BRINGUP_SERVICES
from .report import ServiceRow, is_sound, services_table
from .run import CONDUCTOR, ServicePlan, run_services

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..libraries import Measured
    from .run import ServiceOutcome

    Ran = Callable[[str, Task, ServiceOutcome], None]

_CROWD_ROUNDS_SHARE = 10
_LIBRARIES: Mapping[str, tuple[str, Measured]] = {
    "BRINGUP": (f"{type(BRINGUP_SERVICES).__module__}:BRINGUP_SERVICES", BRINGUP_SERVICES.measured),
    "JAX": (f"{type(JAX_SERVICES).__module__}:JAX_SERVICES", JAX_SERVICES.measured),
    "TORCH": (f"{type(TORCH_SERVICES).__module__}:TORCH_SERVICES", TORCH_SERVICES.measured),
}


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """How the bench runs, as asked for on the command line; seconds."""

    runs: int
    calls: int
    rounds: int
    clients: tuple[int, ...]
    barriers: tuple[int, ...]
    crowds: tuple[int, ...]
    loop: str
    timeout: float


def tasks_of(settings: ServiceSettings) -> list[Task]:
    """Return the kinds of runs, in the order in which the table has them."""
    return [
        Task("calls", 1),
        *(Task("rate", clients) for clients in settings.clients),
        *(Task("barrier", clients) for clients in settings.barriers),
        *(Task("crowd", clients) for clients in settings.crowds),
    ]


def plan_run(settings: ServiceSettings, task: Task) -> ServicePlan:
    """Return one run; a crowd meets less often, as its rounds are long."""
    rounds = max(1, settings.rounds // _CROWD_ROUNDS_SHARE) if task.kind == "crowd" else settings.rounds
    ports = tuple(free_ports(task.processes))
    return ServicePlan(ports, task.kind, task.clients, settings.calls, rounds, settings.loop, settings.timeout)


def measure_services(
    settings: ServiceSettings,
    libraries: Mapping[str, tuple[str, Measured]],
    environment: Mapping[str, str],
    ran: Ran,
) -> list[ServiceRow]:
    """Run all libraries in turn, run by run, so that what else the machine does is shared between them.

    Args:
        settings: What to run.
        libraries: The harness's name of each library, and the library.
        environment: The environment of all clients.
        ran: Called after every run.
    """
    rows: list[ServiceRow] = []
    with ExitStack() as stack:
        hosts = {
            measured.name: stack.enter_context(Host(spec, "fork", environment, CONDUCTOR))
            for spec, measured in libraries.values()
        }
        for task in tasks_of(settings):
            of_task = {name: [ServiceRow(name, figure) for figure in task.figures] for name in hosts}
            for name, host in list(hosts.items()) * settings.runs:
                outcome = run_services(host, plan_run(settings, task))
                for row in of_task[name]:
                    row.take(outcome)
                ran(name, task, outcome)
            rows += [row for of_library in of_task.values() for row in of_library]
    return rows


@click.command("services")
@click.option("--runs", default=5, type=click.IntRange(min=1), show_default=True, help="Runs of each kind.")
@click.option("--calls", default=2000, type=click.IntRange(min=1), show_default=True, help="Calls of 100 bytes a run.")
@click.option("--rounds", default=300, type=click.IntRange(min=1), show_default=True, help="Rounds of a barrier a run.")
@click.option("--clients", default="8", callback=clients_parser(1), show_default=True, help="Clients that get at once.")
@click.option("--barriers", default="4,16", callback=clients_parser(2), show_default=True, help="Processes that meet.")
@click.option(
    "--crowds", default="64,256,1024", callback=clients_parser(2), show_default=True, help="Clients in one process."
)
@click.option(
    "--loop",
    type=click.Choice(["uvloop", "asyncio"]),
    help="The event loop that bringup's callers use; uvloop where it is installed.",
)
@click.option(
    "--timeout",
    default=120.0,
    type=click.FloatRange(min=0, min_open=True),
    show_default=True,
    help="Seconds after which a run has failed and its clients are killed.",
)
@click.option(
    "--only", multiple=True, type=click.Choice(list(_LIBRARIES), case_sensitive=False), help="Leave others out."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with the sample of every run.")
def services_command(only: tuple[str, ...], as_json: bool, loop: str | None, **options: Any) -> None:
    """Time the key-value store and the barriers of jobs on this machine's loopback.

    Measured are bringup (SIM backend), jax's distributed client and torch's TCPStore, as far as they are installed.
    Calls of 100 KB are a tenth of --calls, rounds of clients in one process a tenth of --rounds: there jax and torch
    have a thread for each client, and bringup a task. Whatever the figures are, the exit status is 0, save where an
    answer was wrong, a barrier let somebody go too early, or a run of bringup failed: then it is 1.
    """
    loop = loop or ("uvloop" if importlib.util.find_spec("uvloop") else "asyncio")
    settings = ServiceSettings(loop=loop, **options)
    chosen = {name: library for name, library in _LIBRARIES.items() if name in (only or _LIBRARIES)}
    absent = {measured.name: why for _, measured in chosen.values() if (why := measured.available())}
    present = {name: library for name, library in chosen.items() if library[1].name not in absent}
    facts = {
        **asdict(settings),
        "machine": machine_facts(),
        "versions": versions_of([measured for _, measured in present.values()]),
        "absent": absent,
    }
    introduce(f"{settings.runs} runs of each kind, callers on {loop}", facts, err=as_json)
    rows = _measure(settings, present)
    if as_json:
        click.echo(json.dumps(facts | {"rows": [row.as_object() for row in rows]}))
    else:
        Console().print(services_table(rows, BRINGUP.name))
    if not is_sound(rows, BRINGUP.name):
        sys.exit(1)


def _measure(settings: ServiceSettings, libraries: Mapping[str, tuple[str, Measured]]) -> Sequence[ServiceRow]:
    with make_progress() as progress:
        total = settings.runs * len(libraries) * len(tasks_of(settings))
        bar = progress.add_task("starting", total=total)

        def ran(library: str, task: Task, outcome: ServiceOutcome) -> None:
            what = f"{library}, {task.clients} clients, {task.kind}"
            progress.update(bar, advance=1, description=what)
            failure = () if outcome.failure is None else (f"failed: {outcome.failure}",)
            for problem in (*outcome.wrong, *failure):
                progress.console.print(f"{what}: {problem}", markup=False, highlight=False, soft_wrap=True)

        return measure_services(settings, libraries, client_environment(os.environ), ran)
