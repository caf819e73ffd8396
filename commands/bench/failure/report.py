"""The results of `bringup bench failure`: a row per fault and number of clients, and its tables."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING

from ..report import new_table, statistics_of
from .faults import Notice, complaints

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from ..trials import FaultTrial, Outcome
    from .faults import Fault

_COLOUR = {"within": "green", "beyond": "red", "early": "red", "-": "default"}
_LEAST_WHOLE = 100.0
_CAPTION = (
    "median, max: of the last survivor of each run; first: of all survivors of all runs. Where the verdict says "
    "nothing else, every survivor named the right client and cause. Silence counts from the last heartbeat, about "
    "an interval before the stop at most."
)


def notices_of(outcome: Outcome) -> list[Notice]:
    """The notices of all survivors of a trial that did not fail."""
    return [Notice(**fields) for fields in outcome.value]


@dataclass(frozen=True, slots=True)
class FaultRow:
    """The samples of one fault with one number of clients; times in seconds from the fault.

    Attributes:
        library: The library's name.
        fault: The fault.
        clients: The number of clients.
        bound: The time by which all survivors are to have a notice; `None` for other libraries.
        floor: The time before which none may have one.
        last: For each run, the time of the last survivor's notice.
        first: For each run, that of the first survivor's.
        told_as: The count of notices by exception, or by the end of the process.
        wrong: A text for each notice that names another client or another cause.
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

    @property
    def title(self) -> str:
        """Names the row beside the progress bar."""
        return f"{self.library}, {self.clients} clients, {self.fault.title}, {self.fault.phase}"

    def add(self, trial: FaultTrial, outcome: Outcome) -> list[str]:
        """Add a run; returns the problems with it."""
        if outcome.failure is not None:
            self.failures.append(outcome.failure)
            return [outcome.failure]
        notices = notices_of(outcome)
        self.last.append(max(one.after for one in notices))
        self.first.append(min(one.after for one in notices))
        self.told_as.update(one.error for one in notices)
        wrong = [] if self.bound is None else list(complaints(trial, notices))
        self.wrong.extend(wrong)
        return wrong

    @property
    def verdict(self) -> str:
        """`within` or `beyond` by the median, `early` where a notice came before the floor, `-` without samples."""
        if not self.last or self.bound is None:
            return "-"
        if min(self.first) < self.floor:
            return "early"
        return "within" if statistics.median(self.last) <= self.bound else "beyond"

    def as_object(self) -> dict[str, object]:
        """The row for JSON: its raw samples and their statistics."""
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

    @property
    def times(self) -> list[str]:
        """The median, the maximum and the first as cells of a table, in milliseconds."""
        if not self.last:
            return ["-"] * 3
        times = (1000 * seconds for seconds in (statistics.median(self.last), max(self.last), min(self.first)))
        return [f"{time:.1f}" if time < _LEAST_WHOLE else f"{time:.0f}" for time in times]

    @property
    def shown_verdict(self) -> str:
        """The verdict as a cell of a table, with the number of problems."""
        problems = [f"{len(self.wrong)} wrong"] if self.wrong else []
        problems += [f"{len(self.failures)} failed"] if self.failures else []
        if problems:
            return f"[red]{self.verdict}, {', '.join(problems)}[/]"
        return f"[{_COLOUR[self.verdict]}]{self.verdict}[/]"


def faults_table(rows: Sequence[FaultRow]) -> Table:
    """One line per fault and number of clients; times in milliseconds."""
    numbers = ["clients", "median", "max", "first", "bound"]
    table = new_table("From the fault until every survivor is told, in ms", ["fault", "phase"], numbers, _CAPTION)
    table.add_column("verdict")
    for row, following in zip_longest(rows, rows[1:]):
        ends = following is None or following.fault != row.fault
        bound = "-" if row.bound is None else f"{row.bound * 1000:.0f}"
        cells = (str(row.clients), *row.times, bound, row.shown_verdict)
        table.add_row(row.fault.title, row.fault.phase, *cells, end_section=ends)
    return table


def libraries_table(rows: Sequence[FaultRow]) -> Table:
    """One line per fault of another library, all with the same number of clients; times in milliseconds."""
    title = f"Other libraries, {rows[0].clients} clients: from the fault until every survivor knows, in ms"
    table = new_table(title, ["library", "fault", "phase"], ["median", "max", "first"])
    for column in table.columns:
        column.no_wrap = True
    table.add_column("how")
    for row in rows:
        how = row.failures[0] if row.failures else ", ".join(row.told_as)
        table.add_row(row.library, row.fault.title, row.fault.phase, *row.times, how)
    return table
