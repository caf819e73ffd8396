"""The figures of `bringup bench services`, their bars, and the runs that give them. Pure."""

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
        key: Its name in a run's samples.
        words: Its name in the table.
        clients: The number of clients that take part.
        bar: The most seconds, or the fewest calls a second; `None` where there is no bar.
        is_rate: Whether it is calls a second, and not seconds.
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
    """One kind of run.

    Attributes:
        kind: `calls`: one client gets and sets; `rate`: all get at once; `barrier`: all processes meet; `crowd`: the
            clients are in one process, connect and meet.
        clients: The number of processes, or of tasks or threads.
    """

    kind: Kind
    clients: int

    @property
    def processes(self) -> int:
        """The number of processes."""
        return {"calls": 2, "rate": self.clients + 1, "barrier": self.clients, "crowd": 2}[self.kind]

    @property
    def figures(self) -> tuple[Figure, ...]:
        """The figures that the run gives."""
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
    """The time that a client waits in a barrier when all meet over and over, and the rounds that were released early.

    Args:
        entered: The times at which each client came to each round, in seconds of one clock, `[clients][rounds]`.
        left: The times at which each client left it, likewise.

    Returns:
        The median over the clients of the median of their rounds, and a text for each round that a client left before
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
    """Calls a second: `calls` of each client, from the first client's beginning to the last one's end."""
    return calls * len(spans) / (max(ended for _, ended in spans) - min(began for began, _ in spans))


def median(values: Sequence[float]) -> float:
    """The median, which for an even number of values is one of them: a mean of two would be no sample."""
    return sorted(values)[len(values) // 2]


def evaluate(task: Task, calls: int, heard: Mapping[int, Mapping[str, Any]]) -> tuple[dict[str, float], list[str]]:
    """The figures of one run by key, and a text for each wrong answer.

    Args:
        task: The kind of run.
        calls: The calls of each client.
        heard: The measurements of each client: `samples` by key, or `began` and `ended`, or `entered` and `left`; and
            `wrong` answers.
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
