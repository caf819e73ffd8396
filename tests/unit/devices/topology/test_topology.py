"""The physical coordinates of all devices."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bringup
from bringup.devices.topology.topology import Topology
from bringup.errors import ConfigurationError, TopologyError

TWO = [[[0, 0, 0, 0], [0, 0, 0, 1]], [[1, 0, 0, 0], [1, 0, 0, 1]]]
RAGGED = [[[0, 0, 0, 0]], [[1, 0, 0, 0], [1, 0, 0, 1]]]
V2_8 = [[[x, y, 0, core] for y in range(2) for x in range(2) for core in range(2)]]
V2_8_PROTO = "0a04020201021001180822200000000000000001010000000100000100010000000100010101000001010001"
V3_32 = [
    [[x + dx, y + dy, 0, core] for dy in range(2) for dx in range(2) for core in range(2)]
    for y in (0, 2)
    for x in (0, 2)
]


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


def test_a_client_may_have_no_devices() -> None:
    topology = Topology([1, 1, 1, 2], [[], TWO[0], []])
    assert [len(one) for one in topology.device_coordinates] == [0, 2, 0]
    assert topology.task_ordinal_at_coordinates([0, 0, 0, 1]) == 1


def test_it_follows_from_the_merged_table() -> None:
    locations = np.array([row for client in RAGGED for row in client], np.int32)
    assert Topology.of_locations(np.array([1, 2], np.int32), locations) == Topology([2, 1, 1, 2], RAGGED)
    equal = np.array(TWO, np.int32).reshape(4, 4)
    assert Topology.of_locations(np.array([2, 2], np.int32), equal) == Topology([2, 1, 1, 2], TWO)


def test_it_cannot_be_changed_from_outside() -> None:
    given = np.array(TWO, np.int32)
    topology = Topology([2, 1, 1, 2], given)
    given[0, 0, 0] = 1
    assert topology.to_json()["device_coordinates"] == TWO
    for array in (topology.mesh_shape, topology.device_coordinates[0][0], topology.locations[0]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5
    with pytest.raises(AttributeError):
        topology.mesh_shape = [1, 1, 1, 1]  # type: ignore[misc, assignment]


def test_equality_and_hash_are_by_value() -> None:
    one, same, other = Topology([2, 1, 1, 2], TWO), Topology([2, 1, 1, 2], TWO), Topology([2, 1, 1, 2], RAGGED)
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one != Topology([3, 1, 1, 2], TWO)
    assert one != Topology([2, 1, 1, 2], TWO, wrap="x")
    assert one != "a topology"
    assert repr(one) == "<Topology 2x1x1x2, 4 devices of 2 clients>"
    assert repr(Topology([2, 1, 1, 2], TWO, wrap="x")).endswith("2 clients, wrapping around in x>")


@pytest.mark.parametrize(
    ("mesh_shape", "coordinates", "words"),
    [
        ([2, 1, 1], TWO, "[2, 1, 1]"),
        ([2, 1, 1, 0], TWO, "[2, 1, 1, 0]"),
        ([2.0, 1, 1, 2], TWO, "[2.0, 1.0, 1.0, 2.0]"),
        ([[2], [1, 1]], TWO, "[[2], [1, 1]]"),
        (None, TWO, "mesh_shape is None"),
        ([50_000, 50_000, 1, 1], TWO, "more than 2147483647 places"),
        ([1, 1, 1, 2], TWO, "device 0 of client 1 is at [1, 0, 0, 0], outside mesh_shape [1, 1, 1, 2] (2 such"),
        ([2, 1, 1, 2], [[[-1, 0, 0, 0]]], "device 0 of client 0 is at [-1, 0, 0, 0], outside"),
        ([2, 1, 1, 2], [[[2**40, 0, 0, 0]]], "is at [1099511627776, 0, 0, 0], outside"),
        ([2, 1, 1, 2], [[[2**80, 0, 0, 0]]], "client 0 are not whole numbers"),
        ([2, 1, 1, 2], [[[0.5, 0, 0, 0]]], "the first is [0.5, 0.0, 0.0, 0.0]"),
        ([2, 1, 1, 2], [TWO[0], [[1, 0, 0]]], "client 1 have shape [1, 3]"),
        ([2, 1, 1, 2], [TWO[0], [[1, 0, 0], [1]]], "client 1 are rows of unequal lengths"),
        ([2, 1, 1, 2], [[0, 0, 0, 0]], "client 0 have shape [4]"),
        ([2, 1, 1, 2], [TWO[0][0], TWO[0]], "client 0 have shape [4]"),
        ([2, 1, 1, 2], 7, "device_coordinates is 7"),
        ([2, 1, 1, 2], "0000", "device_coordinates is '0000'"),
        ([2, 1, 1, 2], [], "has no devices"),
        ([2, 1, 1, 2], [[], []], "has no devices"),
        (
            [2, 1, 1, 2],
            [TWO[0], TWO[0][::-1]],
            "device 0 of client 0 and device 1 of client 1 are both at [0, 0, 0, 0] (2 such places)",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(mesh_shape: Any, coordinates: Any, words: str) -> None:
    with pytest.raises(TopologyError) as caught:
        Topology(mesh_shape, coordinates)
    assert words in str(caught.value)


@pytest.mark.parametrize("wrap", ["core", ["x", "w"], 3])
def test_only_axes_of_chips_wrap_around(wrap: Any) -> None:
    with pytest.raises(TopologyError, match="not an axis of chips; give some of x, y, z"):
        Topology([2, 1, 1, 2], TWO, wrap=wrap)
    assert Topology([2, 1, 1, 2], TWO, wrap=["z", "x", "x"]).wrap == ("x", "z")


def test_who_is_at_a_place() -> None:
    topology = Topology([4, 4, 1, 2], V3_32)
    assert [topology.task_ordinal_at_coordinates(first) for first in ([0, 0, 0, 0], [2, 0, 0, 0], [0, 3, 0, 0])] == [
        0,
        1,
        2,
    ]
    assert topology.tpu_device_ordinal_at_coordinates([3, 0, 0, 1]) == 3
    assert topology.tpu_device_name_at_coordinates([3, 0, 0, 1], job="worker") == "/job:worker/task:1/device:TPU:3"
    assert topology.tpu_device_name_at_coordinates((1, 1, 0, 1)) == "/task:0/device:TPU:7"
    assert (
        topology.cpu_device_name_at_coordinates(np.array([2, 2, 0, 0]), "worker") == "/job:worker/task:3/device:CPU:0"
    )
    assert topology.cpu_device_name_at_coordinates([0, 0, 0, 0]) == "/task:0/device:CPU:0"


def test_places_without_a_device() -> None:
    topology = Topology([2, 2, 1, 1], [[[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]]])
    assert topology.missing_devices.tolist() == [[1, 1, 0, 0]]
    assert topology.missing_devices.dtype == np.int32
    assert topology.num_missing == 1
    assert topology.task_ordinal_at_coordinates([1, 1, 0, 0]) == -1
    assert topology.tpu_device_ordinal_at_coordinates([1, 1, 0, 0]) == -1
    for name_at in (topology.tpu_device_name_at_coordinates, topology.cpu_device_name_at_coordinates):
        with pytest.raises(TopologyError, match=r"no device at \[1, 1, 0, 0\], one of 1 places"):
            name_at([1, 1, 0, 0])
    assert Topology([2, 1, 1, 2], TWO).missing_devices.shape == (0, 4)


@pytest.mark.parametrize("place", [[2, 0, 0, 0], [-1, 0, 0, 0], [0, 0, 0], [0.5, 0, 0, 0], "0000"])
def test_places_outside_are_refused_with_their_value(place: Any) -> None:
    with pytest.raises(
        TopologyError, match=r"is not a place \[x, y, z, core\] of the machine of mesh_shape \[2, 1, 1, 2\]"
    ):
        Topology([2, 1, 1, 2], TWO).task_ordinal_at_coordinates(place)


def test_the_wire_form_is_that_of_tensorflow() -> None:
    topology = Topology([2, 2, 1, 2], V2_8)
    assert topology.to_proto().hex() == V2_8_PROTO
    assert Topology.from_proto(bytes.fromhex(V2_8_PROTO)) == topology


def test_features_of_the_hardware_in_a_wire_form_are_passed_over() -> None:
    assert Topology.from_proto(bytes.fromhex(V2_8_PROTO + "2a020802")) == Topology([2, 2, 1, 2], V2_8)


def test_the_wire_form_cannot_say_unequal_numbers_of_devices() -> None:
    with pytest.raises(TopologyError, match="client 0 has 1 and client 1 has 2: use to_json"):
        Topology([2, 1, 1, 2], RAGGED).to_proto()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "num_tasks=0"),
        (b"\xff\xff", "the 2 bytes are not a serialized tpu.TopologyProto"),
        (bytes.fromhex("0a0402020102100118072220") + bytes(32), "num_tpu_devices_per_task=7 and 32 numbers"),
        (bytes.fromhex("0a0402020102" + "10ffffffffffffffffff01"), "num_tasks=-1"),
        (bytes.fromhex("0a03020201" + V2_8_PROTO[12:]), "mesh_shape is [2, 2, 1]"),
        (bytes.fromhex(V2_8_PROTO[:-2] + "07"), "[1, 1, 0, 7], outside"),
    ],
)
def test_wire_forms_that_make_no_sense_are_refused(data: bytes, words: str) -> None:
    with pytest.raises(TopologyError) as caught:
        Topology.from_proto(data)
    assert words in str(caught.value)


@pytest.mark.parametrize("coordinates", [TWO, RAGGED])
@pytest.mark.parametrize("wrap", ["", "xz"])
def test_json_gives_the_same_topology_back(coordinates: Any, wrap: str) -> None:
    topology = Topology([2, 1, 1, 2], coordinates, wrap=wrap)
    assert Topology.from_json(json.loads(json.dumps(topology.to_json()))) == topology
    assert ("wrap" in topology.to_json()) is bool(wrap)


@pytest.mark.parametrize("value", [{}, {"mesh_shape": [1, 1, 1, 1]}, {"device_coordinates": []}, [], None])
def test_json_without_its_keys_is_refused(value: Any) -> None:
    with pytest.raises(TopologyError, match="the description of a topology has no"):
        Topology.from_json(value)


@given(st.data())
def test_every_topology_goes_through_both_forms(data: st.DataObject) -> None:
    extents = data.draw(st.lists(st.integers(1, 4), min_size=4, max_size=4))
    places = [list(map(int, place)) for place in np.ndindex(*extents)]
    chosen = data.draw(st.lists(st.sampled_from(places), min_size=1, unique_by=tuple))
    clients = data.draw(st.sampled_from([count for count in range(1, len(chosen) + 1) if len(chosen) % count == 0]))
    size = len(chosen) // clients
    topology = Topology(extents, [chosen[at : at + size] for at in range(0, len(chosen), size)])
    assert Topology.from_proto(topology.to_proto()) == topology
    assert Topology.from_json(topology.to_json()) == topology
    assert [topology.task_ordinal_at_coordinates(place) for place in chosen] == topology.client_ids().tolist()
    assert sorted([*chosen, *topology.missing_devices.tolist()]) == places


def test_far_apart_devices_cost_no_memory_for_the_places_between() -> None:
    """Before, an array of 2 GiB was made."""
    topology = Topology([2**30, 1, 1, 1], [[[0, 0, 0, 0]], [[2**30 - 1, 0, 0, 0]]])
    tracemalloc.start()
    try:
        with pytest.raises(TopologyError, match=r"1073741822 places .* too many to list"):
            _ = topology.missing_devices
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


class Refusing:
    """Refuses to be anything."""

    def __array__(self, *_: object, **__: object) -> Any:
        raise TypeError("no array")

    def __iter__(self) -> Any:
        raise TypeError("no iterator")


ODD: list[Any] = [
    *(
        None,
        3,
        0.5,
        "x",
        "xyz1",
        b"x",
        True,
        object(),
        Refusing(),
        np.array(1),
        np.array("x"),
        np.array(None),
        {},
        {1: 2},
    ),
    *([], [[]], [[[]]], [1], [1, [2]], [[1, 2], 3], [None] * 4, ["x"] * 4, [1.5] * 4, [2**80] * 4, [[0] * 4, [0] * 3]),
    *(iter([1]), range(9), [[[0, 0, 0, 0]], [[0, 0, 0]]], [[[0, 0, 0, 0], [0, 0, 0]]], [[[0, 0, 0, "0"]]]),
    *(np.zeros((1, 1, 4)), np.zeros((2, 2, 2), int), [Refusing()] * 4, float("nan"), [float("inf")] * 4, {"x": [1]}),
]


def takes(argument: str, value: Any) -> None:
    """Give one argument of a topology, or of one of its methods, a value."""
    topology = Topology([2, 1, 1, 2], TWO)
    match argument:
        case "mesh_shape":
            Topology(value, TWO)
        case "device_coordinates":
            Topology([2, 1, 1, 2], value)
        case "wrap":
            Topology([2, 1, 1, 2], TWO, wrap=value)
        case "place":
            topology.task_ordinal_at_coordinates(value)
        case "client":
            topology.rows_of(value)
        case "proto":
            Topology.from_proto(value)
        case "json":
            Topology.from_json(value)
        case "shape":
            topology.best_mesh(value)
        case "dim_names":
            topology.best_mesh([2, 2], value)
        case "weights":
            topology.best_mesh([2, 2], weights=value)
        case "ring_dims" | "ring_axes" | "ring_bounds":
            topology.mesh(0, [2, 2], ["a", "b"], **{argument: value})
        case _:
            raise AssertionError(argument)


@pytest.mark.parametrize(
    "argument",
    [
        "mesh_shape",
        "device_coordinates",
        "wrap",
        "place",
        "client",
        "proto",
        "json",
        "shape",
        "dim_names",
        "weights",
        "ring_dims",
        "ring_axes",
        "ring_bounds",
    ],
)
def test_values_of_wrong_types_are_refused_as_such(argument: str) -> None:
    refused = 0
    for value in ODD:
        try:
            takes(argument, value)
        except (TopologyError, ConfigurationError):
            refused += 1
    assert refused >= len(ODD) - 8


def test_it_is_public() -> None:
    assert bringup.Topology is Topology
