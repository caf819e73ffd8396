"""One run of each command of `bringup bench` with real jobs: the JSON is complete and agrees with itself.

The tables and the refusals have unit tests.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from typing import Any

from bringup.transport.tcp.interfaces import free_ports

CALLS = {"get", "set", "large get", "large set", "own get", "own set", "blocking get", "blocking set"}
FIGURES = [(key, 1) for key in sorted(CALLS)] + [("barrier", 3), ("barrier of tasks", 8), ("connect", 8), ("rate", 2)]


def bench(*arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "bringup", "bench", *arguments, "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
        env={**os.environ, "BRINGUP_HEARTBEAT_TIMEOUT": "no number"},  # the clients' settings are the bench's own
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert {"machine", "versions", "absent"} <= found.keys()
    return found


LATE_IMPORTS = """
import asyncio, sys
from bringup.commands.bench.libraries import BRINGUP
BRINGUP.load()
import bringup
before = set(sys.modules)
async def main():
    async with bringup.initialize("SIM", jobs=sys.argv[1], client_id=int(sys.argv[2])):
        late = [name for name in sys.modules if name.startswith("bringup") and name not in before]
    print(late)
asyncio.run(main())
"""


def test_a_client_has_done_its_imports_before_it_is_released() -> None:
    jobs = ",".join(f"127.0.0.1:{port}" for port in free_ports(2))
    commands = [[sys.executable, "-P", "-c", LATE_IMPORTS, jobs, client_id] for client_id in ("0", "1")]
    clients = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    assert [client.communicate(timeout=60)[0] for client in clients] == ["[]\n"] * 2


def test_startup() -> None:
    found = bench("startup", "--clients", "1,2", "--runs", "2", "--seed", "7", "--only", "bringup", "--only", "grpc")
    assert (found["seed"], found["runs"], found["clients"]) == (7, 2, [1, 2])
    rows = [(row["library"], row["clients"]) for row in found["startup"]]
    assert rows == [(library, clients) for clients in (1, 2) for library in ("bringup", "grpc.aio")]
    assert len(found["process"]) == 3
    for row in [*found["startup"], *found["process"]]:
        assert (len(row["seconds"]), row["failures"]) == (2, [])
        assert row["min"] <= row["median"] == statistics.median(row["seconds"]) <= row["max"]


def test_failure() -> None:
    faults = ("--only", "raise", "--only", "missing")
    found = bench("failure", "--clients", "4", "--runs", "1", "--seed", "7", "--deadline", "1", *faults)
    assert (found["seed"], found["runs"], found["clients"], found["libraries"]) == (7, 1, [4], [])
    told = [(row["fault"], row["victim"], row["phase"], row["clients"]) for row in found["rows"]]
    assert told == [
        ("raise", "client", "idle", 4),
        ("raise", "coordinator", "idle", 4),
        ("missing", "client", "rendezvous", 4),
        ("missing", "coordinator", "connect", 4),
    ]
    for row in found["rows"]:
        assert (row["wrong"], row["failures"]) == ([], [])
        (first,), (last,) = row["first"], row["last"]
        assert 0 <= first <= last == row["median"] == row["max"]
        assert row["verdict"] == ("early" if first < row["floor"] else "within" if last <= row["bound"] else "beyond")
        assert sum(row["told_as"].values()) == 3


def test_alarms() -> None:
    found = bench("failure", "--alarms", "1", "--alarm-clients", "3")["alarms"]
    assert (found["clients"], found["failures"]) == (3, [])
    assert 1 <= found["seconds"] < 60
    assert found["load_processes"] == len(os.sched_getaffinity(0))
    assert 0 < found["load_cpu_seconds"] <= found["load_seconds"] * found["load_processes"] * 1.1
    assert 0 < found["largest_age"] < found["heartbeat_timeout"]
    assert set(found["overdue"]) <= {0, 1, 2}


def test_services() -> None:
    sizes = ("--calls", "5", "--rounds", "3", "--clients", "2", "--barriers", "3", "--crowds", "8", "--timeout", "60")
    # The server of the crowd runs on uvloop, where there is one, whatever its callers run on.
    found = bench("services", *sizes, "--runs", "2", "--only", "bringup", "--loop", "asyncio")
    assert (found["runs"], found["calls"], found["loop"]) == (2, 5, "asyncio")
    assert sorted((row["key"], row["clients"]) for row in found["rows"]) == sorted(FIGURES)
    for row in found["rows"]:
        assert (row["library"], row["failures"], row["wrong"]) == ("bringup", [], [])
        assert len(row["samples"]) == 2
        assert 0 < row["min"] <= row["median"] == statistics.median(row["samples"]) <= row["max"]
        assert row["within"] is (None if row["bar"] is None else row["median"] <= row["bar"])


def test_scale() -> None:
    found = bench("scale", "--clients", "3,6", "--backend", "SIM", "--soak", "0.5", "--load", "1", "--seed", "7")
    assert (found["seed"], found["clients"], found["soak"], found["load"]) == (7, [3, 6], 0.5, 1)
    assert [row["clients"] for row in found["rows"]] == [3, 6]
    for row in found["rows"]:
        assert (row["wrong"], row["failures"]) == ([], [])
        assert [one["notices"] for one in row["jobs"]] == [row["clients"] - 1]
        assert row["wall"] > 0
        assert row["told"] > 0
        for name in ("processor", "memory", "idle"):
            assert row[name]["first"] > 0
            assert 0 < row[name]["mean"] <= row[name]["largest"]
    assert found["growth"]["exponent"] == found["growth"]["last_exponent"]


def test_topology() -> None:
    found = bench("topology", "--devices", "800", "--runs", "1")
    assert (found["devices"], found["extents"], len(found["samples"])) == (800, [10, 8, 5, 2], 1)
    assert found["seconds"]["min"] > 0
