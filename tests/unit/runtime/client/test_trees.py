"""Trees of arrays, and `all_reduce` of them in local mode."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest

import bringup
from bringup.runtime.client.trees import is_tree
from bringup.runtime.collectives import _Reduction
from bringup.transport.collectives.agreement import TEXT_BYTES_MAX, Agreement

Layer = namedtuple("Layer", "w b")  # noqa: PYI024
ONES = np.ones((2, 3), "float32")


def reduced(array: Any, op: str = "sum", out: Any = None, clients: int = 1) -> Any:
    """Return what one client that reduces alone, as one of some, gets."""
    reduction = _Reduction(array, op, out, clients)
    return reduction.result(reduction.contribution.buffers)


@pytest.mark.parametrize("op", ["avg", None])
def test_an_op_that_there_is_not_is_answered_with_all_that_there_are(op: Any) -> None:
    with pytest.raises(bringup.ConfigurationError, match=r"no op .*; it has sum, mean, prod, min, max$"):
        reduced(ONES, op)


@pytest.mark.parametrize(
    "tree",
    [
        {"w": ONES, "b": np.arange(3)},
        [ONES, ONES * 2],
        (ONES, {"x": [np.float64(1), ONES]}),
        Layer(ONES, np.arange(2)),
        OrderedDict(z=ONES, a=ONES),
        {2: ONES, "a": {}, 1: [[1, 2], ONES]},
        {},
    ],
    ids=repr,
)
def test_the_result_has_the_same_structure(tree: Any) -> None:
    assert is_tree(tree)
    result = reduced(tree)
    assert type(result) is type(tree)
    assert str(result) == str(reduced(result))
    if isinstance(tree, dict):
        assert list(result) == list(tree)


def test_lists_of_numbers_are_arrays() -> None:
    for array in ([1.0, 2.0], [[1, 2], [3, 4]], (), 3, [np.float32(1)]):
        assert not is_tree(array)
        assert np.array_equal(reduced(array), np.asarray(array))


def test_the_order_of_keys_makes_no_difference_and_structure_does() -> None:
    call = _Reduction({"a": ONES, "b": ONES}, "sum", None, 1).contribution.call
    assert call == "all_reduce(sum, {'a': float32[2, 3], 'b': float32[2, 3]})"
    assert _Reduction({"b": ONES, "a": ONES}, "sum", None, 1).contribution.call == call
    assert _Reduction({"a": ONES, "c": ONES}, "sum", None, 1).contribution.call != call
    many = {str(i): ONES for i in range(1000)}
    long = _Reduction(many, "sum", None, 1).contribution
    assert len(long.call) < 2000
    assert _Reduction({**many, "999": ONES[0]}, "sum", None, 1).contribution.call != long.call
    assert len(long.buffers) == 1


def test_two_long_descriptions_fit_into_a_frame_whatever_the_keys() -> None:
    calls = [_Reduction({"\U0001f600" * 50 + str(i): ONES[:n] for i in range(99)}, "sum", None, 1) for n in (1, 2)]
    first, second = (reduction.contribution.call for reduction in calls)
    told = Agreement.of(0, first) + Agreement.of(1, second)
    assert not told.agreed
    assert len(told.text.encode()) <= TEXT_BYTES_MAX


def test_the_mean_is_the_sum_divided_and_is_refused_for_integers() -> None:
    assert (reduced({"a": ONES * 3}, "mean", clients=3)["a"] == 1).all()
    assert reduced(np.full(2, 4 + 2j), "mean", clients=2).tolist() == [2 + 1j] * 2
    with pytest.raises(bringup.ConfigurationError, match="floating point first"):
        reduced(np.arange(3), "mean")


def test_out_of_a_tree_is_written_and_must_be_alike() -> None:
    out = {"a": np.zeros((2, 3), "float32")}
    assert reduced({"a": ONES}, out=out) is out
    assert (out["a"] == 1).all()
    for wrong in ({"b": out["a"]}, out["a"], {"a": np.zeros(6, "float32")}, {"a": [0.0]}, {"a": out["a"], "b": ONES}):
        with pytest.raises(bringup.ConfigurationError, match="out"):
            reduced({"a": ONES}, out=wrong)


@pytest.mark.parametrize(
    ("array", "complaint"),
    [
        ([[1, 2], [3]], "give an array"),
        ({"w": None}, r"NoneType at \['w'\] of dtype object"),
        ({1.5: ONES}, "keys are texts"),
        ({"w": ["a"]}, "numeric"),
    ],
)
def test_what_is_no_array_is_refused_with_advice(array: Any, complaint: str) -> None:
    with pytest.raises(bringup.ConfigurationError, match=complaint):
        reduced(array)


def test_a_tree_in_local_mode() -> None:
    with bringup.sync.initialize("SIM", jobs="127.0.0.1:1", client_id=0) as system:
        assert (system.all_reduce({"w": ONES}, "mean")["w"] == 1).all()
