"""The bench of topologies, and the bars that large jobs must hold."""

from __future__ import annotations

import json
import math
import sys

import pytest
from click.testing import CliRunner

from bringup.commands.bench import topology as bench
from bringup.commands.bench.topology import machine_extents, topology_command
from bringup.errors import BringupError


def test_a_hundred_thousand_devices_are_measured() -> None:
    result = CliRunner().invoke(topology_command, ["--runs", "2", "--json"])
    assert result.exception is None, result.output
    found = json.loads(result.stdout)
    assert (found["devices"], len(found["samples"])) == (100_000, 2)
    assert found["seconds"]["min"] > 0
    assert found["megabytes"] > 0
    assert found["hops"][1] < found["hops"][0]


def test_the_table_has_every_step_and_the_sum() -> None:
    output = CliRunner().invoke(topology_command, ["--devices", "800", "--runs", "1"]).stdout
    assert "800 devices, 10x8x5x2, 1 runs, in ms" in output
    for step in ("Topology of the merged table", "default mesh", "one ring", "neighbours and hops", "best_mesh", "sum"):
        assert step in output


@pytest.mark.parametrize("devices", [8, 16, 104, 1000, 4096, 100_000])
def test_the_machine_has_that_many_devices(devices: int) -> None:
    assert math.prod(machine_extents(devices)) == devices


def test_a_number_of_devices_that_clients_cannot_share_is_refused() -> None:
    result = CliRunner().invoke(topology_command, ["--devices", "100"])
    assert result.exit_code == 2
    assert "100 is not a multiple of 8" in result.stderr


def test_a_process_that_fails_is_an_error_with_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "interpreter", lambda *_: [sys.executable, "-c", "raise SystemExit('out of memory')"])
    result = CliRunner().invoke(topology_command, ["--runs", "1"])
    assert isinstance(result.exception, BringupError)
    assert str(result.exception) == "the process that measures 100000 devices failed: out of memory"
