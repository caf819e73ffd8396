"""Campaigns of many seeds, on one or several processors, and their summaries."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from .run import Report, run_seed

_SEEDS_AT_ONCE = 10


@dataclass(frozen=True, slots=True)
class Failure:
    """A seed with a failed check: the error, and the history before it."""

    seed: int
    what: str
    history: str


@dataclass(slots=True)
class Summary:
    """The counts of the outcomes of some seeds.

    Attributes:
        seeds: how many were run.
        steps: how many things happened in them.
        seconds: how long they were, simulated.
        faults: how many faults of each kind struck.
        outcomes: how many processes ended in which way, while there were faults.
    """

    seeds: int = 0
    steps: int = 0
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def add(self, report: Report) -> None:
        """Count one run that went well."""
        self.seeds += 1
        self.steps += report.steps
        self.seconds += report.seconds
        self.faults += report.faults
        self.outcomes += report.outcomes

    def merge(self, other: Summary) -> None:
        """Add the counts of other seeds."""
        self.seeds += other.seeds
        self.steps += other.steps
        self.seconds += other.seconds
        self.faults += other.faults
        self.outcomes += other.outcomes
        self.failures += other.failures


def replay_command(seed: int, num_clients: int, group_size: int | None = None) -> str:
    """Return the command that runs a seed again and prints its history."""
    groups = "" if group_size is None else f" --group-size {group_size}"
    return f"python -m tests.simulation --seed {seed} --peers {num_clients}{groups}"


def run_seeds(
    seeds: Iterable[int], num_clients: int, jobs: int = 1, *, group_size: int | None = None
) -> Iterator[Summary]:
    """Run seeds, and yield summaries of every few of them, in their order."""
    run = partial(_run_batch, num_clients=num_clients, group_size=group_size)
    if jobs == 1:
        yield from map(run, _batched(seeds))
    else:
        with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
            yield from pool.map(run, _batched(seeds))


def _batched(seeds: Iterable[int]) -> Iterator[tuple[int, ...]]:
    remaining = iter(seeds)
    while batch := tuple(itertools.islice(remaining, _SEEDS_AT_ONCE)):
        yield batch


def _run_batch(seeds: tuple[int, ...], num_clients: int, group_size: int | None) -> Summary:
    # A world is made of cycles that are dropped all at once: to look for them less often saves a quarter of the time.
    gc.set_threshold(100_000, 50, 50)
    summary = Summary()
    for seed in seeds:
        try:
            summary.add(run_seed(seed, num_clients, group_size=group_size))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is to be shown with its seed
            summary.seeds += 1
            summary.failures.append(Failure(seed, f"{type(error).__name__}: {error}", "\n".join(_notes(error))))
    return summary


def _notes(error: BaseException) -> list[str]:
    notes: list[str] = getattr(error, "__notes__", [])
    return notes
