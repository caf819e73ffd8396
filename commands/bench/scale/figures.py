"""The figures of `bringup bench scale`: those of one job, and the growth over jobs of several sizes. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure of client 0, and of all others.

    Attributes:
        first: Client 0's.
        mean: The others' mean.
        largest: The others' maximum.
    """

    first: float
    mean: float
    largest: float


def spread(figures: Mapping[int, float]) -> Spread | None:
    """Sum up a figure of each client by id; `None` where client 0's is not known, or nobody else's."""
    others = [figure for client_id, figure in figures.items() if client_id != 0]
    return Spread(figures[0], statistics.fmean(others), max(others)) if 0 in figures and others else None


def subtract(figures: Mapping[int, float], earlier: Mapping[int, float]) -> dict[int, float]:
    """The growth of each client's figure."""
    return {client_id: figure - earlier[client_id] for client_id, figure in figures.items()}


@dataclass(slots=True, kw_only=True)
class Measured:
    """One job; what it did not get to is `None` or empty.

    Attributes:
        wall: Seconds from the release until the last client is up.
        processor: Processor seconds in that time.
        memory: Growth of the anonymous memory in that time, in bytes.
        idle: The share of a core that is used when nothing happens.
        notices: The fields of a `Notice` for each survivor of the kill, or of each client after a false alarm.
        failed_after: Seconds from the release until the first client had failed to come up.
        alarm_after: Seconds from when the last client was up until one was told of a failure, of which there was none.
        failure: The reason why the job did not come up, or did not get to its end.
    """

    wall: float | None = None
    processor: Spread | None = None
    memory: Spread | None = None
    idle: Spread | None = None
    notices: list[Mapping[str, Any]] = field(default_factory=list)
    failed_after: float | None = None
    alarm_after: float | None = None
    failure: str | None = None


def exponent(points: Sequence[tuple[float, float]]) -> float | None:
    """The power of x by which y grows: the slope of the least squares line through their logarithms.

    Args:
        points: x and y, both positive.

    Returns:
        `None` where there are not two different x.
    """
    if len({x for x, _ in points}) < 2:
        return None
    logarithms = [(math.log(x), math.log(y)) for x, y in points]
    return statistics.linear_regression(*zip(*logarithms, strict=True)).slope


def growth(points: Sequence[tuple[float, float]]) -> float | None:
    """The increase of y with each x: the slope of the least squares line; `None` as for `exponent`."""
    if len({x for x, _ in points}) < 2:
        return None
    return statistics.linear_regression(*zip(*points, strict=True)).slope
