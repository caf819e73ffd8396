"""The orders of rings, against worked examples of the dtensor original; cores are written as digits x, y, z, core."""

from __future__ import annotations

import numpy as np
import pytest

from bringup.devices.topology.axes import Int64Array
from bringup.devices.topology.enumeration import enumerate_places
from bringup.devices.topology.rings import _order, order_rings, order_rings_and_their_order
from bringup.errors import ConfigurationError

V3_32 = (
    "0000 0001 0100 0101 1000 1001 1100 1101 0200 0201 0300 0301 1200 1201 1300 1301 "
    "2000 2001 2100 2101 3000 3001 3100 3101 2200 2201 2300 2301 3200 3201 3300 3301"
)


def cores(digits: str) -> Int64Array:
    return np.array([[int(digit) for digit in core] for core in digits.split()], np.int64)


def text(places: Int64Array) -> str:
    return " ".join("".join(map(str, place)) for place in places.reshape(-1, 4))


@pytest.mark.parametrize(
    ("given", "rotate", "ring"),
    [
        ("0000", False, "0000"),
        ("1000 0000", False, "0000 1000"),
        ("0000 0100 1000 1100", False, "0000 1000 1100 0100"),
        ("0000 0100 1000 1100", True, "0000 0100 1100 1000"),
        ("0000 0100 0001 0101 1000 1100 1001 1101", False, "0000 0001 1000 1001 1100 1101 0100 0101"),
        ("0000 0100 0200 0300", False, "0000 0300 0200 0100"),
        ("2200 3200 2300 3300", False, "2200 3200 3300 2300"),
        ("0000 1000 2000 0100 1100 2100 0200 1200 2200", False, "0000 1000 2000 2100 1100 1200 2200 0200 0100"),
        (
            "0000 1000 2000 3000 0100 1100 2100 3100 0200 1200 2200 3200 0300 1300 2300 3300",
            True,
            "0000 0100 0200 0300 1300 1200 1100 2100 2200 2300 3300 3200 3100 3000 2000 1000",
        ),
        (
            "0000 0001 0100 0101 1000 1001 1100 1101 0010 0011 0110 0111 1010 1011 1110 1111",
            False,
            "1000 1001 1100 1101 0100 0101 0111 0110 1111 1110 1011 1010 0010 0011 0000 0001",
        ),
        (
            "0000 1000 0100 1100 0010 1010 0110 1110 0020 1020 0120 1120 0030 1030 0130 1130",
            False,
            "1000 1100 0100 0110 1110 1010 1020 1120 0120 0130 1130 1030 0030 0020 0010 0000",
        ),
    ],
)
def test_a_ring(given: str, rotate: bool, ring: str) -> None:
    assert text(cores(given)[_order(cores(given), rotate=rotate)]) == ring


def test_every_ring_has_the_order_of_the_first() -> None:
    rows = cores("0000 1000 2000 3000 0100 1100 2100 3100").reshape(2, 4, 4)
    assert text(order_rings(rows)) == "0000 1000 2000 3000 0100 1100 2100 3100"


@pytest.mark.parametrize(("rotate", "blocks"), [(False, ["00", "20", "22", "02"]), (True, ["00", "02", "22", "20"])])
def test_rings_make_a_ring(rotate: bool, blocks: list[str]) -> None:
    rings = order_rings_and_their_order(cores(V3_32).reshape(4, 8, 4), rotate=rotate)
    assert [text(ring)[:2] for ring in rings] == blocks
    assert text(rings[0]) == "0000 0001 1000 1001 1100 1101 0100 0101"


def test_the_upper_plane_comes_first() -> None:
    planes = cores("0000 1000 0100 1100 0010 1010 0110 1110").reshape(2, 4, 4)
    assert text(order_rings_and_their_order(planes, rotate=False)) == "0010 1010 1110 0110 0000 1000 1100 0100"


@pytest.mark.parametrize(
    ("extents", "bounds", "axes", "split", "ring_size", "order"),
    [
        ((2, 2, 1, 2), (2, 2, 1, 2), "core z y x", True, 8, "0000 0001 0100 0101 1000 1001 1100 1101"),
        ((2, 2, 1, 2), (2, 2, 1, 2), "core x y z", True, 8, "0000 0001 1000 1001 0100 0101 1100 1101"),
        (
            (4, 4, 1, 2),
            (4, 4, 1, 2),
            "core y z x",
            False,
            8,
            (
                "0000 0001 0100 0101 1000 1001 1100 1101 0200 0201 0300 0301 1200 1201 1300 1301 "
                "2000 2001 2100 2101 3000 3001 3100 3101 2200 2201 2300 2301 3200 3201 3300 3301"
            ),
        ),
        (
            (4, 4, 1, 2),
            (2, 2, 1, 2),
            "core x y z",
            False,
            8,
            (
                "0000 0001 1000 1001 0100 0101 1100 1101 2000 2001 3000 3001 2100 2101 3100 3101 "
                "0200 0201 1200 1201 0300 0301 1300 1301 2200 2201 3200 3201 2300 2301 3300 3301"
            ),
        ),
        (
            (4, 4, 2, 1),
            (2, 2, 2, 1),
            "core x y z",
            True,
            8,
            (
                "0000 1000 0100 1100 0010 1010 0110 1110 2000 3000 2100 3100 2010 3010 2110 3110 "
                "0200 1200 0300 1300 0210 1210 0310 1310 2200 3200 2300 3300 2210 3210 2310 3310"
            ),
        ),
        ((1, 1, 1, 2), (1, 1, 1, 2), "core x y z", False, 2, "0000 0001"),
    ],
)
def test_places_are_enumerated_in_blocks(
    extents: tuple[int, int, int, int],
    bounds: tuple[int, int, int, int],
    axes: str,
    split: bool,
    ring_size: int,
    order: str,
) -> None:
    found = enumerate_places(extents, bounds, axes.split(), split_hosts=split, ring_size=ring_size)
    assert text(found) == order


@pytest.mark.parametrize("ring_size", [1, 4])
def test_hosts_that_do_not_fit_into_rings_are_refused(ring_size: int) -> None:
    extents = (1, 1, 1, 2) if ring_size == 1 else (2, 2, 1, 2)
    with pytest.raises(ConfigurationError, match=f"rings of {ring_size} are too small"):
        enumerate_places(extents, extents, ["core", "x", "y", "z"], split_hosts=False, ring_size=ring_size)
