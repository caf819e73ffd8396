"""`bringup bench topology`: time and memory of the topology of a large job, a mesh of it and its rings."""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from ...devices.topology.topology import Topology
from ...errors import BringupError
from .report import milliseconds, new_table
from .runner import Case, ProcessFailed, count_option, json_option, run_process, run_scenario
from .worker import interpreter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.table import Table

    from .runner import Entrant, Hosts

_TIMEOUT = 300.0  # 100,000 devices take a second; --devices has no upper limit
_DEVICES_PER_CLIENT = 8
_COUNTED = ("topology", "mesh", "rings", "hops")
_STEPS = {
    "topology": "Topology of the merged table",
    "mesh": "default mesh, nearly square",
    "rings": "one ring of all devices",
    "hops": "neighbours and hops of all rings",
    "best": "best_mesh, not in the sum",
}


class TopologyScenario:
    """A topology and its meshes, each run in a fresh process; a `Scenario`."""

    is_sound = True

    def __init__(self, devices: int, runs: int) -> None:
        self._devices, self._runs = devices, runs
        self._extents = machine_extents(devices)
        self._samples: list[dict[str, Any]] = []
        self.title = f"{devices} devices, {runs} runs"
        self.facts = {"devices": devices, "extents": self._extents, "runs": runs}

    def cases(self, entrants: Sequence[Entrant], hosts: Hosts) -> list[Case]:
        return [Case(f"{self._devices} devices", self._sample)] * self._runs

    def _sample(self) -> tuple[str, ...]:
        try:
            output = run_process(interpreter(f"{__name__}:run_once", str(self._devices)), _TIMEOUT)
        except ProcessFailed as error:
            raise BringupError(f"the process that measures {self._devices} devices {error}") from None
        self._samples.append(json.loads(output))
        return ()

    def as_object(self) -> dict[str, Any]:
        sums = [sum(sample["seconds"][step] for step in _COUNTED) for sample in self._samples]
        return {
            "seconds": {"median": statistics.median(sums), "min": min(sums), "max": max(sums)},
            "megabytes": max(sample["megabytes"][1] for sample in self._samples),
            "hops": self._samples[0]["hops"],
            "samples": self._samples,
        }

    def tables(self) -> list[Table]:
        """One line per step, in milliseconds."""
        found = self.as_object()
        extents = "x".join(map(str, self._extents))
        before = max(sample["megabytes"][0] for sample in self._samples)
        usual, best = found["hops"]
        table = new_table(
            f"{self._devices} devices, {extents}, {self._runs} runs, in ms",
            ["step"],
            ["median", "min", "max"],
            f"at most {found['megabytes']:.0f} MB in the process, {before:.0f} MB before the first step; "
            f"hops of all rings: {usual}, best_mesh: {best}",
        )
        for step, words in _STEPS.items():
            times = [sample["seconds"][step] for sample in self._samples]
            table.add_row(words, *milliseconds(statistics.median(times), min(times), max(times)))
        table.add_section()
        table.add_row("sum", *milliseconds(*found["seconds"].values()))
        return [table]


@click.command("topology")
@count_option("--devices", 100_000, "Devices of the job; a multiple of 8.", _DEVICES_PER_CLIENT)
@count_option("--runs", 5, "Runs, each a fresh process.")
@json_option
def topology_command(devices: int, runs: int, as_json: bool) -> None:
    """Time a topology, its default mesh and its rings, and say how much memory the process had at most.

    A client has 8 devices, a chip 2. Memory is all of a process that does nothing else, interpreter and numpy included.
    """
    if devices % _DEVICES_PER_CLIENT:
        raise click.BadParameter(f"{devices} is not a multiple of {_DEVICES_PER_CLIENT}", param_hint="--devices")
    run_scenario(TopologyScenario(devices, runs), as_json=as_json)


def run_once() -> None:
    """Entry of a fresh process: one sample, as JSON on standard output."""
    devices = int(sys.argv[1])
    x, y, z, cores = machine_extents(devices)
    places = np.indices((z, y, x, cores)).reshape(4, -1).T[:, [2, 1, 0, 3]].astype(np.int32)
    counts = np.full(devices // _DEVICES_PER_CLIENT, _DEVICES_PER_CLIENT, np.int32)
    rows = max(factor for factor in range(1, int(devices**0.5) + 1) if devices % factor == 0)
    before = _peak_memory()
    seconds: dict[str, float] = {}
    topology = _timed(seconds, "topology", lambda: Topology.of_locations(counts, places))
    mesh = _timed(seconds, "mesh", lambda: topology.mesh(0, [rows, devices // rows], ["a", "b"]))
    _timed(seconds, "rings", lambda: topology.mesh(0, [1, devices], ["a", "b"]))
    _timed(seconds, "hops", lambda: (mesh.neighbours("a"), mesh.neighbours("b"), mesh.cost))
    peak = _peak_memory()
    best = _timed(seconds, "best", lambda: topology.best_mesh([rows, devices // rows]))
    json.dump({"seconds": seconds, "megabytes": [before, peak], "hops": [mesh.cost, best.cost]}, sys.stdout)


def _timed(seconds: dict[str, float], step: str, call: Callable[[], Any]) -> Any:
    began = time.perf_counter()
    result = call()
    seconds[step] = time.perf_counter() - began
    return result


def _peak_memory() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)


def machine_extents(devices: int) -> tuple[int, int, int, int]:
    """The extents of the most nearly cubic machine with so many devices, two on a chip."""
    chips = devices // 2
    z = max(factor for factor in range(1, round(chips ** (1 / 3)) + 1) if chips % factor == 0)
    y = max(factor for factor in range(1, int((chips // z) ** 0.5) + 1) if chips // z % factor == 0)
    return chips // z // y, y, z, 2
