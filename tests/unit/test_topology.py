"""The physical coordinates of all devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bringup.errors import TopologyError
from bringup.runtime.machines.topology import Topology

TWO = [[[0, 0, 0, 0], [0, 0, 0, 1]], [[1, 0, 0, 0], [1, 0, 0, 1]]]
RAGGED = [[[0, 0, 0, 0]], [[1, 0, 0, 0], [1, 0, 0, 1]]]


def test_equal_numbers_of_devices_make_one_array() -> None:
    topology = Topology([2, 1, 1, 2], TWO)
    coordinates = topology.device_coordinates
    assert isinstance(coordinates, np.ndarray)
    assert coordinates.shape == (2, 2, 4)
    assert coordinates.dtype == np.int32
    assert topology.mesh_shape.tolist() == [2, 1, 1, 2]
    assert (topology.num_clients, topology.num_devices) == (2, 4)


def test_unequal_numbers_of_devices_make_a_list() -> None:
    topology = Topology([2, 1, 1, 2], RAGGED)
    coordinates = topology.device_coordinates
    assert isinstance(coordinates, list)
    assert [one.tolist() for one in coordinates] == RAGGED
    assert topology.num_devices == 3


def test_it_follows_from_the_merged_table() -> None:
    locations = np.array([row for client in RAGGED for row in client], np.int32)
    assert Topology.of_locations(np.array([1, 2], np.int32), locations) == Topology([2, 1, 1, 2], RAGGED)


def test_it_cannot_be_changed_from_outside() -> None:
    given = np.array(TWO, np.int32)
    topology = Topology([2, 1, 1, 2], given)
    given[0, 0, 0] = 1
    assert topology.to_json()["device_coordinates"] == TWO
    with pytest.raises(ValueError, match="read-only"):
        topology.mesh_shape[0] = 5
    with pytest.raises(ValueError, match="read-only"):
        topology.device_coordinates[0][0, 0] = 5


def test_equality_and_hash_are_by_value() -> None:
    one, same, other = Topology([2, 1, 1, 2], TWO), Topology([2, 1, 1, 2], TWO), Topology([2, 1, 1, 2], RAGGED)
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one != Topology([3, 1, 1, 2], TWO)
    assert one != "a topology"
    assert repr(one) == "<Topology 2x1x1x2, 4 devices of 2 clients>"


@pytest.mark.parametrize(
    ("mesh_shape", "coordinates", "words"),
    [
        ([2, 1, 1], TWO, "[2, 1, 1]"),
        ([2, 1, 1, 0], TWO, "[2, 1, 1, 0]"),
        ([1, 1, 1, 2], TWO, "client 1 is outside"),
        ([2, 1, 1, 2], [[[-1, 0, 0, 0]]], "client 0 is outside"),
        ([2, 1, 1, 2], [TWO[0], [[1, 0, 0]]], "client 1 have shape [1, 3]"),
        ([2, 1, 1, 2], [[0, 0, 0, 0]], "client 0 have shape [4]"),
    ],
)
def test_what_makes_no_sense_is_refused(mesh_shape: list[int], coordinates: Any, words: str) -> None:
    with pytest.raises(TopologyError) as caught:
        Topology(mesh_shape, coordinates)
    assert words in str(caught.value)
