"""Trees of arrays that several clients reduce: the numbers, and what is said where structures differ."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from bringup.errors import CollectiveMismatchError
from bringup.runtime.collectives import _Reduction
from bringup.transport.collectives.ring import Ring

from .places import Place
from .rings import rings

LARGE = 2**14


async def reduced(ring: Ring, tree: Any, op: str, clients: int) -> Any:
    with ring.enter() as turn:
        reduction = _Reduction(tree, op, None, clients)
        turn.give(reduction.contribution)
        return reduction.result(await asyncio.wrap_future(turn.result))


def gradients(client_id: int) -> dict[Any, Any]:
    """Of several dtypes and sizes, in an order of keys that is the client's own."""
    tree: dict[Any, Any] = {
        "w": np.full((2, LARGE), client_id + 1.0),
        "b": [np.full(3, 2**client_id), (np.full(2, client_id, np.float32), np.full(LARGE, client_id, np.float32))],
        7: {"none": np.zeros((0, 2))},
    }
    return dict(reversed(tree.items())) if client_id % 2 else tree


async def test_all_clients_get_the_same_tree_of_the_right_numbers(place: Place) -> None:
    async with rings(place, 3) as group:
        calls = (reduced(ring, gradients(client_id), "sum", 3) for client_id, ring in enumerate(group))
        for client_id, tree in enumerate(await asyncio.gather(*calls)):
            assert list(tree) == list(gradients(client_id))
            assert (tree["w"] == 6.0).all()
            assert tree["b"][0].tolist() == [7, 7, 7]
            assert tree["b"][1][0].dtype == np.float32
            assert tree["b"][1][0].tolist() == [3.0, 3.0]
            assert (tree["b"][1][1] == 3.0).all()
            assert tree[7]["none"].shape == (0, 2)


@pytest.mark.parametrize(
    ("odd", "where"),
    [
        (
            {"a": np.ones(2), "b": [np.ones(3), np.ones(4)]},
            "they differ at ['b'][1]: float64[5] and float64[4]: client 0",
        ),
        ({"a": np.ones(2), "c": [np.ones(3), np.ones(5)]}, "they differ in the keys at the top: 'b' and 'c': client 0"),
        ({"a": np.ones(2), "b": [np.ones(3)]}, "they differ after ['b'][0]: client 0"),
    ],
)
@pytest.mark.places("memory")
async def test_where_structures_differ_the_first_leaf_is_named(place: Place, odd: Any, where: str) -> None:
    common = {"a": np.ones(2), "b": [np.ones(3), np.ones(5)]}
    async with rings(place, 3) as group:
        calls = [reduced(ring, odd if ring is group[1] else common, "mean", 3) for ring in group]
        for error in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(error, CollectiveMismatchError)
            assert where in str(error)
            assert "client 1 called" in str(error)
        calls = [reduced(ring, common, "mean", 3) for ring in group]
        assert [tree["b"][1][4] for tree in await asyncio.gather(*calls)] == [1.0] * 3
