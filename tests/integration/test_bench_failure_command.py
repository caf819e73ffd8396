"""`bringup bench failure` with real jobs: the command runs, and what it prints is complete and agrees with itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from bringup.commands.bench.failure.faults import CATALOGUE


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "bringup", "bench", "failure", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
        env={**os.environ, "BRINGUP_HEARTBEAT_TIMEOUT": "no number"},  # the clients' settings are the bench's own
    )


def bench_json(*arguments: str) -> dict[str, Any]:
    done = bench("--json", *arguments)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_every_fault_is_measured_and_told_right() -> None:
    found = bench_json("--clients", "4", "--runs", "1", "--seed", "7", "--deadline", "1")
    assert (found["seed"], found["runs"], found["clients"]) == (7, 1, [4])
    assert {"machine", "versions", "absent"} <= found.keys()
    assert found["libraries"] == []
    told = [(row["fault"], row["victim"], row["phase"], row["clients"]) for row in found["rows"]]
    assert told == [(fault.kind, fault.victim, fault.phase, 4) for fault in CATALOGUE]
    for row in found["rows"]:
        assert (row["wrong"], row["failures"]) == ([], [])
        (first,), (last,) = row["first"], row["last"]
        assert 0 <= first <= last == row["median"] == row["max"]
        assert row["verdict"] == ("early" if first < row["floor"] else "within" if last <= row["bound"] else "beyond")
        assert sum(row["told_as"].values()) == (2 if row["phase"] == "rendezvous" and row["fault"] == "kill" else 3)


def test_the_table_has_a_line_for_each_number_of_clients() -> None:
    done = bench("--clients", "3,4", "--runs", "2", "--only", "raise")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.split()[:1] == ["raise"]]
    assert [line[:4] for line in lines] == [
        ["raise", victim, "idle", clients] for victim in ("client", "coordinator") for clients in ("3", "4")
    ]
    assert all(line[-1] in ("within", "beyond") and len(line) == 9 for line in lines)


def test_a_job_is_watched_for_false_alarms() -> None:
    found = bench_json("--alarms", "2", "--alarm-clients", "3")["alarms"]
    assert (found["clients"], found["failures"]) == (3, [])
    assert 2 <= found["seconds"] < 60
    assert found["load_processes"] == len(os.sched_getaffinity(0))
    assert 0 < found["load_cpu_seconds"] <= found["load_seconds"] * found["load_processes"] * 1.1
    assert 0 < found["largest_age"] < found["heartbeat_timeout"]
    assert set(found["overdue"]) <= {0, 1, 2}
