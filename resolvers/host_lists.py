"""Slurm's compressed lists: of hosts (`gpu[01-03,7]-ib,login1`), of tasks per node (`4(x2),1`). Pure."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator

# Slurm's own bound on the nodes of a cluster is 65,533; a slip must not make every client allocate for it.
HOSTS_MAX = 1 << 17

_PART = re.compile(r"\[([^][]*)\]|([^][]+)")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_TASKS = re.compile(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?")


def expand_hosts(text: str) -> list[str]:
    """Return the hosts of a list, in its order.

    Args:
        text: names, separated by commas; each with any number of brackets that hold numbers and ranges. A range has
            the width of its first number, padded with zeros; of several brackets the last varies fastest.

    Raises:
        ValueError: it is no such list, or too long; the message quotes the entry.
    """
    hosts: list[str] = []
    for entry in _entries(text):
        parts = [_alternatives(bracket, entry) if bracket else [plain] for bracket, plain in _parts(entry)]
        if len(hosts) + math.prod(map(len, parts)) > HOSTS_MAX:
            raise ValueError(f"{entry!r:.100} makes more than {HOSTS_MAX} hosts")
        hosts += map("".join, itertools.product(*parts))
    return hosts


def expand_tasks(text: str) -> list[int]:
    """Return the number of tasks of each node.

    Args:
        text: numbers, separated by commas; `2(x3)` stands for `2,2,2`.

    Raises:
        ValueError: it is no such list, or too long.
    """
    tasks: list[int] = []
    for entry in text.split(","):
        matched = _TASKS.fullmatch(entry.strip())
        if matched is None:
            raise ValueError(f"{entry!r:.100} is not a number of tasks, such as 2 or 2(x3)")
        times = int(matched[2] or 1)
        if len(tasks) + times > HOSTS_MAX:
            raise ValueError(f"{entry!r:.100} makes more than {HOSTS_MAX} nodes")
        tasks += [int(matched[1])] * times
    return tasks


def _entries(text: str) -> Iterator[str]:
    """Split at the commas outside of brackets; one at the end is allowed."""
    pieces = re.split(r",(?![^\[]*\])", text.strip())
    if pieces[-1] == "":
        pieces.pop()
    for piece in pieces:
        entry = piece.strip()
        if not entry:
            raise ValueError("it has an empty entry: is there a comma too many?")
        yield entry


def _parts(entry: str) -> Iterator[tuple[str | None, str]]:
    at = 0
    for matched in _PART.finditer(entry):
        if matched.start() != at or matched[1] == "":
            break
        at = matched.end()
        yield matched[1], matched[2] or ""
    if at != len(entry):
        raise ValueError(f"{entry!r:.100} has brackets that do not hold numbers and ranges, such as [1-3,7]")


def _alternatives(bracket: str, entry: str) -> list[str]:
    numbers: list[str] = []
    for piece in bracket.split(","):
        matched = _RANGE.fullmatch(piece.strip())
        if matched is None:
            raise ValueError(f"{entry!r:.100} has {piece!r} in brackets, which is neither a number nor a range")
        first, last = int(matched[1]), int(matched[2] or matched[1])
        if last < first or last - first >= HOSTS_MAX:
            raise ValueError(f"{entry!r:.100} has the range {piece!r}, which runs backwards or is too long")
        numbers += (str(number).zfill(len(matched[1])) for number in range(first, last + 1))
    return numbers
