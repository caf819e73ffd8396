"""`bringup bench services`: the key-value store and the barriers, library by library, on this machine's loopback."""

from __future__ import annotations

import importlib.util
import statistics
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ....transport.tcp.interfaces import free_ports
from ..libraries import BRINGUP, INSECURE
from ..report import new_table, statistics_of
from ..runner import (
    Case,
    Entrant,
    clients_option,
    count_option,
    insecure_option,
    json_option,
    only_option,
    run_scenario,
    seconds_option,
)
from ..trials import ServiceTrial
from .figures import Task
from .other_libraries import JAX_SERVICES, TORCH_SERVICES
from .own_library import BRINGUP_SERVICES, INSECURE_SERVICES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from ..runner import Hosts
    from ..trials import Outcome
    from .figures import Figure

_CROWD_ROUNDS_SHARE = 10
_CAPTION = (
    "get, set: the p50 of one client, a set with its acknowledgement (TCPStore's: with the check that follows it); "
    "barrier: a client's time in it, all meeting over and over; tasks: of one process, for the others threads; "
    "connect: until all have met; sync: through bringup.sync"
)
_VERDICTS = {True: "within", False: "beyond", None: ""}
_ENTRANTS = {
    "BRINGUP": Entrant(BRINGUP_SERVICES.library, f"{type(BRINGUP_SERVICES).__module__}:BRINGUP_SERVICES"),
    "JAX": Entrant(JAX_SERVICES.library, f"{type(JAX_SERVICES).__module__}:JAX_SERVICES"),
    "TORCH": Entrant(TORCH_SERVICES.library, f"{type(TORCH_SERVICES).__module__}:TORCH_SERVICES"),
}

_INSECURE = Entrant(INSECURE_SERVICES.library, f"{type(INSECURE_SERVICES).__module__}:INSECURE_SERVICES")


@dataclass(frozen=True, slots=True)
class Settings:
    """The command's options; seconds."""

    runs: int
    calls: int
    rounds: int
    clients: tuple[int, ...]
    barriers: tuple[int, ...]
    crowds: tuple[int, ...]
    loop: str
    timeout: float

    def tasks(self) -> list[Task]:
        """The kinds of runs, in the order of the table."""
        return [
            Task("calls", 1),
            *(Task("rate", clients) for clients in self.clients),
            *(Task("barrier", clients) for clients in self.barriers),
            *(Task("crowd", clients) for clients in self.crowds),
        ]

    def trial(self, task: Task) -> ServiceTrial:
        """One run; a crowd meets less often, as its rounds are long."""
        return ServiceTrial(
            ports=tuple(free_ports(task.processes)),
            order=tuple(range(task.processes)),
            kind=task.kind,
            clients=task.clients,
            calls=self.calls,
            rounds=max(1, self.rounds // _CROWD_ROUNDS_SHARE) if task.kind == "crowd" else self.rounds,
            loop=self.loop,
            timeout=self.timeout,
        )


@dataclass(frozen=True, slots=True)
class Row:
    """The samples of one figure of one library.

    Attributes:
        library: The library's name.
        figure: The figure.
        samples: A value for each run that gave one: seconds, or calls a second.
        failures: A text for each run that failed.
        wrong: A text for each wrong answer.
    """

    library: str
    figure: Figure
    samples: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Add a run."""
        if outcome.failure is not None:
            self.failures.append(outcome.failure)
            return
        self.wrong.extend(outcome.value["wrong"])
        if self.figure.key in outcome.value["samples"]:
            self.samples.append(outcome.value["samples"][self.figure.key])

    @property
    def within(self) -> bool | None:
        """Whether the median is within the bar; `None` where there is no bar, or no sample."""
        return self.figure.is_within(statistics.median(self.samples)) if self.samples else None

    @property
    def median(self) -> str:
        """The median as a cell of the table."""
        if self.samples:
            return shown_value(self.figure, statistics.median(self.samples))
        return "failed" if self.failures else "-"

    def as_object(self) -> dict[str, Any]:
        """The row for JSON: its samples and statistics, and whether its median is within the bar."""
        found = {"samples": self.samples, "failures": self.failures, "wrong": self.wrong, "within": self.within}
        return {"library": self.library} | asdict(self.figure) | found | statistics_of(self.samples)


class ServiceScenario:
    """The services of each library, task by task; a `Scenario`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._rows: list[Row] = []
        self.title = f"{settings.runs} runs of each kind, callers on {settings.loop}"
        self.facts = asdict(settings)

    def cases(self, entrants: Sequence[Entrant], hosts: Hosts) -> list[Case]:
        cases: list[Case] = []
        for task in self._settings.tasks():
            turn = []
            for entrant in entrants:
                rows = [Row(entrant.library.name, figure) for figure in task.figures]
                self._rows += rows
                title = f"{entrant.library.name}, {task.clients} clients, {task.kind}"
                turn.append(Case(title, partial(self._sample, hosts, entrant.program, task, rows)))
            cases += turn * self._settings.runs
        return cases

    def _sample(self, hosts: Hosts, program: str, task: Task, rows: Sequence[Row]) -> list[str]:
        outcome = hosts.run(program, self._settings.trial(task))
        for row in rows:
            row.add(outcome)
        return list(outcome.value["wrong"]) if outcome.failure is None else [f"failed: {outcome.failure}"]

    def as_object(self) -> dict[str, Any]:
        ratios = tls_over_plain(self._rows)
        return {"rows": [row.as_object() | {"tls_over_plain": ratios.get(row.figure)} for row in self._rows]}

    def tables(self) -> list[Table]:
        return [services_table(self._rows, BRINGUP.name)]

    @property
    def is_sound(self) -> bool:
        """Whether no answer was wrong, and no run of bringup failed."""
        return is_sound(self._rows, BRINGUP.name)


def is_sound(rows: Sequence[Row], reference: str) -> bool:
    """Whether no answer was wrong, and no run of the reference failed."""
    return not any(row.wrong or (row.failures and row.library == reference) for row in rows)


def services_table(rows: Sequence[Row], reference: str) -> Table:
    """One line per figure: the bar, the reference's median and whether it is within, and the medians of the others.

    Args:
        rows: All rows.
        reference: The library whose figures the bars are for.
    """
    figures = list(dict.fromkeys(row.figure for row in rows))
    libraries = list(dict.fromkeys(row.library for row in rows))
    others = [library for library in libraries if library != reference]
    cells = {(row.library, row.figure): row for row in rows}
    ratios = tls_over_plain(rows)
    numbers = ["bar", *([reference, ""] if reference in libraries else []), *others]
    numbers += ["TLS / plain"] if ratios else []
    table = new_table("Medians over the runs", ["what"], numbers, _CAPTION)
    for figure in figures:
        bar = "" if figure.bar is None else shown_value(figure, figure.bar)
        own = cells.get((reference, figure))
        shown = [] if own is None else [own.median, _VERDICTS[own.within]]
        medians = [cells[other, figure].median for other in others]
        ratio = [f"{ratios[figure]:.2f}" if figure in ratios else "-"] if ratios else []
        table.add_row(figure.words, bar, *shown, *medians, *ratio)
    return table


def tls_over_plain(rows: Sequence[Row]) -> dict[Figure, float]:
    """The ratios of bringup's medians, with TLS over without, where both were measured; of rates, the inverse."""
    medians = {(row.library, row.figure): statistics.median(row.samples) for row in rows if row.samples}
    return {
        figure: (value / medians[INSECURE.name, figure]) ** (-1 if figure.is_rate else 1)
        for (library, figure), value in medians.items()
        if library == BRINGUP.name and (INSECURE.name, figure) in medians
    }


def shown_value(figure: Figure, value: float) -> str:
    """A value with the unit that suits its size."""
    if figure.is_rate:
        return f"{value:,.0f}/s"
    if value < 0.2e-3:
        return f"{value * 1e6:.0f} us"
    return f"{value * 1e3:.2f} ms" if value < 0.02 else f"{value * 1e3:.0f} ms"


@click.command("services")
@count_option("--runs", 5, "Runs of each kind.")
@count_option("--calls", 2000, "Calls of 100 bytes a run.")
@count_option("--rounds", 300, "Rounds of a barrier a run.")
@clients_option("--clients", "8", 1, "Clients that get at once.")
@clients_option("--barriers", "4,16", 2, "Processes that meet.")
@clients_option("--crowds", "64,256,1024", 2, "Clients in one process.")
@click.option(
    "--loop",
    type=click.Choice(["uvloop", "asyncio"]),
    help="The event loop that bringup's callers use; uvloop where it is installed.",
)
@seconds_option("--timeout", 120.0, "Seconds after which a run has failed and its clients are killed.")
@insecure_option
@only_option(_ENTRANTS)
@json_option
def services_command(only: tuple[str, ...], insecure: bool, as_json: bool, loop: str | None, **options: Any) -> None:
    """Time the key-value store and the barriers of jobs on this machine's loopback.

    Measured are bringup (SIM backend), jax's distributed client and torch's TCPStore, as far as they are installed.
    Calls of 100 KB are a tenth of --calls, rounds of clients in one process a tenth of --rounds: there jax and torch
    have a thread for each client, and bringup a task. Whatever the figures are, the exit status is 0, save where an
    answer was wrong, a barrier let somebody go too early, or a run of bringup failed: then it is 1.
    """
    loop = loop or ("uvloop" if importlib.util.find_spec("uvloop") else "asyncio")
    entrants = [entrant for name, entrant in _ENTRANTS.items() if name in (only or _ENTRANTS)]
    if insecure:
        entrants.append(_INSECURE)
    run_scenario(ServiceScenario(Settings(loop=loop, **options)), entrants, as_json=as_json)
