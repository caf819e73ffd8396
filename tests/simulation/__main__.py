"""`python -m tests.simulation`, from the root of a checkout: runs seeds, and prints a summary, or a failed history."""

from __future__ import annotations

import sys
import time
from collections import Counter

import click

from .campaign import Failure, Summary, replay_command, run_seeds
from .run import run_seed
from .world import World

_FAILURES_SHOWN = 3


@click.command()
@click.option("--seeds", default=1000, show_default=True, type=click.IntRange(1), help="How many seeds to run.")
@click.option("--peers", default=50, show_default=True, type=click.IntRange(2), help="How many clients the job has.")
@click.option("--first-seed", default=0, show_default=True, type=click.IntRange(0), help="The first of them.")
@click.option("--seed", default=None, type=click.IntRange(0), help="Run this one alone, and print all that happens.")
@click.option(
    "--group-size", default=None, type=click.IntRange(0), help="Clients of a group, about; 0: one group of all. [drawn]"
)
@click.option("--jobs", default=1, show_default=True, type=click.IntRange(1), help="How many processors to use.")
def main(seeds: int, peers: int, first_seed: int, seed: int | None, group_size: int | None, jobs: int) -> None:
    """Simulate a job that comes up, lives and ends among random faults, and check that all hear of each in time.

    Everything is decided by the seed: the same seed, number of peers and size of groups give the same run, to the last
    digit.
    """
    if seed is not None:
        sys.exit(_replay(seed, peers, group_size))
    began = time.monotonic()
    total = Summary()
    for part in run_seeds(range(first_seed, first_seed + seeds), peers, jobs, group_size=group_size):
        for failure in part.failures:
            if len(total.failures) + part.failures.index(failure) < _FAILURES_SHOWN:
                _show(failure, peers, group_size)
        total.merge(part)
        if sys.stderr.isatty():
            click.echo(f"\r{total.seeds} of {seeds} seeds, {len(total.failures)} failed ", nl=False, err=True)
    if sys.stderr.isatty():
        click.echo(err=True)
    _sum_up(total, first_seed, peers, time.monotonic() - began)
    for failure in total.failures[_FAILURES_SHOWN:]:
        click.echo(f"failed     {replay_command(failure.seed, peers, group_size)}")
    sys.exit(1 if total.failures else 0)


def _replay(seed: int, peers: int, group_size: int | None) -> int:
    worlds: list[World] = []
    try:
        report = run_seed(seed, peers, worlds.append, group_size=group_size)
        outcome = f"is sound: {_counted(report.faults)}; {_counted(report.outcomes)}"
    except Exception as error:  # noqa: BLE001 - whatever it is, it is to be shown
        outcome = f"fails: {type(error).__name__}: {error}"
    click.echo(worlds[0].clock.history())
    click.echo(f"trace      {worlds[0].clock.trace}")
    click.echo(f"seed {seed} with {peers} peers {outcome}")
    return 0 if outcome.startswith("is sound") else 1


def _show(failure: Failure, peers: int, group_size: int | None) -> None:
    click.echo(f"\nseed {failure.seed} with {peers} peers fails: {failure.what}\n{failure.history}")
    click.echo(f"All that happens: {replay_command(failure.seed, peers, group_size)}\n")


def _sum_up(total: Summary, first_seed: int, peers: int, seconds: float) -> None:
    click.echo(f"seeds      {total.seeds:,} from {first_seed}, {len(total.failures)} failed")
    click.echo(f"peers      {peers:,}")
    click.echo(f"faults     {_counted(total.faults)}")
    click.echo(f"outcomes   {_counted(total.outcomes)}")
    click.echo(f"events     {total.steps:,} in {total.seconds / 3600:,.1f} simulated hours")
    click.echo(f"seconds    {seconds:.1f}, {1000 * seconds / total.seeds:.0f} ms a seed")


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items(), key=lambda item: -item[1])) or "none"


if __name__ == "__main__":
    main()
