"""`bringup topology`: draws a slice, and shows the cost of a mesh on it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import click
from rich.console import Console

from ...devices.topology.mesh import Mesh
from ...devices.topology.topology import Topology
from ...errors import ConfigurationError
from .drawing import draw, svg
from .source import of_bytes, of_job, of_shape, of_slice
from .tables import as_object, show

_WIDTH_OFF_TERMINAL = 120


def _axes(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    axes = value.replace(",", "")
    if set(axes) - set("xyz"):
        raise click.BadParameter(f"{value!r} is not some of x, y and z; write for example x,y")
    return axes


def _shape(_context: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    if value is None:
        return None
    sizes = value.split("x")
    if not all(size.isascii() and size.isdecimal() and int(size) for size in sizes):
        raise click.BadParameter(f"{value!r} is not sizes with `x` between them; write for example 4x8")
    return tuple(map(int, sizes))


def _names(_context: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(name.strip() for name in value.split(","))


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True), required=False)
@click.option("--job", "job_address", metavar="HOST:PORT", help="Of a job that is up: where its client 0 listens.")
@click.option("--slice", "slice_name", metavar="NAME", help="A slice of TPUs, such as v5e:4x4.")
@click.option("--sim", "sim_shape", metavar="XxYxZxC", help="A simulated slice, as BRINGUP_SIM_TOPOLOGY gives it.")
@click.option("--clients", type=click.IntRange(min=1), metavar="N", help="Clients of the slice; default: its hosts.")
@click.option("--wrap", default="", callback=_axes, metavar="AXES", help="Axes that wrap around, such as x,y.")
@click.option("--mesh", "shape", callback=_shape, metavar="AxB", help="The mesh; default: one ring of all devices.")
@click.option("--dims", callback=_names, metavar="NAMES", help="Names of the mesh's dimensions, such as data,model.")
@click.option("--best", is_flag=True, help="The mesh with the fewest hops, instead of DTensor's.")
@click.option("--rings", callback=_names, metavar="NAMES", help="Draw the rings along these; default: the last.")
@click.option("--svg", "svg_path", type=click.Path(dir_okay=False, path_type=Path), help="Write a picture as SVG.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def topology(
    file: str | None,
    job_address: str | None,
    slice_name: str | None,
    sim_shape: str | None,
    clients: int | None,
    wrap: str,
    shape: tuple[int, ...] | None,
    dims: tuple[str, ...] | None,
    best: bool,
    rings: tuple[str, ...] | None,
    svg_path: Path | None,
    as_json: bool,
) -> None:
    """Draw a topology, and show what the rings of a mesh on it cost, in hops over links.

    It is asked of a job, read from FILE (what Topology.to_json(), `bringup demo --json` or TensorFlow's serialized
    tpu.TopologyProto gave; - for standard input), or made of a slice. Chips stand at their coordinates, clients have
    colours, and rings are paths.
    """
    found = _find(file, job_address, slice_name, sim_shape, clients, wrap)
    mesh, best_mesh = _meshes(found, shape, dims, best)
    drawn = () if mesh is None else rings or mesh.dim_names[-1:]
    if svg_path is not None:
        with Console(stderr=True).status("drawing"):
            _write(svg_path, svg(draw(found, mesh, drawn)))
    if as_json:
        click.echo(json.dumps(as_object(found, mesh, best_mesh)))
        return
    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _WIDTH_OFF_TERMINAL
    show(found, mesh, best_mesh, console)


def _find(
    file: str | None,
    job_address: str | None,
    slice_name: str | None,
    sim_shape: str | None,
    clients: int | None,
    wrap: str,
) -> Topology:
    if sum(given is not None for given in (file, job_address, slice_name, sim_shape)) != 1:
        raise click.UsageError("Give one of FILE, --job, --slice and --sim.")
    if slice_name is not None:
        return of_slice(slice_name, clients, wrap)
    if sim_shape is not None:
        return of_shape(sim_shape, clients, wrap)
    if clients is not None:
        raise click.UsageError("--clients goes with --slice and --sim: a job or a file says who has which devices.")
    if job_address is not None:
        return of_job(job_address, wrap)
    assert file is not None
    return of_bytes(*_read(file), wrap)


def _read(file: str) -> tuple[bytes, str]:
    """The bytes of a file, and its name for errors."""
    if file == "-":
        return sys.stdin.buffer.read(), "standard input"
    try:
        return Path(file).read_bytes(), file
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from None


def _meshes(
    found: Topology, shape: tuple[int, ...] | None, dims: tuple[str, ...] | None, best: bool
) -> tuple[Mesh | None, Mesh | None]:
    """The mesh to show and the best of its shape; none for a machine with holes, unless one was asked for."""
    if found.num_missing and shape is None and not best:
        return None, None
    sizes = shape or (found.num_devices,)
    best_mesh = found.best_mesh(sizes, dims)
    if best:
        return best_mesh, best_mesh
    ring_dims = 1 if len(sizes) == 1 else None
    return found.mesh(0, sizes, best_mesh.dim_names, ring_dims=ring_dims), best_mesh


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from None
    click.echo(f"wrote {path}", err=True)
