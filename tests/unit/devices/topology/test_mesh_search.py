"""The mesh with the fewest hops."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.devices.topology import search as search_module
from bringup.devices.topology.nesting import Nesting, nestings
from bringup.devices.topology.search import search
from bringup.devices.topology.topology import Topology
from bringup.devices.topology.tours import closed_tours
from bringup.errors import ConfigurationError

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "tpu_meshes.json").read_text())


def machine(*extents: int, wrap: str = "") -> Topology:
    x, y, z, cores = (*extents, 1, 1)[:4]
    places = np.indices((z, y, x, cores)).reshape(4, -1).T[:, [2, 1, 0, 3]]
    return Topology([x, y, z, cores], places[None], wrap=wrap)


# The last figure is what simulated annealing over all arrangements found at best, with several seeds.
@pytest.mark.parametrize(
    ("extents", "shape", "dtensor", "best"),
    [
        ((4, 4), (4, 4), 48, 48),
        ((4, 4), (2, 8), 48, 36),
        ((4, 2), (4, 2), 28, 20),
        ((4, 8), (4, 8), 128, 96),
        ((3, 4), (2, 6), 36, 28),
        ((6, 2), (4, 3), 58, 40),
        ((3, 3), (3, 3), 24, 24),
        ((4, 4), (2, 2, 4), 104, 64),
        ((2, 4, 4), (4, 8), 80, 72),
        ((2, 4, 4), (2, 16), 96, 64),
    ],
)
def test_nothing_better_is_known(extents: tuple[int, ...], shape: tuple[int, ...], dtensor: int, best: int) -> None:
    topology = machine(*extents)
    found = topology.best_mesh(shape)
    assert found.cost == best
    assert topology.mesh(0, shape, found.dim_names).cost == dtensor


# The last figure is a lower bound: no ring can have fewer hops.
@pytest.mark.parametrize(
    ("extents", "wrap", "shape", "bound"),
    [
        ((16, 16), "xy", (16, 16), 512),
        ((4, 4, 4), "xyz", (4, 4, 4), 192),
        ((4, 4, 8), "xyz", (8, 16), 256),
        ((3, 3), "y", (9,), 9),
        ((5, 3, 1, 2), "x", (30,), 15),
        ((1, 4, 2), "y", (2, 2, 2), 24),
        ((4, 4, 4), "", (64,), 64),
        ((3, 3, 3), "", (27,), 28),
        ((50, 40, 25, 2), "", (100_000,), 50_000),
    ],
)
def test_what_cannot_be_better_is_found(
    extents: tuple[int, ...], wrap: str, shape: tuple[int, ...], bound: int
) -> None:
    assert machine(*extents, wrap=wrap).best_mesh(shape).cost == bound


def test_it_is_never_worse_than_dtensor_and_often_better() -> None:
    better = 0
    for case in VECTORS["cases"]:
        if case.get("refused"):
            continue
        extents = VECTORS["topologies"][case["topology"]]["mesh_shape"]
        topology = machine(*extents)
        best = topology.best_mesh(case["shape"])
        dtensor = topology.mesh(0, case["shape"], best.dim_names, **case["options"])
        assert best.cost <= dtensor.cost
        better += best.cost < dtensor.cost
    assert better == 39


def test_where_nothing_is_gained_the_mesh_is_dtensors() -> None:
    topology = machine(4, 4)
    assert topology.best_mesh((1, 16), ["a", "b"]) == topology.mesh(0, (1, 16), ["a", "b"])


def test_a_mesh_of_many_dimensions_takes_no_longer_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, the nestings of a split were not bounded, and this took 42 s."""
    tried = 0

    def counted(*arguments: Any) -> Iterator[Nesting]:
        nonlocal tried
        for nesting in nestings(*arguments):
            tried += 1
            yield nesting

    monkeypatch.setattr(search_module, "nestings", counted)
    monkeypatch.setattr(search_module, "_NESTINGS_MAX", 500)
    mesh = machine(8, 8, 8, 2, wrap="xyz").best_mesh([2] * 10)
    assert tried <= 500
    assert mesh.cost <= machine(8, 8, 8, 2, wrap="xyz").mesh(0, [2] * 10, mesh.dim_names).cost


def test_weights_say_what_a_hop_counts() -> None:
    topology = machine(4, 8)
    first = topology.best_mesh((4, 8), ["a", "b"], weights={"b": 0})
    second = topology.best_mesh((4, 8), ["a", "b"], weights={"a": 0.01})
    assert first.ring_hops("a").tolist() == [4] * 8
    assert second.ring_hops("b").tolist() == [8] * 4


def test_the_client_and_the_names_can_be_given() -> None:
    topology = Topology([2, 1, 1, 1], [[[0, 0, 0, 0]], [[1, 0, 0, 0]]])
    assert topology.best_mesh([2], ["all"], client_id=1).local_device_ids == [1]
    assert topology.best_mesh([2, 1]).dim_names == ("d0", "d1")


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ({"c": 1}, "weights has 'c', which is no dimension"),
        ({"a": -1}, "is -1"),
        ({"a": "1"}, "'1'"),
        ({"a": math.inf}, "inf"),
    ],
)
def test_malformed_weights_are_refused(weights: dict[str, float], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        machine(4, 4).best_mesh([4, 4], ["a", "b"], weights=weights)


def test_chips_with_many_cores_can_be_searched() -> None:
    assert machine(2, 2, 1, 3).best_mesh([3, 4]).cost == 12


def factors_of(number: int) -> list[int]:
    prime = next((prime for prime in range(2, number + 1) if number % prime == 0), None)
    return [] if prime is None else [prime, *factors_of(number // prime)]


@given(st.data())
def test_every_place_is_taken_once(data: st.DataObject) -> None:
    extents = tuple(data.draw(st.tuples(*[st.integers(1, 6)] * 3, st.integers(1, 2))))
    shape = [1] * data.draw(st.integers(1, 4))
    for factor in factors_of(math.prod(extents)):
        shape[data.draw(st.integers(0, len(shape) - 1))] *= factor
    wrap = data.draw(st.sampled_from(["", "x", "yz", "xyz"]))
    found = search(extents, wrap, tuple(shape), (1.0,) * len(shape))
    assert np.array_equal(np.sort(np.ravel_multi_index(tuple(found.T), extents)), np.arange(math.prod(extents)))
    topology = machine(*extents, wrap=wrap)
    names = [f"d{dim}" for dim in range(len(shape))]
    assert topology.best_mesh(shape).cost <= topology.mesh(0, shape, names).cost


@given(st.tuples(*[st.integers(1, 6)] * 3))
def test_every_tour_visits_every_chip_once(sizes: tuple[int, int, int]) -> None:
    shortest = math.inf
    for tour in closed_tours(sizes):
        assert np.array_equal(np.unique(tour, axis=0), [*np.ndindex(*sizes)])
        shortest = min(shortest, np.abs(tour - np.roll(tour, -1, axis=0)).sum())
    chips = math.prod(sizes)
    if sum(size > 1 for size in sizes) > 1:
        assert shortest == chips + chips % 2
    else:
        assert shortest == 2 * (chips - 1)
