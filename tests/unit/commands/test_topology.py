"""`bringup topology`: what it reads, prints and draws."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

from bringup.commands.topology.command import topology
from bringup.commands.topology.drawing import Box, Dot, Label, draw
from bringup.commands.topology.drawing import Path as Line
from bringup.devices.topology.topology import Topology
from bringup.errors import ConfigurationError

FOUR = Topology([2, 2, 1, 1], [[[0, 0, 0, 0], [1, 0, 0, 0]], [[0, 1, 0, 0], [1, 1, 0, 0]]])
HOLES = Topology([2, 2, 1, 1], [[[0, 0, 0, 0]], [[1, 1, 0, 0]]])
SVG = "{http://www.w3.org/2000/svg}"


def run(*arguments: str, data: bytes = b"") -> Result:
    return CliRunner().invoke(topology, list(arguments), input=data)


def facts(*arguments: str, data: bytes = b"") -> Any:
    result = run(*arguments, "--json", data=data)
    assert result.exception is None, result.output
    return json.loads(result.stdout)


def test_a_slice_by_name_is_drawn_with_a_ring_of_all_devices() -> None:
    lines = run("--slice", "v5e:4x4").stdout.splitlines()
    assert lines[0].startswith("Topology: mesh shape [4, 4, 1, 1]; 16 devices of 4 clients")
    assert [line.split()[1:] for line in lines[2:6]] == [["0", "0", "1", "1"]] * 2 + [["2", "2", "3", "3"]] * 2
    assert lines[-1] == "This mesh has 16 hops in all; none better was found for this shape."


def test_a_mesh_says_what_it_costs_and_what_the_best_does() -> None:
    result = run("--slice", "v5e:4x8", "--mesh", "4x8", "--dims", "data,model")
    assert "This mesh has 128 hops in all; the best that was found for this shape has 96 (--best)." in result.stdout
    best = facts("--slice", "v5e:4x8", "--mesh", "4x8", "--best")
    assert (best["mesh"]["cost"], best["best_cost"]) == (96, 96)


def test_json_has_all_facts() -> None:
    found = facts("--sim", "2x2x1x2", "--mesh", "2x4", "--wrap", "x,y")
    assert Topology.from_json(found).wrap == ("x", "y")
    assert (found["num_clients"], found["num_devices"], found["num_missing"]) == (1, 8, 0)
    assert found["mesh"]["dims"][1] == {
        "name": "d1",
        "size": 4,
        "rings": 2,
        "hops": 4,
        "hops_of_a_ring": [2, 2],
        "longest_hop": 1,
    }


@pytest.mark.parametrize(
    "data",
    [json.dumps(FOUR.to_json()).encode(), json.dumps({"topology": FOUR.to_json()}).encode(), FOUR.to_proto()],
    ids=["json", "demo", "proto"],
)
def test_files_of_all_kinds_are_read(data: bytes, tmp_path: Path) -> None:
    file = tmp_path / "topology"
    file.write_bytes(data)
    assert Topology.from_json(facts(str(file))) == FOUR
    assert Topology.from_json(facts("-", data=data)) == FOUR
    assert facts("-", "--wrap", "y", data=data)["wrap"] == ["y"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "num_tasks=0"),
        (b"{", "Expecting property name"),
        (b'{"topology": null}', "its devices have no location"),
        (b'{"mesh_shape": [1, 1, 1, 1]}', "has no 'device_coordinates'"),
        (b"root:x:0:0", "the 10 bytes are not a serialized tpu.TopologyProto"),
        (b"{" + b'"a":[' * 100_000, "holds no topology"),
    ],
)
def test_files_that_hold_none_are_refused(data: bytes, words: str) -> None:
    result = run("-", data=data)
    assert isinstance(result.exception, ConfigurationError)
    assert "standard input holds no topology" in str(result.exception)
    assert words in str(result.exception)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Give one of FILE, --job, --slice and --sim."),
        (["--slice", "v5e:4x4", "--sim", "4x4"], "Give one of FILE, --job, --slice and --sim."),
        (["-", "--clients", "2"], "--clients goes with --slice and --sim"),
        (["--slice", "v5e:4x4", "--wrap", "w"], "'w' is not some of x, y and z"),
        (["--slice", "v5e:4x4", "--mesh", "4x"], "'4x' is not sizes with `x` between them"),
    ],
)
def test_wrong_command_lines_are_explained(arguments: list[str], words: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--slice", "v9:4x4"], "--slice='v9:4x4' names no slice"),
        (["--sim", "4"], "--sim='4': it is not made of"),
        (["--sim", "4x4", "--clients", "3"], "--sim=4x4x1x1: 16 chips do not divide over 3 clients"),
        (["--slice", "v5e:4x4", "--mesh", "4x5"], "a mesh of shape [4, 5] has 20 positions"),
        (["--slice", "v5e:4x4", "--rings", "d7", "--svg", "no.svg"], "no dimension 'd7'"),
        (["--slice", "v5e:4x4", "--svg", "/no/such/folder/a.svg"], "/no/such/folder/a.svg cannot be written"),
    ],
)
def test_wrong_values_are_refused_by_name(arguments: list[str], words: str) -> None:
    result = run(*arguments)
    assert isinstance(result.exception, ConfigurationError)
    assert words in str(result.exception)
    assert not Path("no.svg").exists()


def test_a_machine_with_holes_is_drawn_without_a_mesh(tmp_path: Path) -> None:
    svg = tmp_path / "a.svg"
    result = run("-", "--svg", str(svg), data=json.dumps(HOLES.to_json()).encode())
    assert "2 places have no device: no mesh can be made." in result.stdout
    assert svg.exists()
    assert facts("-", data=HOLES.to_proto())["mesh"] is None


def test_the_svg_has_chips_in_place_and_rings_between_them(tmp_path: Path) -> None:
    file = tmp_path / "a.svg"
    run("-", "--svg", str(file), data=FOUR.to_proto())
    root = ET.fromstring(file.read_bytes())
    chips = [(rect, title.text) for rect in root.iter(f"{SVG}rect") if (title := rect.find(f"{SVG}title")) is not None]
    assert [title for _, title in chips] == [
        "chip (0, 0, 0), client 0",
        "chip (0, 1, 0), client 1",
        "chip (1, 0, 0), client 0",
        "chip (1, 1, 0), client 1",
    ]
    corner = {title: (float(rect.attrib["x"]), float(rect.attrib["y"])) for rect, title in chips}
    assert corner["chip (1, 0, 0), client 0"][0] > corner["chip (0, 0, 0), client 0"][0]
    assert corner["chip (0, 1, 0), client 1"][1] > corner["chip (0, 0, 0), client 0"][1]
    fills = {title: rect.attrib["fill"] for rect, title in chips}
    assert fills["chip (0, 0, 0), client 0"] == fills["chip (1, 0, 0), client 0"] != fills["chip (0, 1, 0), client 1"]
    assert len(root.findall(f"{SVG}polyline")) == 4
    assert len(root.findall(f"{SVG}circle")) == 4


def test_rings_bow_around_what_they_pass_and_are_dashed_between_planes() -> None:
    places = [[x, 0, z, 0] for z in range(2) for x in range(3)]
    line = Topology([3, 1, 2, 1], [places])
    mesh = line.mesh(0, [2, 3], ["a", "b"])
    flat = [shape for shape in draw(line, mesh, ["b"]).shapes if isinstance(shape, Line)]
    assert sorted(len(shape.points) > 2 for shape in flat) == [False] * 4 + [True] * 2
    assert not any(shape.dashed for shape in flat)
    between = [shape for shape in draw(line, mesh, ["a"]).shapes if isinstance(shape, Line)]
    assert len(between) == 6
    assert all(shape.dashed for shape in between)


def test_all_shapes_are_within_the_picture() -> None:
    for extents in ([2, 3, 5, 2], [16, 16, 1, 1], [1, 1, 9, 1]):
        x, y, z, cores = extents
        rows = [[i, j, k, core] for k in range(z) for j in range(y) for i in range(x) for core in range(cores)]
        machine = Topology(extents, [rows])
        drawing = draw(machine, machine.mesh(0, [1, len(rows)], ["a", "b"]), ["b"])
        points = [(shape.x, shape.y) for shape in drawing.shapes if isinstance(shape, Box | Dot | Label)]
        points += [(shape.x + shape.size, shape.y + shape.size) for shape in drawing.shapes if isinstance(shape, Box)]
        points += [point for shape in drawing.shapes if isinstance(shape, Line) for point in shape.points]
        assert all(0 < x < drawing.width and 0 < y < drawing.height for x, y in points)
