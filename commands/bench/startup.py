"""`bringup bench startup`: from the release of all clients until the last is up, library by library."""

from __future__ import annotations

import os
import random
import statistics
import sys
import time
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal

import click

from ...transport.tcp.interfaces import free_ports
from .libraries import BRINGUP, GRPC, INSECURE, LIBRARIES, without_settings
from .report import milliseconds, new_table, statistics_of
from .runner import (
    Case,
    Entrant,
    ProcessFailed,
    clients_option,
    count_option,
    insecure_option,
    json_option,
    only_option,
    run_process,
    run_scenario,
    seconds_option,
)
from .trials import StartupTrial

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

    from .runner import Hosts

StartOrder = Literal["together", "coordinator-last", "coordinator-first"]

_PROCESS_TIMEOUT = 60.0  # a whole local process takes a quarter of a second
_STATISTICS = ("median", "min", "max", "max/med", "failed")
_LOCAL = """
import asyncio, time
import bringup
async def main():
    await bringup.initialize("SIM")
    print(time.monotonic(), flush=True)
asyncio.run(main())
"""


@dataclass(frozen=True, slots=True)
class Settings:
    """The command's options; durations in seconds."""

    clients: tuple[int, ...]
    runs: int
    timeout: float
    seed: int
    start_order: StartOrder
    offset: float
    spawn: Literal["fork", "exec"]


@dataclass(frozen=True, slots=True)
class Row:
    """The samples of one figure: of one library with one number of clients, or of one process.

    Attributes:
        library: The library's name.
        clients: The number of clients.
        what: The figure.
        seconds: A sample for each run that came up.
        failures: A text for each that did not.
        processor: A client's mean processor seconds in each run of which they are known.
    """

    library: str
    clients: int
    what: str = "release to last return"
    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    @property
    def title(self) -> str:
        """Names the figure beside the progress bar."""
        return f"{self.library}, {self.clients} client{'s' * (self.clients > 1)}, {self.what}"

    def take(self, seconds: float | None, failure: str | None) -> list[str]:
        """Add the sample of one run, or its failure; returns the problems with it."""
        if failure is None and seconds is not None:
            self.seconds.append(seconds)
            return []
        self.failures.append(failure or "no reason given")
        return [f"failed: {self.failures[-1]}"]

    def as_object(self) -> dict[str, object]:
        """The row for JSON: its raw samples and their statistics."""
        return asdict(self) | statistics_of(self.seconds)

    @property
    def cells(self) -> list[str]:
        """The statistics as cells of a table, in milliseconds."""
        failed = f"{len(self.failures)} of {len(self.failures) + len(self.seconds)}" if self.failures else "0"
        if not self.seconds:
            return ["-"] * 4 + [failed]
        median = statistics.median(self.seconds)
        times = milliseconds(median, min(self.seconds), max(self.seconds))
        return [*times, f"{max(self.seconds) / median:.2f}", failed]


def draw_trial(settings: Settings, clients: int, rng: random.Random) -> StartupTrial:
    """Draw the order of one run's processes, and take the early clients from the start order."""
    order = list(range(clients))
    rng.shuffle(order)
    early: tuple[int, ...] = ()
    if settings.start_order == "coordinator-last":
        early = tuple(range(1, clients))
    elif settings.start_order == "coordinator-first" and clients > 1:
        early = (0,)
    return StartupTrial(
        ports=tuple(free_ports(clients)),
        order=tuple(order),
        early=early,
        offset=settings.offset,
        timeout=settings.timeout,
    )


class StartupScenario:
    """Start-up of jobs of each library, then of one process of bringup; a `Scenario`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._startup: list[Row] = []
        self._process: list[Row] = []
        self._rng = random.Random(settings.seed)  # noqa: S311 - to be repeated
        self.title = (
            f"seed {settings.seed}, {settings.runs} runs, start order {settings.start_order}, "
            f"clients by {settings.spawn}"
        )
        self.facts = asdict(settings)

    def cases(self, entrants: Sequence[Entrant], hosts: Hosts) -> list[Case]:
        cases: list[Case] = []
        for clients in self._settings.clients:
            turn = []
            for entrant in entrants:
                row = Row(entrant.library.name, clients)
                self._startup.append(row)
                turn.append(Case(row.title, partial(self._sample, hosts, entrant.program, row)))
            cases += turn * self._settings.runs
        if any(entrant.library is BRINGUP for entrant in entrants):
            process = ProcessFigures(without_settings(os.environ))
            self._process = process.rows
            cases += [Case(process.rows[-1].title, process.sample)] * self._settings.runs
        return cases

    def _sample(self, hosts: Hosts, program: str, row: Row) -> list[str]:
        outcome = hosts.run(program, draw_trial(self._settings, row.clients, self._rng))
        if outcome.failure is not None:
            return row.take(None, outcome.failure)
        if (used := outcome.value["processor"]) is not None:
            row.processor.append(used)
        return row.take(outcome.value["seconds"], None)

    def as_object(self) -> dict[str, Any]:
        return {
            "startup": [row.as_object() for row in self._startup],
            "tls_over_plain": tls_over_plain(self._startup),
            "process": [row.as_object() for row in self._process],
        }

    def tables(self) -> list[Table]:
        """One line per number of clients and library, then one per figure of a single process."""
        tables = [startup_table(self._startup)]
        if ratios := tls_over_plain(self._startup):
            table = new_table("What TLS costs bringup", ["clients"], ["TLS / plain"], "ratio of the medians")
            for clients, ratio in ratios.items():
                table.add_row(str(clients), f"{ratio:.2f}")
            tables.append(table)
        if self._process:
            table = new_table("One process, in ms", ["what"], _STATISTICS)
            for row in self._process:
                table.add_row(f"{row.library}: {row.what}", *row.cells)
            tables.append(table)
        return tables

    @property
    def is_sound(self) -> bool:
        """Whether every run of bringup came up."""
        own = (BRINGUP.name, INSECURE.name)
        return not any(row.failures for row in [*self._startup, *self._process] if row.library in own)


def startup_table(rows: Sequence[Row]) -> Table:
    """The table of start-up times, in milliseconds.

    The unit of the ratios is the median of gRPC alone, or bringup's where that is not measured.

    Args:
        rows: The rows, by number of clients.
    """
    libraries = {row.library for row in rows}
    reference = GRPC.name if GRPC.name in libraries else BRINGUP.name
    compares = libraries > {reference}
    caption = "max/med: maximum / median; cpu: median processor time of a client"
    caption += f"; ratio: median / {reference}'s median" if compares else ""
    numbers = [*_STATISTICS, "cpu", *(["ratio"] if compares else [])]
    table = new_table("From the release to the last client's return, in ms", ["clients", "library"], numbers, caption)
    medians = {row.clients: statistics.median(row.seconds) for row in rows if row.library == reference and row.seconds}
    for row, following in zip_longest(rows, rows[1:]):
        base = medians.get(row.clients)
        ratio = f"{statistics.median(row.seconds) / base:.2f}" if base and row.seconds else "-"
        last = following is None or following.clients != row.clients
        used = milliseconds(statistics.median(row.processor)) if row.processor else ["-"]
        cells = [*row.cells, *used, *([ratio] if compares else [])]
        table.add_row(str(row.clients), row.library, *cells, end_section=last)
    return table


def tls_over_plain(rows: Sequence[Row]) -> dict[int, float]:
    """The ratios of bringup's median start-up times, with TLS over without, by number of clients."""
    medians = {(row.library, row.clients): statistics.median(row.seconds) for row in rows if row.seconds}
    return {
        clients: seconds / medians[INSECURE.name, clients]
        for (library, clients), seconds in medians.items()
        if library == BRINGUP.name and (INSECURE.name, clients) in medians
    }


class ProcessFigures:
    """The figures of a single process: `import bringup`, and a whole process in local mode, in fresh interpreters.

    Args:
        environment: The processes' environment.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._imported = Row(BRINGUP.name, 1, "import, less a bare interpreter's start")
        self._returned = Row(BRINGUP.name, 1, "local mode, interpreter start to system returned")
        self._exited = Row(BRINGUP.name, 1, "local mode, interpreter start to exit")
        self.rows = [self._imported, self._returned, self._exited]
        # A checkout's first import compiles; an installed package's does not.
        self._environment = {name: value for name, value in environment.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self._is_compiled = False

    def sample(self) -> list[str]:
        """Take one sample of each figure; returns the problems with it."""
        try:
            if not self._is_compiled:
                self._run(_LOCAL)
                self._is_compiled = True
            bare, _, _ = self._run("pass")
            whole, _, _ = self._run("import bringup")
            self._imported.seconds.append(whole - bare)
            whole, began, stamp = self._run(_LOCAL)
            self._returned.seconds.append(float(stamp) - began)
            return self._exited.take(whole, None)
        except ProcessFailed as error:
            return self._exited.take(None, f"the process {error}")

    def _run(self, code: str) -> tuple[float, float, str]:
        """Run a program; returns its seconds, the time of its start, and its output."""
        began = time.monotonic()
        output = run_process([sys.executable, "-P", "-c", code], _PROCESS_TIMEOUT, self._environment)
        return time.monotonic() - began, began, output


@click.command("startup")
@clients_option("--clients", "4,16,64", 1, "Numbers of clients.")
@count_option("--runs", 20, "Runs of each row.")
@seconds_option("--timeout", 60.0, "Seconds after which a run has failed and its clients are killed.")
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
@insecure_option
@only_option(LIBRARIES)
@json_option
def startup_command(only: tuple[str, ...], insecure: bool, as_json: bool, seed: int | None, **options: Any) -> None:
    """Time the start-up of jobs on this machine's loopback.

    All clients of a run have done their imports when they are released; the time ends when the last of them has
    returned from its library's call. Measured are bringup (SIM backend), jax, torch (gloo) and tensorflow's dtensor,
    as far as they are installed, and as their floor gRPC alone: one stream to each client, with one answer when all
    are there. The exit status is 1 where a run of bringup failed.
    """
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    settings = Settings(seed=seed, **options)
    module = type(BRINGUP).__module__
    entrants = [Entrant(LIBRARIES[name], f"{module}:{name}") for name in LIBRARIES if name in (only or LIBRARIES)]
    if insecure:
        entrants.append(Entrant(INSECURE, f"{module}:INSECURE"))
    run_scenario(StartupScenario(settings), entrants, as_json=as_json, spawn=settings.spawn)
