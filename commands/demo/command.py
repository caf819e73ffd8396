"""`bringup demo`: a job of N clients on this machine, brought up for real, compared, and shown."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import click
from rich.console import Console
from rich.status import Status

from ...devices.sim.backend import SimBackend
from ...errors import ConfigurationError
from ...runtime.machines.id_ranges import format_ids
from ..prefixed_output import PrefixedOutput
from .agreement import disagreements
from .job import DemoRun, Said, run_job
from .tables import phases, print_job

_WIDTH_OFF_TERMINAL = 120


@click.command()
@click.option(
    "-n", "--num-clients", type=click.IntRange(1, 1024), default=4, show_default=True, metavar="N", help="How many."
)
@click.option(
    "--backend",
    default="sim",
    show_default=True,
    metavar="TYPE",
    help="The type of device: sim (a simulated slice), cpu, or any other that is installed.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def demo(num_clients: int, backend: str, as_json: bool) -> None:
    """Bring up a job of N clients, each a process of this machine, and show what they agree on.

    Every client calls `await bringup.initialize()`, takes part in an all-reduce and a barrier, and says what it holds;
    all of it is compared. Any failure or disagreement makes the exit status non-zero.
    """
    run = asyncio.run(_run(num_clients, backend.upper()))
    if failure := _failure(run):
        status, lines = failure
        for line in lines:
            click.echo(f"bringup: {line}", err=True)
        sys.exit(status)
    result = summarize(run)
    if as_json:
        click.echo(json.dumps(result, indent=2))
    else:
        console = Console(highlight=False)
        if not console.is_terminal and "COLUMNS" not in os.environ:
            console.width = _WIDTH_OFF_TERMINAL
        print_job(result, console)
    for line in result["disagreements"]:
        click.echo(f"bringup: {line}", err=True)
    sys.exit(0 if result["agree"] else 1)


def summarize(run: DemoRun) -> dict[str, Any]:
    """Return what `demo --json` prints of a run in which every client came up and left in order."""
    assert run.released_at is not None
    reports = [one.report for one in run.said if one.report is not None]
    up_after = [one.up_at - run.released_at for one in run.said if one.up_at is not None]
    first = reports[0]
    at_odds = disagreements(reports, run.pids, run.addresses)
    return {
        **{name: first[name] for name in ("job_id", "job_name", "num_clients", "device_type")},
        "simulated": first["device_type"] == SimBackend.device_type,
        "seconds": max(up_after),
        "clients": [
            {**member, "num_devices": len(report["local_device_ids"]), "up_after": seconds}
            for member, report, seconds in zip(first["members"], reports, up_after, strict=False)
        ],
        **{name: first[name] for name in ("core_ids", "devices", "topology")},
        "timeline": phases([report["timeline"] for report in reports]),
        "all_reduce": first["all_reduce"],
        "agree": not at_odds,
        "disagreements": at_odds,
    }


async def _run(num_clients: int, device_type: str) -> DemoRun:
    output = PrefixedOutput(lambda _: None, os.environ)
    # Only shown on a terminal.
    status = Status("", console=Console(stderr=True, highlight=False))

    def show_progress(clients: tuple[Said, ...]) -> None:
        status.update(_progress(clients))

    show_progress(tuple(Said() for _ in range(num_clients)))
    try:
        with status:
            return await run_job(
                num_clients,
                device_type,
                os.environ,
                on_output=output.write,
                on_progress=show_progress,
            )
    finally:
        output.close()


def _progress(clients: tuple[Said, ...]) -> str:
    number = len(clients)
    steps = {
        "started": [one.ready for one in clients],
        "up": [one.up_at is not None for one in clients],
        "done": [one.left for one in clients],
    }
    for step, reached in steps.items():
        if not all(reached):
            missing = format_ids(client_id for client_id, there in enumerate(reached) if not there)
            return f"{sum(reached)} of {number} client{'s' * (number != 1)} {step}, waiting for {missing}"
    return f"{number} client{'s' * (number != 1)} done"


def _failure(run: DemoRun) -> tuple[int, list[str]] | None:
    """Return the exit status and what to say where not every client came up and left in order."""
    if run.outcome.signal is not None and run.outcome.first_failure is None:
        return run.outcome.exit_status, ["the demo was ended by a signal"]
    failures = {client_id: one.failure for client_id, one in enumerate(run.said) if one.failure is not None}
    lines = _errors(failures)
    first = run.outcome.first_failure
    is_first_silent = first is not None and first.client_id not in failures
    if is_first_silent:
        lines = [*run.notices, *lines]
    if not lines and not all(one.left for one in run.said):
        silent = format_ids(client_id for client_id, one in enumerate(run.said) if not one.left)
        lines.append(f"these clients ended early, without saying why: {silent}")
    if not lines:
        return None
    causes = {client_id: failure for client_id, failure in failures.items() if failure["culprit"] is None}
    if causes and not is_first_silent and all(one["type"] == ConfigurationError.__name__ for one in causes.values()):
        # All clients have one environment: what some heard of the others adds nothing.
        return 2, _errors(causes)
    return 1, lines


def _errors(failures: Mapping[int, Mapping[str, Any]]) -> list[str]:
    """Say the errors, each once, the causes before what followed from them."""
    clients: dict[tuple[bool, str], list[int]] = defaultdict(list)
    for client_id, failure in failures.items():
        clients[failure["culprit"] is not None, f"{failure['type']}: {failure['text']}"].append(client_id)
    return [
        f"{'client' if len(ids) == 1 else 'clients'} {format_ids(ids)}: {text}"
        for (_, text), ids in sorted(clients.items(), key=lambda item: (item[0][0], item[1]))
    ]
