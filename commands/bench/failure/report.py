"""What `bringup bench failure` prints: tables for people, one object for programs."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from ..report import statistics_of
from .faults import complaints

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .alarms import Alarms
    from .faults import Fault, FaultPlan
    from .run import FaultOutcome

_COLOUR = {"within": "green", "beyond": "red", "early": "red", "-": "default"}
_LEAST_WHOLE = 100.0


@dataclass(frozen=True, slots=True)
class FaultRow:
    """The samples of one fault with one number of clients; times in seconds from the fault.

    Attributes:
        library: The library's name.
        fault: The fault.
        clients: The number of clients.
        bound: Within which all survivors are to be told; `None` for other libraries.
        floor: Before which none may be told.
        last: For each run, when the last survivor was told.
        first: For each run, when the first was.
        told_as: How often survivors were told with which exception, or with which end of their process.
        wrong: A text for each survivor that was told of another client, or of another cause.
        failures: A text for each run in which a survivor hung, or that did not get as far as the fault.
    """

    library: str
    fault: Fault
    clients: int
    bound: float | None
    floor: float
    last: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    told_as: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def add(self, plan: FaultPlan, outcome: FaultOutcome) -> list[str]:
        """Take in a run; returns what is wrong with it."""
        if outcome.failure is not None:
            self.failures.append(outcome.failure)
            return [outcome.failure]
        self.last.append(max(one.after for one in outcome.told))
        self.first.append(min(one.after for one in outcome.told))
        self.told_as.update(one.error for one in outcome.told)
        wrong = [] if self.bound is None else list(complaints(plan, outcome.told))
        self.wrong.extend(wrong)
        return wrong

    @property
    def verdict(self) -> str:
        """`within` or `beyond` by the median, `early` where anybody was told before the floor, `-` without samples."""
        if not self.last or self.bound is None:
            return "-"
        if min(self.first) < self.floor:
            return "early"
        return "within" if statistics.median(self.last) <= self.bound else "beyond"

    def as_object(self) -> dict[str, object]:
        """The row for JSON, with the raw samples and their statistics."""
        return {
            "library": self.library,
            "fault": self.fault.kind,
            "victim": self.fault.victim,
            "phase": self.fault.phase,
            "clients": self.clients,
            "bound": self.bound,
            "floor": self.floor,
            "last": self.last,
            "first": self.first,
            **statistics_of(self.last),
            "verdict": self.verdict,
            "told_as": dict(self.told_as),
            "wrong": self.wrong,
            "failures": self.failures,
        }


def failure_table(rows: Sequence[FaultRow]) -> Table:
    """One line per fault and number of clients; times in milliseconds."""
    table = _table("From the fault until every survivor is told, in ms", "fault", "phase")
    _add_numbers(table, "clients", "median", "max", "first", "bound")
    table.add_column("verdict")
    table.caption = (
        "median, max: of the last survivor of each run; first: of all survivors of all runs. Where the verdict says "
        "nothing else, every survivor named the right client and cause. Silence counts from the last heartbeat, about "
        "an interval before the stop at most."
    )
    for row, following in zip_longest(rows, rows[1:]):
        ends = following is None or following.fault != row.fault
        bound = "-" if row.bound is None else f"{row.bound * 1000:.0f}"
        cells = (str(row.clients), *_times(row), bound, _verdict(row))
        table.add_row(row.fault.title, row.fault.phase, *cells, end_section=ends)
    return table


def peers_table(rows: Sequence[FaultRow]) -> Table:
    """One line per fault of another library, all with the same number of clients; times in milliseconds."""
    title = f"Other libraries, {rows[0].clients} clients: from the fault until every survivor knows, in ms"
    table = _table(title, "library", "fault", "phase")
    _add_numbers(table, "median", "max", "first")
    table.add_column("how")
    for row in rows:
        how = row.failures[0] if row.failures else ", ".join(row.told_as)
        table.add_row(row.library, row.fault.title, row.fault.phase, *_times(row), how)
    return table


def alarms_table(alarms: Alarms) -> Table:
    """One line per figure."""
    table = _table("False alarms beside a load that uses every core", "what")
    _add_numbers(table, "figure", "allowed")
    load = f"{alarms.load_cpu_seconds / alarms.load_seconds:.2f} of {alarms.load_processes} cores"
    table.add_row("time watched", f"{alarms.seconds:.0f} s", "")
    table.add_row("clients", str(alarms.clients), "")
    table.add_row(f"used by the load, {alarms.load_processes} processes", load, "")
    table.add_row("jobs that failed", str(len(alarms.failures)), "0")
    table.add_row("clients that were ever overdue", str(len(alarms.overdue)), "")
    table.add_row("largest heartbeat age seen", f"{alarms.largest_age:.2f} s", f"{alarms.heartbeat_timeout:g} s")
    return table


def _table(title: str, *labels: str) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for label in labels:
        table.add_column(label, no_wrap=True)
    return table


def _add_numbers(table: Table, *headings: str) -> None:
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)


def _times(row: FaultRow) -> list[str]:
    if not row.last:
        return ["-"] * 3
    times = (1000 * seconds for seconds in (statistics.median(row.last), max(row.last), min(row.first)))
    return [f"{time:.1f}" if time < _LEAST_WHOLE else f"{time:.0f}" for time in times]


def _verdict(row: FaultRow) -> str:
    problems = [f"{len(row.wrong)} wrong"] if row.wrong else []
    problems += [f"{len(row.failures)} failed"] if row.failures else []
    if problems:
        return f"[red]{row.verdict}, {', '.join(problems)}[/]"
    return f"[{_COLOUR[row.verdict]}]{row.verdict}[/]"
