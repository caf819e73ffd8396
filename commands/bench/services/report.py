"""What `bringup bench services` prints: a line per figure, its bar, and all libraries beside one another."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from ..report import statistics_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .figures import Figure
    from .run import ServiceOutcome

_CAPTION = (
    "get, set: the p50 of one client, a set with its acknowledgement (TCPStore's: with the check that follows it); "
    "barrier: a client's time in it, all meeting over and over; tasks: of one process, for the others threads; "
    "connect: until all have met; sync: through bringup.sync"
)
_VERDICTS = {True: "within", False: "beyond", None: ""}


@dataclass(frozen=True, slots=True)
class ServiceRow:
    """The samples of one figure of one library.

    Attributes:
        library: The library's name.
        figure: What was measured.
        samples: A value for each run that gave one: seconds, or calls a second.
        failures: A text for each run that failed.
        wrong: A text for each answer that was wrong.
    """

    library: str
    figure: Figure
    samples: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def take(self, outcome: ServiceOutcome) -> None:
        """Take in what a run gave."""
        self.wrong.extend(outcome.wrong)
        if outcome.failure is not None:
            self.failures.append(outcome.failure)
        elif self.figure.key in outcome.samples:
            self.samples.append(outcome.samples[self.figure.key])

    @property
    def within(self) -> bool | None:
        """Whether the median is within the bar; `None` where there is no bar, or no sample."""
        return self.figure.is_within(statistics.median(self.samples)) if self.samples else None

    def as_object(self) -> dict[str, Any]:
        """The row for JSON, with its statistics, and whether its median is within the bar."""
        found = {"samples": self.samples, "failures": self.failures, "wrong": self.wrong, "within": self.within}
        return {"library": self.library} | asdict(self.figure) | found | statistics_of(self.samples)


def services_table(rows: Sequence[ServiceRow], reference: str) -> Table:
    """One line per figure: the bar, the reference's median and whether it is within, and the medians of the others.

    Args:
        rows: All rows.
        reference: The library whose figures the bars are for.
    """
    figures = list(dict.fromkeys(row.figure for row in rows))
    libraries = list(dict.fromkeys(row.library for row in rows))
    others = [library for library in libraries if library != reference]
    cells = {(row.library, row.figure): row for row in rows}
    table = Table(title="Medians over the runs", box=SIMPLE_HEAD, pad_edge=False, caption=_CAPTION)
    table.add_column("what")
    for heading in ["bar", *([reference, ""] if reference in libraries else []), *others]:
        table.add_column(heading, justify="right", no_wrap=True)
    for figure in figures:
        bar = "" if figure.bar is None else shown_value(figure, figure.bar)
        own = cells.get((reference, figure))
        shown = [] if own is None else [_median(own), _VERDICTS[own.within]]
        table.add_row(figure.words, bar, *shown, *(_median(cells[other, figure]) for other in others))
    return table


def _median(row: ServiceRow) -> str:
    if row.samples:
        return shown_value(row.figure, statistics.median(row.samples))
    return "failed" if row.failures else "-"


def shown_value(figure: Figure, value: float) -> str:
    """Return a value with its unit, which follows from its size."""
    if figure.is_rate:
        return f"{value:,.0f}/s"
    if value < 0.2e-3:
        return f"{value * 1e6:.0f} us"
    return f"{value * 1e3:.2f} ms" if value < 0.02 else f"{value * 1e3:.0f} ms"


def is_sound(rows: Iterable[ServiceRow], reference: str) -> bool:
    """Whether no answer was wrong, and no run of the reference failed."""
    return not any(row.wrong or (row.failures and row.library == reference) for row in rows)
