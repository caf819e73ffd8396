"""Meshes: DTensor's own answers, and what a mesh knows of itself.

`vectors/tpu_meshes.json` holds what `tensorflow.experimental.dtensor.create_tpu_mesh` of tensorflow 2.21 answered, with
the device layer below it replaced by a recorder: for each case the location of each mesh position, row-major, as four
digits (x, y, z, core), and this client's local device ids; or that it raised a ValueError.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bringup
from bringup.devices.topology.mesh import Mesh
from bringup.devices.topology.topology import Topology
from bringup.errors import ConfigurationError, TopologyError

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "tpu_meshes.json").read_text())


def places(digits: str) -> list[list[int]]:
    return [[int(digit) for digit in place] for place in digits.split()]


TOPOLOGIES = [
    Topology(one["mesh_shape"], [places(client) for client in one["clients"]]) for one in VECTORS["topologies"]
]


def machine(x: int, y: int, z: int = 1, cores: int = 1, clients: int = 1, wrap: str = "") -> Topology:
    rows = [[i, j, k, core] for k in range(z) for j in range(y) for i in range(x) for core in range(cores)]
    size = len(rows) // clients
    return Topology([x, y, z, cores], [rows[at : at + size] for at in range(0, len(rows), size)], wrap=wrap)


def order_of(mesh: Mesh) -> list[list[int]]:
    rows: list[list[int]] = mesh.topology.locations[mesh.device_ids.ravel()].tolist()
    return rows


@pytest.mark.parametrize("case", VECTORS["cases"])
def test_dtensor_gives_the_same_mesh(case: dict[str, Any]) -> None:
    topology = TOPOLOGIES[case["topology"]]
    names = [f"d{dim}" for dim in range(len(case["shape"]))]
    if case.get("refused"):
        with pytest.raises(ValueError, match=r"ring|host"):
            topology.mesh(case["client_id"], case["shape"], names, **case["options"])
        return
    mesh = topology.mesh(case["client_id"], case["shape"], names, **case["options"])
    assert order_of(mesh) == places(case["order"])
    assert mesh.local_device_ids == case["local"]
    assert mesh.shape == tuple(case["shape"])


def test_the_vectors_are_all_there() -> None:
    assert len(VECTORS["cases"]) == 116
    assert sum("refused" in case for case in VECTORS["cases"]) == 24


def test_what_a_mesh_knows() -> None:
    mesh = machine(4, 4, clients=4).mesh(1, [4, 4], ["data", "model"], ring_bounds=[2, 2, 1, 1])
    assert (mesh.shape, mesh.dim_names, mesh.size, mesh.client_id) == ((4, 4), ("data", "model"), 16, 1)
    assert (mesh.dim_size("data"), mesh.dim_size("model")) == (4, 4)
    assert mesh.device_ids.dtype == np.int32
    assert mesh.device_ids.tolist() == [[0, 1, 5, 4], [2, 3, 7, 6], [8, 9, 13, 12], [10, 11, 15, 14]]
    assert mesh.local_device_ids == [3, 2, 7, 6]
    assert mesh.local_device_locations[1] == {"data": 0, "model": 2}
    assert mesh.locations[1, 2].tolist() == [3, 1, 0, 0]
    assert repr(mesh) == "<Mesh data=4, model=4, 16 devices, of client 1>"
    with pytest.raises(ValueError, match="read-only"):
        mesh.device_ids[0, 0] = 5


def test_the_local_devices_of_all_clients_are_all_positions() -> None:
    topology = Topology([2, 2, 1, 1], [[[1, 1, 0, 0]], [[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]]])
    local = [topology.mesh(client, [1, 4], ["a", "b"]).local_device_ids for client in range(2)]
    assert local == [[2], [0, 1, 3]]


def test_neighbours_are_those_in_the_ring() -> None:
    mesh = machine(2, 2).mesh(0, [1, 4], ["a", "b"])
    assert mesh.device_ids.tolist() == [[0, 1, 3, 2]]
    assert mesh.neighbours("b").tolist() == [[[2, 1], [0, 3], [1, 2], [3, 0]]]
    assert mesh.neighbours("a").tolist() == [[[0, 0], [1, 1], [3, 3], [2, 2]]]


def test_hops_are_links_between_chips() -> None:
    mesh = machine(4, 2, cores=2).mesh(0, [2, 8], ["a", "b"])
    assert mesh.hops("b").tolist() == [[0, 1, 0, 1, 0, 1, 0, 3]] * 2
    assert mesh.ring_hops("b").tolist() == [6, 6]
    assert mesh.ring_hops("a").tolist() == [2] * 8
    assert mesh.cost == 12 + 16
    assert mesh.ring_hops("a", "b").shape == ()


def test_a_ring_runs_through_several_dimensions() -> None:
    mesh = machine(4, 2).mesh(0, [2, 2, 2], ["a", "b", "c"])
    assert mesh.ring_hops("b", "c").tolist() == [mesh.hops("b", "c")[0].sum(), mesh.hops("b", "c")[1].sum()]
    assert mesh.hops("a", "b", "c").shape == (8,)
    assert mesh.hops("b").shape == (2, 2, 2)


def test_axes_wrap_around_where_the_topology_says_so() -> None:
    assert machine(4, 1).mesh(0, [1, 4], ["a", "b"]).hops("b").tolist() == [[1, 1, 1, 3]]
    assert machine(4, 1, wrap="x").mesh(0, [1, 4], ["a", "b"]).hops("b").tolist() == [[1, 1, 1, 1]]
    assert machine(1, 4, wrap="x").mesh(0, [1, 4], ["a", "b"]).cost == 6


def test_meshes_are_equal_by_value() -> None:
    topology = machine(4, 4, clients=2)
    one, same = (topology.mesh(0, [4, 4], ["a", "b"]) for _ in range(2))
    assert one == same
    assert hash(one) == hash(same)
    assert one != topology.mesh(1, [4, 4], ["a", "b"])
    assert one != topology.mesh(0, [4, 4], ["a", "c"])
    assert one != topology.mesh(0, [4, 4], ["a", "b"], ring_axes=["y", "x", "z", "core"])
    assert one != machine(4, 4, clients=2, wrap="x").mesh(0, [4, 4], ["a", "b"])
    assert one != 5


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"client_id": 2}, "client_id is 2; the clients are 0 to 1"),
        ({"client_id": "0"}, "client_id is '0'"),
        ({"shape": [3, 4]}, "a mesh of shape [3, 4] has 12 positions, but the job has 16 devices"),
        ({"shape": [-1, 16]}, "shape is [-1, 16]"),
        ({"shape": []}, "shape is []"),
        ({"shape": 16}, "shape is 16"),
        ({"shape": [4.0, 4.0]}, "shape is [4.0, 4.0]"),
        ({"dim_names": ["a"]}, "dim_names is ['a'], but shape [4, 4] has 2 dimensions"),
        ({"dim_names": ["a", "a"]}, "all different"),
        ({"dim_names": ["a", ["b"]]}, "names of dimensions are texts"),
        ({"dim_names": "ab"}, "dim_names is 'ab'"),
        ({"ring_dims": 3}, "ring_dims is 3"),
        ({"ring_dims": -3}, "from -2 to 2 for a mesh of shape [4, 4]"),
        ({"ring_dims": "1"}, "ring_dims is '1'"),
        ({"ring_axes": ["x", "y", "z"]}, "ring_axes is ['x', 'y', 'z']"),
        ({"ring_axes": ["x", "y", "z", "z"]}, "ring_axes is ['x', 'y', 'z', 'z']"),
        ({"ring_axes": 4}, "ring_axes is 4"),
        ({"ring_bounds": [2, 2, 1]}, "ring_bounds is [2, 2, 1]"),
        ({"ring_bounds": [2, 2, 1, 0]}, "ring_bounds is [2, 2, 1, 0]"),
        ({"ring_bounds": [2, 8, 1, 1]}, "ring_bounds [2, 8, 1, 1] should be <= the machine's mesh_shape [4, 4, 1, 1]"),
        ({"ring_bounds": [3, 4, 1, 1]}, "ring_bounds [3, 4, 1, 1] do not divide the machine"),
        ({"ring_bounds": [1, 4, 1, 1], "can_split_host_across_rings": False}, "multiples of a host's [2, 2, 1, 1]"),
        ({"shape": [8, 2], "can_split_host_across_rings": False}, "rings of 2 are too small"),
    ],
)
def test_malformed_arguments_are_refused_by_name_and_value(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        machine(4, 4, clients=2).mesh(**{"client_id": 0, "shape": [4, 4], "dim_names": ["a", "b"], **arguments})
    assert words in str(caught.value)


def test_chips_with_many_cores_make_no_rings() -> None:
    with pytest.raises(ConfigurationError, match=r"mesh_shape \[2, 2, 1, 3\] has 3 cores on a chip"):
        machine(2, 2, cores=3).mesh(0, [3, 4], ["a", "b"])


@pytest.mark.parametrize(
    ("places", "hole"),
    [([[0, 0, 0, 0], [1, 1, 0, 0]], [0, 1, 0, 0]), ([[0, 0, 0, 0], [0, 1, 0, 0], [1, 0, 0, 0]], [1, 1, 0, 0])],
)
def test_a_machine_with_holes_makes_no_mesh(places: list[list[int]], hole: list[int]) -> None:
    topology = Topology([2, 2, 1, 1], [places])
    for make in (lambda: topology.mesh(0, [len(places)], ["a"]), lambda: topology.best_mesh([len(places)])):
        with pytest.raises(TopologyError) as caught:
            make()
        assert f"{4 - len(places)} of mesh_shape [2, 2, 1, 1] have none; the first is {hole}" in str(caught.value)


def test_unknown_dimensions_are_refused_by_name() -> None:
    mesh = machine(4, 4).mesh(0, [4, 4], ["a", "b"])
    for ask in (mesh.dim_size, mesh.neighbours, mesh.hops, mesh.ring_hops):
        with pytest.raises(ConfigurationError, match="the mesh has no dimension 'c'; it has a, b"):
            ask("c")
    for dims in ((), ("a", "a")):
        with pytest.raises(ConfigurationError, match="one or more different dimensions"):
            mesh.hops(*dims)


def test_it_is_public() -> None:
    assert bringup.Mesh is Mesh
