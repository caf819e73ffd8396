"""Kinds of devices, run-length encoded: a slice of 100,000 cores has a handful."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from ...transport.wire.messages import KindRun


def runs_of(kinds: Iterable[str]) -> tuple[KindRun, ...]:
    """Return `kinds`, in their order, as runs."""
    return tuple(KindRun(kind, sum(1 for _ in run)) for kind, run in itertools.groupby(kinds))


def join_runs(parts: Iterable[Iterable[KindRun]]) -> tuple[KindRun, ...]:
    """Return the runs of all `parts`, one after the other, as runs."""
    groups = itertools.groupby(itertools.chain.from_iterable(parts), key=lambda run: run.kind)
    return tuple(KindRun(kind, sum(run.count for run in group)) for kind, group in groups)
