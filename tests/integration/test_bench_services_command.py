"""`bringup bench services` with real jobs: the command runs, and what it prints is complete and agrees with itself."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

TINY = ("--calls", "5", "--rounds", "3", "--clients", "2", "--barriers", "3", "--crowds", "8", "--timeout", "60")
CALLS = {"get", "set", "large get", "large set", "own get", "own set", "blocking get", "blocking set"}
FIGURES = [(key, 1) for key in sorted(CALLS)] + [("barrier", 3), ("barrier of tasks", 8), ("connect", 8), ("rate", 2)]


def bench(*arguments: str, environment: Mapping[str, str] = os.environ) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "bringup", "bench", "services", *TINY, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
        env=dict(environment),
    )


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_every_figure_is_measured_in_every_run(loop: str) -> None:
    done = bench("--runs", "2", "--only", "bringup", "--loop", loop, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert (found["runs"], found["calls"], found["loop"]) == (2, 5, loop)
    assert {"machine", "versions", "absent"} <= found.keys()
    assert sorted((row["key"], row["clients"]) for row in found["rows"]) == sorted(FIGURES)
    for row in found["rows"]:
        assert (row["library"], row["failures"], row["wrong"]) == ("bringup", [], [])
        assert len(row["samples"]) == 2
        assert 0 < row["min"] <= row["median"] == statistics.median(row["samples"]) <= row["max"]
        assert row["within"] is (None if row["bar"] is None else row["median"] <= row["bar"])


def test_the_table_has_a_line_for_each_figure_and_a_column_for_each_library() -> None:
    done = bench("--runs", "1")
    assert done.returncode == 0, done.stderr
    lines = [line.strip() for line in done.stdout.splitlines()]
    (heading,) = (line.split() for line in lines if line.startswith("what"))
    absent = [name for name in ("jax", "TCPStore") if any(line.startswith(f"not measured: {name}:") for line in lines)]
    assert heading == ["what", "bar", "bringup", *(name for name in ("jax", "TCPStore") if name not in absent)]
    for words in ("get of 100 B ", "set of 100 KB", "100 B, sync", "gets a second, 2", "barrier of 3 processes"):
        assert any(words in line for line in lines), words
    for words in ("barrier of 8 tasks", "8 tasks connect"):
        assert any(line.startswith(words) for line in lines), words


def test_what_cannot_be_measured_is_refused_with_what_to_write() -> None:
    done = bench("--barriers", "1")
    assert done.returncode == 2
    assert "'1' is not a list of numbers of 2 or more of clients; write for example 4,16,64" in done.stderr
