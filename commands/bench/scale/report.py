"""The results of `bringup bench scale`: a row per number of clients, its table, and the growth over the rows."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ..failure.faults import Notice, complaints
from ..report import new_table
from .figures import Measured, Spread, exponent, growth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rich.table import Table

    from ..trials import Outcome, ScaleTrial

_SHOWN_COMPLAINTS = 3
_MIB = 1024.0 * 1024.0
_UP_COLUMNS = ("clients", "client 0", "per client, ms", "others", "most", "wall", "told")
_UP_CAPTION = (
    "Processor seconds until the last client is up; others: their mean; most: of any of them; wall: from the release; "
    "told: right where every survivor of a SIGKILL was told of the right client and cause"
)
_AFTER_COLUMNS = ("clients", "client 0, %", "others, %", "client 0, MiB", "others, MiB", "told, ms")
_AFTER_CAPTION = (
    "%: of a core, when nothing happens; MiB: growth of anonymous memory until up; told: from a client's SIGKILL until "
    "the last survivor knew"
)


@dataclass(slots=True)
class Row:
    """The jobs with one number of clients.

    Attributes:
        clients: The number.
        jobs: The figures of each job.
        told: For each job whose survivors all had a notice, seconds from the kill until the last had.
        wrong: A text for each notice that names another client or another cause, or that came without a failure.
        failures: A text for each job that did not come up, or did not get to its end.
    """

    clients: int
    jobs: list[Measured] = field(default_factory=list)
    told: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        """Names the row beside the progress bar."""
        return f"{self.clients} clients"

    def add(self, trial: ScaleTrial, outcome: Outcome) -> list[str]:
        """Add a job; returns the problems with it."""
        if outcome.failure is not None:
            self.failures.append(outcome.failure)
            return [outcome.failure]
        job = read_measured(outcome.value)
        self.jobs.append(job)
        wrong = list(_wrong(trial, job))
        failures = [_failure(job)] if job.failure is not None else []
        if job.notices and job.alarm_after is None:
            self.told.append(max(one["after"] for one in job.notices))
        self.wrong += wrong
        self.failures += failures
        more = [f"and {len(wrong) - _SHOWN_COMPLAINTS} more"] if len(wrong) > _SHOWN_COMPLAINTS else []
        return [*failures, *wrong[:_SHOWN_COMPLAINTS], *more]

    def median(self, figure: Callable[[Measured], float | None]) -> float | None:
        """The median of a figure over the jobs that have it."""
        return _median(figure(job) for job in self.jobs)

    def spread(self, name: str) -> Spread | None:
        """The medians of `processor`, `memory` or `idle`; of processor and memory those of jobs that came up."""
        found = [spread for job in self.jobs if job.wall is not None and (spread := getattr(job, name)) is not None]
        if not found:
            return None
        columns = zip(*((one.first, one.mean, one.largest) for one in found), strict=True)
        return Spread(*(statistics.median(column) for column in columns))

    @property
    def verdict(self) -> str:
        """`right`, or the number of problems."""
        wrong = [f"{len(self.wrong)} wrong"] if self.wrong else []
        failed = [f"{len(self.failures)} failed"] if self.failures else []
        return f"[red]{', '.join([*wrong, *failed])}[/]" if wrong or failed else "[green]right[/]"

    def as_object(self) -> dict[str, Any]:
        """The row for JSON: its raw figures and their medians."""
        jobs = [{key: value for key, value in asdict(job).items() if key != "notices"} for job in self.jobs]
        spreads = {name: self.spread(name) for name in ("processor", "memory", "idle")}
        return {
            "clients": self.clients,
            "wall": self.median(lambda job: job.wall),
            **{name: found and asdict(found) for name, found in spreads.items()},
            "told": _median(self.told),
            "wrong": self.wrong,
            "failures": self.failures,
            "jobs": [{**job, "notices": len(one.notices)} for job, one in zip(jobs, self.jobs, strict=True)],
        }

    @property
    def up_cells(self) -> list[str]:
        """The medians until the job is up, as cells of a table."""
        used = self.spread("processor")
        shown = ["-"] * 4
        if used is not None:
            each = 1000 * used.first / self.clients
            shown = [f"{used.first:.3f}", f"{each:.2f}", f"{used.mean:.4f}", f"{used.largest:.4f}"]
        return [str(self.clients), *shown, _cell(self.median(lambda job: job.wall), "{:.2f}"), self.verdict]

    @property
    def after_cells(self) -> list[str]:
        """The medians of the idle job, of the memory and of the kill, as cells of a table."""
        idle, held = self.spread("idle"), self.spread("memory")
        shares = ["-", "-"] if idle is None else [f"{100 * one:.2f}" for one in (idle.first, idle.mean)]
        sizes = ["-", "-"] if held is None else [f"{one / _MIB:.1f}" for one in (held.first, held.mean)]
        told = _cell(_median(1000 * one for one in self.told), "{:.0f}")
        return [str(self.clients), *shares, *sizes, told]


def read_measured(fields: dict[str, Any]) -> Measured:
    """The figures of a job from JSON."""
    spreads = {name: Spread(**fields[name]) for name in ("processor", "memory", "idle") if fields[name] is not None}
    return Measured(**{**fields, **spreads})


def _failure(job: Measured) -> str:
    after = "" if job.failed_after is None else f"failed after {job.failed_after:.1f} s"
    used = "" if job.processor is None else f", with {job.processor.first:.2f} s of client 0's processor time"
    return f"{after}{used}: {job.failure}" if after else f"{job.failure}"


def _wrong(trial: ScaleTrial, job: Measured) -> Iterable[str]:
    notices = [Notice(**fields) for fields in job.notices]
    if job.alarm_after is None:
        return complaints(trial, notices)
    return (
        f"false alarm {one.after:.1f} s after all were up, before any fault: client {one.survivor} was told: "
        f"{one.error}: {one.text}"
        for one in sorted(notices, key=lambda one: one.after)
    )


def scale_tables(rows: Sequence[Row]) -> list[Table]:
    """One line per number of clients: how they came up, and what came after."""
    up = new_table("Bring-up, in seconds", (), _UP_COLUMNS, _UP_CAPTION)
    after = new_table("Idle, memory, and the end of one client", (), _AFTER_COLUMNS, _AFTER_CAPTION)
    for row in rows:
        up.add_row(*row.up_cells)
        after.add_row(*row.after_cells)
    return [up, after]


def growth_of(rows: Sequence[Row]) -> dict[str, float | None]:
    """How the figures of the rows that came up grow with the number of clients.

    Returns:
        `exponent`: the power by which client 0's processor seconds grow, least squares over all; `last_exponent`: from
        the last row but one to the last; `bytes_per_client`: the growth of client 0's memory beyond the others'.
    """
    used = [(float(row.clients), spread.first) for row in rows if (spread := row.spread("processor"))]
    held = [(float(row.clients), spread.first - spread.mean) for row in rows if (spread := row.spread("memory"))]
    return {"exponent": exponent(used), "last_exponent": exponent(used[-2:]), "bytes_per_client": growth(held)}


def growth_table(rows: Sequence[Row]) -> Table:
    """The growth over the rows, and that of the last step alone."""
    found = growth_of(rows)
    table = new_table("Growth with the number of clients", ["of client 0's"], ["figure"])
    table.add_row("processor seconds: exponent, least squares", _cell(found["exponent"], "{:.2f}"))
    table.add_row("processor seconds: exponent of the last step", _cell(found["last_exponent"], "{:.2f}"))
    held = found["bytes_per_client"]
    table.add_row("memory beyond the others', KiB per client", _cell(held and held / 1024, "{:.1f}"))
    return table


def _median(figures: Iterable[float | None]) -> float | None:
    found = [figure for figure in figures if figure is not None]
    return statistics.median(found) if found else None


def _cell(figure: float | None, form: str) -> str:
    return "-" if figure is None else form.format(figure)
