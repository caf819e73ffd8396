"""Short closed tours of a grid of chips. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import numpy as np

from .axes import Int64Array

Grid = tuple[int, int, int]


def closed_tours(sizes: Grid) -> Iterator[Int64Array]:
    """Yield closed tours of a grid: each int64 `[chips, 3]`, every index once, neighbours near each other.

    Which is shortest depends on how far apart the grid's chips are along each axis, and on which axes wrap around. On a
    grid with an even number of chips that is more than a line, some are closed with single steps throughout.
    """
    for order in permutations(range(3)):
        inner, middle, outer = (sizes[axis] for axis in order)
        for tour in _tours(inner, middle, outer):
            indices = np.empty((len(tour), 3), np.int64)
            indices[:, order] = tour
            yield indices


def _tours(inner: int, middle: int, outer: int) -> Iterator[Int64Array]:
    path = _to_and_fro(middle, outer)
    loop = _loop(middle, outer)
    for plane, rows in (
        (_to_and_fro(inner, len(path)), path),
        (_loop(inner, len(path)), path),
        (_loop(inner, len(path), around=True), path),
        (_to_and_fro(inner, len(loop)), loop),
    ):
        yield np.column_stack([plane[:, 0], rows[plane[:, 1]]])


def _to_and_fro(columns: int, rows: int) -> Int64Array:
    """Return a path through a grid, row by row, every other one backwards: `[columns * rows, 2]`, column and row."""
    row, column = np.divmod(np.arange(columns * rows), columns)
    return np.column_stack([np.where(row % 2 == 1, columns - 1 - column, column), row])


def _loop(columns: int, rows: int, *, around: bool = False) -> Int64Array:
    """Return a closed tour of a grid: to and fro through all columns but the first, which is the way back.

    With an odd number of rows, the last would end away from the first column, unless rows go around.
    """
    if min(columns, rows) == 1:
        return _there_and_back(columns, rows)
    path = _to_and_fro(columns - 1, rows) + np.array([1, 0])
    if rows % 2 and not around:
        # The last two rows are run through together, column by column.
        column, row = _to_and_fro(2, columns - 1).T[::-1]
        path[-2 * (columns - 1) :] = np.column_stack([columns - 1 - column, rows - 2 + row])
    way_back = np.column_stack([np.zeros(rows, np.int64), np.arange(rows)[::-1]])
    return np.concatenate([way_back[-1:], path, way_back[:-1]])


def _there_and_back(columns: int, rows: int) -> Int64Array:
    """Return a closed tour of a line: every other one on the way there, the rest on the way back."""
    there = np.arange(columns * rows)
    indices = np.concatenate([there[::2], there[1::2][::-1]])
    return np.column_stack([indices % columns, indices // columns])
