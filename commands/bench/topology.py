"""`bringup bench topology`: the topology of a large job, a mesh of it and its rings: how long, and how much memory."""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ...devices.topology.topology import Topology
from ...errors import BringupError
from .options import make_progress
from .report import machine_facts
from .worker import interpreter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_TIMEOUT = 300.0
_DEVICES_PER_CLIENT = 8
_COUNTED = ("topology", "mesh", "rings", "hops")
_STEPS = {
    "topology": "Topology of the merged table",
    "mesh": "default mesh, nearly square",
    "rings": "one ring of all devices",
    "hops": "neighbours and hops of all rings",
    "best": "best_mesh, not in the sum",
}


@click.command("topology")
@click.option(
    "--devices",
    default=100_000,
    type=click.IntRange(min=_DEVICES_PER_CLIENT),
    show_default=True,
    help="Devices of the job; a multiple of 8.",
)
@click.option("--runs", default=5, type=click.IntRange(min=1), show_default=True, help="Runs, each a fresh process.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with the raw samples.")
def topology_command(devices: int, runs: int, as_json: bool) -> None:
    """Time a topology, its default mesh and its rings, and say how much memory the process had at most.

    A client has 8 devices, a chip 2. Memory is all of a process that does nothing else, interpreter and numpy included.
    """
    if devices % _DEVICES_PER_CLIENT:
        raise click.BadParameter(f"{devices} is not a multiple of {_DEVICES_PER_CLIENT}", param_hint="--devices")
    with make_progress() as progress:
        samples = [_measure(devices) for _ in progress.track(range(runs), description=f"{devices} devices")]
    facts = {"devices": devices, "extents": machine_extents(devices), "runs": runs, "machine": machine_facts()}
    if as_json:
        click.echo(json.dumps(facts | _summary(samples) | {"samples": samples}))
    else:
        Console(highlight=False).print(_table(facts, samples))


def _measure(devices: int) -> dict[str, Any]:
    try:
        done = subprocess.run(
            interpreter(f"{__name__}:run_once", str(devices)),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=_TIMEOUT,
        )
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise BringupError(f"the process that measures {devices} devices failed: {last}") from None
    except subprocess.TimeoutExpired:
        raise BringupError(f"the process that measures {devices} devices took more than {_TIMEOUT:g} s") from None
    sample: dict[str, Any] = json.loads(done.stdout)
    return sample


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
    """Return the extents of the most nearly cubic machine with so many devices, two on a chip."""
    chips = devices // 2
    z = max(factor for factor in range(1, round(chips ** (1 / 3)) + 1) if chips % factor == 0)
    y = max(factor for factor in range(1, int((chips // z) ** 0.5) + 1) if chips // z % factor == 0)
    return chips // z // y, y, z, 2


def _summary(samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    sums = [sum(sample["seconds"][step] for step in _COUNTED) for sample in samples]
    return {
        "seconds": {"median": statistics.median(sums), "min": min(sums), "max": max(sums)},
        "megabytes": max(sample["megabytes"][1] for sample in samples),
        "hops": samples[0]["hops"],
    }


def _table(facts: Mapping[str, Any], samples: Sequence[Mapping[str, Any]]) -> Table:
    summary = _summary(samples)
    extents = "x".join(map(str, facts["extents"]))
    title = f"{facts['devices']} devices, {extents}, {facts['runs']} runs, in ms"
    table = Table("step", title=title, box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("median", "min", "max"):
        table.add_column(heading, justify="right", no_wrap=True)
    for step, words in _STEPS.items():
        times = [sample["seconds"][step] for sample in samples]
        table.add_row(words, *_cells(statistics.median(times), min(times), max(times)))
    table.add_section()
    table.add_row("sum", *_cells(*summary["seconds"].values()))
    before = max(sample["megabytes"][0] for sample in samples)
    usual, best = summary["hops"]
    table.caption = (
        f"at most {summary['megabytes']:.0f} MB in the process, {before:.0f} MB before the first step; "
        f"hops of all rings: {usual}, best_mesh: {best}"
    )
    return table


def _cells(*seconds: float) -> list[str]:
    return [f"{1000 * value:.1f}" for value in seconds]
