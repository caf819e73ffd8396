"""`bringup bench failure`: from a fault until every survivor has been told of it, and whom they were told of."""

from __future__ import annotations

import json
import os
import random
import sys
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import click
from rich.console import Console

from ..libraries import BRINGUP, client_environment
from ..options import clients_parser, make_progress
from ..report import introduce, machine_facts, versions_of
from .alarms import watch_for_alarms
from .faults import CATALOGUE, FEWEST_CLIENTS, Kind
from .libraries import FAILURE_PEERS
from .measure import PEER_RUNS_MAX, PEER_VICTIMS, FailureSettings, measure_faults, measure_peers
from .report import alarms_table, failure_table, peers_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .faults import Fault
    from .report import FaultRow

_seconds = partial(click.option, type=click.FloatRange(min=0, min_open=True))


@click.command("failure")
@click.option(
    "--clients",
    default="4,8,16,32",
    callback=clients_parser(FEWEST_CLIENTS),
    show_default=True,
    help="Numbers of clients.",
)
@click.option("--runs", default=20, type=click.IntRange(min=1), show_default=True, help="Runs of each row.")
@_seconds("--timeout", default=30.0, show_default=True, help="Seconds beyond its bound after which a survivor hangs.")
@click.option("--seed", type=int, help="Seed of victims, orders and pauses; drawn and printed where not given.")
@_seconds("--heartbeat-timeout", default=2.0, show_default=True, help="Of the jobs in which a client is stopped.")
@_seconds("--heartbeat-interval", default=0.2, show_default=True, help="Of the jobs in which a client is stopped.")
@_seconds("--deadline", default=2.0, show_default=True, help="The initialization_timeout of jobs that wait in vain.")
@click.option("--only", multiple=True, type=click.Choice(get_args(Kind)), help="Leave other faults out.")
@click.option("--peers", is_flag=True, help=f"Kill clients of jax and torch as well, in {PEER_RUNS_MAX} runs at most.")
@_seconds("--alarms", help="Instead: watch a healthy job for so many seconds beside a load that uses every core.")
@click.option("--alarm-clients", default=16, type=click.IntRange(2), show_default=True, help="The clients of that job.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with the raw samples.")
def failure_command(
    only: tuple[str, ...],
    peers: bool,
    alarms: float | None,
    alarm_clients: int,
    as_json: bool,
    seed: int | None,
    **options: Any,
) -> None:
    """Time how long it takes until every survivor of a fault is told, in jobs on this machine's loopback.

    The clients use the SIM backend. The time counts from right before the fault, and ends when the pending call of the
    last survivor has raised. Whatever the figures are, the exit status is 0, save where a survivor hung or was told of
    the wrong client or cause, or where a healthy job failed: then it is 1.
    """
    if options["heartbeat_timeout"] <= options["heartbeat_interval"]:
        raise click.BadParameter("it must be greater than --heartbeat-interval", param_hint="--heartbeat-timeout")
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    settings = FailureSettings(seed=seed, **options)
    if alarms is not None:
        is_sound = _show_alarms(alarm_clients, alarms, as_json)
    else:
        faults = [fault for fault in CATALOGUE if fault.kind in (only or get_args(Kind))]
        is_sound = _show_faults(settings, faults, peers, as_json)
    if not is_sound:
        sys.exit(1)


def _show_faults(settings: FailureSettings, faults: Sequence[Fault], with_peers: bool, as_json: bool) -> bool:
    """Measure and print; returns whether every survivor was told of the right client."""
    peers = {name: peer.measured for name, peer in FAILURE_PEERS.items() if with_peers}
    absent = {peer.name: why for peer in peers.values() if (why := peer.available())}
    present = {name: peer for name, peer in peers.items() if peer.name not in absent}
    facts = {
        **asdict(settings),
        "machine": machine_facts(),
        "versions": versions_of([BRINGUP, *present.values()]),
        "absent": absent,
    }
    introduce(f"seed {settings.seed}, {settings.runs} runs of each row", facts, err=as_json)
    rows, others = _measure(settings, faults, list(present))
    if as_json:
        objects = {"rows": [row.as_object() for row in rows], "peers": [row.as_object() for row in others]}
        click.echo(json.dumps(facts | objects))
    else:
        Console().print(failure_table(rows), peers_table(others) if others else "")
    return not any(row.wrong or row.failures for row in rows)


def _measure(
    settings: FailureSettings, faults: Sequence[Fault], peers: Sequence[str]
) -> tuple[list[FaultRow], list[FaultRow]]:
    environment = client_environment(os.environ)
    of_peers = len(peers) * len(PEER_VICTIMS) * min(settings.runs, PEER_RUNS_MAX)
    with make_progress() as progress:
        total = settings.runs * len(settings.clients) * len(faults) + of_peers
        task = progress.add_task("starting", total=total)

        def ran(row: FaultRow, problems: Sequence[str]) -> None:
            progress.update(task, advance=1, description=f"{row.clients} clients, {row.fault.title}")
            for problem in problems:
                line = f"{row.library}, {row.clients} clients, {row.fault.title}, {row.fault.phase}: {problem}"
                progress.console.print(line, markup=False, highlight=False, soft_wrap=True)

        rows = measure_faults(settings, faults, environment, ran)
        return rows, measure_peers(settings, peers, environment, ran)


def _show_alarms(clients: int, seconds: float, as_json: bool) -> bool:
    """Watch and print; returns whether there was no alarm."""
    facts = {"machine": machine_facts(), "versions": versions_of([BRINGUP]), "absent": {}}
    introduce(f"{clients} clients for {seconds:g} s, beside a load", facts, err=as_json)
    with make_progress() as progress:
        progress.add_task("watching", total=None)
        alarms = watch_for_alarms(
            clients,
            seconds,
            client_environment(os.environ),
            lambda line: progress.console.print(line, markup=False, highlight=False, soft_wrap=True),
        )
    if as_json:
        click.echo(json.dumps(facts | {"alarms": asdict(alarms)}))
    else:
        Console().print(alarms_table(alarms))
    return not alarms.failures
