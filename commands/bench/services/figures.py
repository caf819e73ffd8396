"""What `bringup bench services` measures: its figures, their bars, and the runs that give them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Kind = Literal["calls", "rate", "barrier", "crowd"]

SMALL_BYTES = 100
LARGE_BYTES = 100_000

_RATE_BARS = {8: 25_000.0}
_BARRIER_BARS = {4: 0.25e-3, 16: 0.7e-3}
_CROWD_BARS = {64: 4e-3, 256: 15e-3, 1024: 80e-3}
_CONNECT_BARS = {1024: 0.75}


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table.

    Attributes:
        key: What a run calls it.
        words: What the table calls it.
        clients: How many take part.
        bar: Seconds that it may take, or calls a second that it must reach; `None` where nothing is asked.
        is_rate: Whether it is calls a second, of which more is better, and not seconds.
    """

    key: str
    words: str
    clients: int
    bar: float | None = None
    is_rate: bool = False

    def is_within(self, value: float) -> bool | None:
        """Whether a value is within the bar; `None` where there is none."""
        if self.bar is None:
            return None
        return value >= self.bar if self.is_rate else value <= self.bar


@dataclass(frozen=True, slots=True)
class Task:
    """One kind of run: so many processes or tasks, doing one thing.

    Attributes:
        kind: `calls`: one client gets and sets; `rate`: all get at once; `barrier`: all processes meet; `crowd`: the
            clients are in one process, connect and meet.
        clients: How many do it.
    """

    kind: Kind
    clients: int

    @property
    def processes(self) -> int:
        """How many processes the run has."""
        return {"calls": 2, "rate": self.clients + 1, "barrier": self.clients, "crowd": 2}[self.kind]

    @property
    def figures(self) -> tuple[Figure, ...]:
        """What the run gives."""
        n = self.clients
        if self.kind == "calls":
            return _CALLS
        if self.kind == "rate":
            return (Figure("rate", f"gets a second, {n} clients", n, _RATE_BARS.get(n), True),)
        if self.kind == "barrier":
            return (Figure("barrier", f"barrier of {n} processes", n, _BARRIER_BARS.get(n)),)
        return (
            Figure("barrier of tasks", f"barrier of {n:,} tasks", n, _CROWD_BARS.get(n)),
            Figure("connect", f"{n:,} tasks connect", n, _CONNECT_BARS.get(n)),
        )


_CALLS = (
    Figure("get", "get of 100 B", 1, 80e-6),
    Figure("set", "set of 100 B", 1, 80e-6),
    Figure("large get", "get of 100 KB", 1, 0.25e-3),
    Figure("large set", "set of 100 KB", 1, 0.5e-3),
    Figure("own get", "get of 100 B by client 0", 1),
    Figure("own set", "set of 100 B by client 0", 1),
    Figure("blocking get", "get of 100 B, sync", 1),
    Figure("blocking set", "set of 100 B, sync", 1),
)


def meeting_of(entered: Sequence[Sequence[float]], left: Sequence[Sequence[float]]) -> tuple[float, list[str]]:
    """Return what a barrier takes when all meet over and over, and what was wrong with it.

    Args:
        entered: When each client came to each round, in seconds of one clock, `[clients][rounds]`.
        left: When each client was let go, likewise.

    Returns:
        The median over the clients of the median of their rounds, and a text for each round that somebody left before
        all had come.
    """
    wrong = []
    for number, (came, went) in enumerate(zip(zip(*entered, strict=True), zip(*left, strict=True), strict=True)):
        if min(went) < max(came):
            first, last = went.index(min(went)), came.index(max(came))
            wrong.append(f"round {number} of the barrier let client {first} go before client {last} had come")
    waits = [[went - came for came, went in zip(*one, strict=True)] for one in zip(entered, left, strict=True)]
    return median([median(one) for one in waits]), wrong


def rate_of(calls: int, spans: Sequence[tuple[float, float]]) -> float:
    """Return calls a second: `calls` of each client, all of them from the first's beginning to the last's end."""
    return calls * len(spans) / (max(ended for _, ended in spans) - min(began for began, _ in spans))


def median(values: Sequence[float]) -> float:
    """Return the median, which of an even number is one of the values: no sample is made up."""
    return sorted(values)[len(values) // 2]


def evaluate(task: Task, calls: int, heard: Mapping[int, Mapping[str, Any]]) -> tuple[dict[str, float], list[str]]:
    """Return the figures of one run by key, and what was wrong with it.

    Args:
        task: What was run.
        calls: How many calls a client made.
        heard: What each client has measured: `samples` by key, or `began` and `ended`, or `entered` and `left`; and
            what was `wrong`.
    """
    wrong = [f"client {client_id}: {text}" for client_id, said in heard.items() for text in said.get("wrong", ())]
    samples: dict[str, float] = {}
    for said in heard.values():
        samples |= said.get("samples", {})
    if task.kind == "rate":
        samples["rate"] = rate_of(calls, [(said["began"], said["ended"]) for said in heard.values() if "began" in said])
    if task.kind == "barrier":
        entered, left = ([said[key] for said in heard.values()] for key in ("entered", "left"))
        samples["barrier"], early = meeting_of(entered, left)
        wrong += early
    return samples, wrong
