"""`bringup bench startup`: from the release of all clients until the last has come up, side by side."""

from __future__ import annotations

import json
import os
import random
import sys
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import click
from rich.console import Console

from ....transport.tcp.interfaces import free_ports
from ..host import Host
from ..libraries import BRINGUP, LIBRARIES, client_environment, spec, without_settings
from ..options import clients_parser, make_progress
from ..report import Row, as_object, introduce, machine_facts, process_table, startup_table, versions_of
from .import_cost import measure_process
from .run import Plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..libraries import Measured
    from ..report import Ran

StartOrder = Literal["together", "coordinator-last", "coordinator-first"]
Spawn = Literal["fork", "exec"]


@dataclass(frozen=True, slots=True)
class Settings:
    """How the bench runs, as asked for on the command line; durations in seconds."""

    clients: tuple[int, ...]
    runs: int
    timeout: float
    seed: int
    start_order: StartOrder
    offset: float
    spawn: Spawn


def plan_run(settings: Settings, clients: int, rng: random.Random) -> Plan:
    """Draw the order of one run's processes, and say who is released early."""
    order = list(range(clients))
    rng.shuffle(order)
    early: tuple[int, ...] = ()
    if settings.start_order == "coordinator-last":
        early = tuple(range(1, clients))
    elif settings.start_order == "coordinator-first" and clients > 1:
        early = (0,)
    return Plan(tuple(free_ports(clients)), tuple(order), early, settings.offset, settings.timeout)


def measure_startup(
    settings: Settings, libraries: Mapping[str, Measured], environment: Mapping[str, str], ran: Ran
) -> list[Row]:
    """Run all libraries in turn, run by run, so that what else the machine does is shared between them.

    Args:
        settings: What to run.
        libraries: The libraries, by their attribute in `peers`.
        environment: The environment of all clients.
        ran: Called after every run.
    """
    rng = random.Random(settings.seed)
    rows: list[Row] = []
    with ExitStack() as stack:
        hosts = [stack.enter_context(Host(spec(name), settings.spawn, environment)) for name in libraries]
        for clients in settings.clients:
            turn = [Row(library.name, clients) for library in libraries.values()]
            rows += turn
            for host, row in list(zip(hosts, turn, strict=True)) * settings.runs:
                outcome = host.run(plan_run(settings, clients, rng))
                if outcome.seconds is None:
                    row.failures.append(outcome.failure or "no reason given")
                else:
                    row.seconds.append(outcome.seconds)
                ran(row, outcome.failure)
    return rows


@click.command("startup")
@click.option("--clients", default="4,16,64", callback=clients_parser(1), show_default=True, help="Numbers of clients.")
@click.option("--runs", default=20, type=click.IntRange(min=1), show_default=True, help="Runs of each row.")
@click.option(
    "--timeout",
    default=60.0,
    type=click.FloatRange(min=0, min_open=True),
    show_default=True,
    help="Seconds after which a run has failed and its clients are killed.",
)
@click.option("--seed", type=int, help="Seed of the start orders; drawn and printed where not given.")
@click.option(
    "--start-order",
    default="together",
    type=click.Choice(["together", "coordinator-last", "coordinator-first"]),
    show_default=True,
    help="Who is released when; the time counts from the last release.",
)
@click.option(
    "--offset", default=0.3, type=click.FloatRange(min=0), show_default=True, help="Seconds between releases."
)
@click.option(
    "--spawn",
    default="fork",
    type=click.Choice(["fork", "exec"]),
    show_default=True,
    help="Fork the clients from a process that has imported the library, or start fresh interpreters.",
)
@click.option(
    "--only", multiple=True, type=click.Choice(list(LIBRARIES), case_sensitive=False), help="Leave others out."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with the raw samples.")
def startup_command(only: tuple[str, ...], as_json: bool, seed: int | None, **options: Any) -> None:
    """Time the start-up of jobs on this machine's loopback.

    All clients of a run have done their imports when they are released; the time ends when the last of them has
    returned from its library's call. Measured are bringup (SIM backend), jax, torch (gloo) and tensorflow's dtensor,
    as far as they are installed. The exit status is 1 where a run of bringup failed.
    """
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    settings = Settings(seed=seed, **options)
    chosen = {name: library for name, library in LIBRARIES.items() if name in (only or LIBRARIES)}
    absent = {library.name: why for library in chosen.values() if (why := library.available())}
    present = {name: library for name, library in chosen.items() if library.name not in absent}
    facts = {
        **asdict(settings),
        "machine": machine_facts(),
        "versions": versions_of(present.values()),
        "absent": absent,
    }
    how = f"start order {settings.start_order}, clients by {settings.spawn}"
    introduce(f"seed {seed}, {settings.runs} runs, {how}", facts, err=as_json)
    startup, process = _measure(settings, present)
    if as_json:
        click.echo(
            json.dumps(facts | {"startup": list(map(as_object, startup)), "process": list(map(as_object, process))})
        )
    else:
        Console().print(startup_table(startup, BRINGUP.name), process_table(process) if process else "")
    if any(row.failures for row in [*startup, *process] if row.library == BRINGUP.name):
        sys.exit(1)


def _measure(settings: Settings, libraries: Mapping[str, Measured]) -> tuple[list[Row], list[Row]]:
    total = settings.runs * (len(settings.clients) * len(libraries) + (BRINGUP in libraries.values()))
    with make_progress() as progress:
        task = progress.add_task("starting", total=total)

        def ran(row: Row, failure: str | None) -> None:
            progress.update(task, advance=1, description=f"{row.clients} clients")
            if failure is not None:
                line = f"{row.library}, {row.clients} client{'s' * (row.clients > 1)}, {row.what}: failed: {failure}"
                progress.console.print(line, markup=False, highlight=False, soft_wrap=True)

        startup = measure_startup(settings, libraries, client_environment(os.environ), ran)
        if BRINGUP not in libraries.values():
            return startup, []
        return startup, measure_process(settings.runs, without_settings(os.environ), ran)
