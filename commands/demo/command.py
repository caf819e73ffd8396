"""`bringup demo`: brings up a job of N clients on this machine, compares their reports, and shows the job."""

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

from ...errors import ConfigurationError, PeerFailedError
from ...runtime.machines.id_ranges import format_ids
from ..outcome import Outcome
from ..prefixed_output import PrefixedOutput
from .agreement import disagreements
from .job import DemoJob
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
    job, outcome = asyncio.run(_run(num_clients, backend.upper()))
    if failure := _failure(job, outcome):
        status, lines = failure
        for line in lines:
            click.echo(f"bringup: {line}", err=True)
        sys.exit(status)
    result = summarize(job)
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


def summarize(job: DemoJob) -> dict[str, Any]:
    """Return the output of `demo --json` for a run in which every client came up and left in order."""
    assert job.released_at is not None
    reports = [one["report"] for one in job.said]
    up_after = [one["up"]["at"] - job.released_at for one in job.said]
    first = reports[0]
    at_odds = disagreements(reports, job.pids, job.addresses)
    return {
        **{name: first[name] for name in ("job_id", "job_name", "num_clients", "device_type", "simulated")},
        "seconds": max(up_after),
        "clients": [
            {**member, "num_devices": len(report["local_device_ids"]), "up_after": seconds}
            for member, report, seconds in zip(first["members"], reports, up_after, strict=True)
        ],
        **{name: first[name] for name in ("core_ids", "devices", "topology")},
        "timeline": phases([report["timeline"] for report in reports]),
        "all_reduce": first["all_reduce"],
        "agree": not at_odds,
        "disagreements": at_odds,
    }


async def _run(num_clients: int, device_type: str) -> tuple[DemoJob, Outcome]:
    output = PrefixedOutput(lambda _: None, os.environ)
    # Only shown on a terminal.
    status = Status("", console=Console(stderr=True, highlight=False))

    def show_progress(job: DemoJob) -> None:
        status.update(_progress(job))

    try:
        with DemoJob(num_clients, device_type, os.environ, on_output=output.write, on_progress=show_progress) as job:
            show_progress(job)
            with status:
                return job, await job.run()
    finally:
        output.close()


def _progress(job: DemoJob) -> str:
    clients = f"{len(job.said)} client{'s' * (len(job.said) != 1)}"
    for event, step in (("ready", "started"), ("up", "up"), ("left", "done")):
        missing = [client_id for client_id, said in enumerate(job.said) if event not in said]
        if missing:
            reached = len(job.said) - len(missing)
            return f"{reached} of {clients} {step}, waiting for {format_ids(missing)}"
    return f"{clients} done"


def _failure(job: DemoJob, outcome: Outcome) -> tuple[int, list[str]] | None:
    """Return the exit status and what to say where not every client came up and left in order."""
    if outcome.signal is not None and outcome.first_failure is None:
        return outcome.exit_status, ["the demo was ended by a signal"]
    failures = {client_id: said["failed"] for client_id, said in enumerate(job.said) if "failed" in said}
    lines = _errors(failures)
    first = outcome.first_failure
    is_first_silent = first is not None and first.client_id not in failures
    if is_first_silent:
        lines = [*job.notices, *lines]
    silent = [client_id for client_id, said in enumerate(job.said) if "left" not in said]
    if not lines and silent:
        lines.append(f"these clients ended early, without saying why: {format_ids(silent)}")
    if not lines:
        return None
    causes = {client_id: failure for client_id, failure in failures.items() if not _is_consequence(failure)}
    if causes and not is_first_silent and all(one["error"] == ConfigurationError.__name__ for one in causes.values()):
        # All clients have one environment: what some heard of the others adds nothing.
        return 2, _errors(causes)
    return 1, lines


def _is_consequence(failure: Mapping[str, Any]) -> bool:
    """Whether an error, as `error_to_json` gives it, names a client that failed before."""
    return PeerFailedError.__name__ in failure["bases"] and failure["attributes"]["client_id"] is not None


def _errors(failures: Mapping[int, Mapping[str, Any]]) -> list[str]:
    """Say the errors, each once, the causes before what followed from them."""
    clients: dict[tuple[bool, str], list[int]] = defaultdict(list)
    for client_id, failure in failures.items():
        clients[_is_consequence(failure), f"{failure['error']}: {failure['text']}"].append(client_id)
    return [
        f"{'client' if len(ids) == 1 else 'clients'} {format_ids(ids)}: {text}"
        for (_, text), ids in sorted(clients.items(), key=lambda item: (item[0][0], item[1]))
    ]
