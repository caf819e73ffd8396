"""`python -m tests.fuzz`, from the root of a checkout: checks many random inputs of each kind, and prints a table."""

from __future__ import annotations

import asyncio
import logging
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from .attacked_job import attack
from .coordinator import fuzz_coordinator
from .first_bytes import ONES, fuzz_first_bytes
from .http2 import fuzz_http2
from .messages import PLANES, fuzz_messages
from .services import fuzz_services
from .settings import fuzz_settings

Fuzz = Callable[[int, int], Counter[str]]
"""Checks a number of inputs, from a seed; returns how many had which outcome."""


def _settings(count: int, seed: int) -> Counter[str]:
    with tempfile.TemporaryDirectory() as folder:
        return fuzz_settings(Path(folder), count, seed)


def _strangers(count: int, seed: int) -> Counter[str]:
    """Attack a job of 8; `count` is of the connections to each port."""
    toll = attack(8, count, seed)
    click.echo(
        f"{toll.rounds:,} rounds of a barrier and an all-reduce, up to {toll.slowest:.2f} s each; of a client, memory "
        f"grew by up to {max(toll.grown):.1f} MiB, and the log by up to {max(map(len, toll.lines))} lines"
    )
    return toll.visits


TARGETS: dict[str, Fuzz] = {
    **{name: partial(fuzz_messages, name) for name in PLANES},
    **{name: partial(fuzz_first_bytes, name) for name in ONES},
    "settings": _settings,
    "calls": lambda count, seed: asyncio.run(fuzz_services(count, seed)),
    "coordinator": lambda count, seed: asyncio.run(fuzz_coordinator(count, seed)),
    "strangers": _strangers,
    "http2": lambda count, seed: asyncio.run(fuzz_http2(count, seed)),
}


@click.command()
@click.argument("targets", nargs=-1, type=click.Choice(list(TARGETS)))
@click.option("--inputs", default=20_000, show_default=True, type=click.IntRange(1), help="Of each target.")
@click.option("--seed", default=1, show_default=True, type=int)
def main(targets: tuple[str, ...], inputs: int, seed: int) -> None:
    """Check random inputs of these targets, or of all."""
    logging.disable(logging.CRITICAL)
    for name in targets or TARGETS:
        began, before = time.monotonic(), peak_memory()
        found = TARGETS[name](inputs, seed)
        outcomes = ", ".join(f"{count:,} {what}" for what, count in sorted(found.items()))
        seconds, grown = time.monotonic() - began, peak_memory() - before
        click.echo(f"{name:12} {inputs:,} inputs: {outcomes}; {seconds:.0f} s, memory grew by {grown:.0f} MiB")


def peak_memory() -> float:
    """Return the most memory that this process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
