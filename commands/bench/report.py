"""Common output of the bench commands: the facts of the machine, statistics, and tables."""

from __future__ import annotations

import os
import platform
import statistics
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from ... import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .libraries import Library


def statistics_of(samples: Sequence[float]) -> dict[str, float | None]:
    """The median and the extremes of samples, `None` where there are none."""
    if not samples:
        return {"median": None, "min": None, "max": None, "max_over_median": None}
    median = statistics.median(samples)
    return {"median": median, "min": min(samples), "max": max(samples), "max_over_median": max(samples) / median}


def new_table(title: str, labels: Iterable[str], numbers: Iterable[str], caption: str | None = None) -> Table:
    """An empty table with columns of text, then columns of numbers."""
    table = Table(*labels, title=title, caption=caption, box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def milliseconds(*seconds: float) -> list[str]:
    """Cells of a table in milliseconds."""
    return [f"{1000 * value:.1f}" for value in seconds]


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


def versions_of(libraries: Iterable[Library]) -> dict[str, str]:
    """The versions of bringup and of the packages that matter to the libraries, as far as they are installed."""
    found = {"bringup": __version__}
    for library in libraries:
        for name in library.distributions:
            try:
                found[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                continue
    return found
