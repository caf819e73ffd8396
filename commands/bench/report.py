"""What `bringup bench` prints: tables for people, one object for programs, and the facts that figures depend on."""

from __future__ import annotations

import os
import platform
import statistics
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib import metadata
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from ... import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .libraries import Measured


@dataclass(frozen=True, slots=True)
class Row:
    """The samples of one figure: of one library with one number of clients, or of one process.

    Attributes:
        library: The library's name.
        clients: The number of clients.
        what: What was timed.
        seconds: A sample for each run that came up.
        failures: A text for each that did not.
    """

    library: str
    clients: int
    what: str = "release to last return"
    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


class Ran(Protocol):
    """What is called after every run."""

    def __call__(self, row: Row, failure: str | None) -> None:
        """`row` has got a sample, or `failure` where that is not `None`."""


def as_object(row: Row) -> dict[str, object]:
    """The row with its raw samples and its statistics, which are `None` where no run came up."""
    return asdict(row) | statistics_of(row.seconds)


def statistics_of(seconds: Sequence[float]) -> dict[str, float | None]:
    """The median and the extremes of samples, `None` where there are none."""
    if not seconds:
        return {"median": None, "min": None, "max": None, "max_over_median": None}
    median = statistics.median(seconds)
    return {"median": median, "min": min(seconds), "max": max(seconds), "max_over_median": max(seconds) / median}


def introduce(what: str, facts: Mapping[str, Any], *, err: bool) -> None:
    """Say what is about to run, on what, and what is left out and why."""
    machine = facts["machine"]
    echo = partial(click.echo, err=err)
    echo(what)
    echo(f"{machine['cpus']} x {machine['cpu']}, {machine['kernel']}, load {machine['load_average'][0]:.2f}")
    echo(", ".join(f"{name} {version}" for name, version in facts["versions"].items()))
    for library, why in facts["absent"].items():
        echo(f"not measured: {library}: {why}")


def startup_table(rows: Sequence[Row], reference: str) -> Table:
    """One line per number of clients and library; times in milliseconds.

    Args:
        rows: The rows, in the order in which they are printed.
        reference: The library whose median the last ratio takes for one.
    """
    table = _table("From the release to the last client's return, in ms", "clients", "library")
    table.caption = "max/med: maximum / median"
    compares = {row.library for row in rows} > {reference}
    if compares:
        table.add_column("ratio", justify="right", no_wrap=True)
        table.caption += f"; ratio: median / {reference}'s median"
    medians = {row.clients: statistics.median(row.seconds) for row in rows if row.library == reference and row.seconds}
    for row, following in zip_longest(rows, rows[1:]):
        base = medians.get(row.clients)
        ratio = f"{statistics.median(row.seconds) / base:.2f}" if base and row.seconds else "-"
        last = following is None or following.clients != row.clients
        cells = [*_cells(row), ratio] if compares else _cells(row)
        table.add_row(str(row.clients), row.library, *cells, end_section=last)
    return table


def process_table(rows: Sequence[Row]) -> Table:
    """One line per figure of a single process; times in milliseconds."""
    table = _table("One process, in ms", "what")
    for row in rows:
        table.add_row(f"{row.library}: {row.what}", *_cells(row))
    return table


def _table(title: str, *labels: str) -> Table:
    table = Table(*labels, title=title, box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("median", "min", "max", "max/med", "failed"):
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _cells(row: Row) -> list[str]:
    failed = f"{len(row.failures)} of {len(row.failures) + len(row.seconds)}" if row.failures else "0"
    if not row.seconds:
        return ["-"] * 4 + [failed]
    median = statistics.median(row.seconds)
    times = [f"{value * 1000:.1f}" for value in (median, min(row.seconds), max(row.seconds))]
    return [*times, f"{max(row.seconds) / median:.2f}", failed]


def machine_facts() -> dict[str, object]:
    """The processor, how many of it this process may use, the load before the first run, the kernel, the Python."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    return {
        "cpu": _cpu_model(),
        "cpus": os.cpu_count(),
        "usable_cpus": affinity,
        "load_average": list(os.getloadavg()),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def versions_of(libraries: Iterable[Measured]) -> dict[str, str]:
    """The versions of bringup and of the packages that matter to the libraries, as far as they are installed."""
    found = {"bringup": __version__}
    for library in libraries:
        for name in library.distributions:
            try:
                found[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                continue
    return found
