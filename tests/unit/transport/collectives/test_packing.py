"""Arrays as collectives carry them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from bringup.errors import ConfigurationError
from bringup.transport.collectives.packing import Packing, reduce_into

SQUARE = np.arange(12, dtype="int64").reshape(3, 4)
LAYOUTS = [SQUARE.T, SQUARE[:, ::2], np.asfortranarray(SQUARE), np.asarray(np.int64(7)), SQUARE[:0], SQUARE[::-1, ::-1]]


@pytest.mark.parametrize("array", [*LAYOUTS, SQUARE.astype(">i4"), SQUARE > 5, SQUARE + 1j], ids=repr)
def test_an_array_comes_back_as_it_was_and_is_a_copy(array: np.ndarray) -> None:
    packing = Packing("max", [array])
    buffers = packing.pack()
    (result,) = packing.unpack(buffers)
    assert (result.dtype, result.shape) == (array.dtype, array.shape)
    assert np.array_equal(result, array)
    assert result.flags.writeable
    assert not np.shares_memory(result, array)
    assert [buffer.ndim for buffer in buffers] == [1]


def test_arrays_of_one_dtype_share_a_buffer_and_each_finds_its_own_again() -> None:
    arrays = [SQUARE, SQUARE.astype("float32"), SQUARE.astype(">i8").T, SQUARE.astype("int8")]
    packing = Packing("sum", arrays)
    buffers = packing.pack()
    assert [(buffer.dtype.name, buffer.size) for buffer in buffers] == [("int64", 24), ("float32", 12), ("int8", 12)]
    for array, result in zip(arrays, packing.unpack(buffers), strict=True):
        assert (result.dtype, result.shape) == (array.dtype, array.shape)
        assert np.array_equal(result, array)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "int4"])
def test_numbers_of_other_libraries_are_numbers(dtype: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.ones((2, 3), getattr(ml_dtypes, dtype))
    packing = Packing("sum", [array])
    (buffer,) = packing.pack()
    reduce_into(packing.reduction, buffer, buffer, buffer)
    (result,) = packing.unpack([buffer])
    assert result.dtype == array.dtype
    assert (result.astype("float32") == 2).all()
    assert packing.describe() == f"{dtype}[2, 3]"


def test_a_dtype_without_the_operation_is_refused_with_advice() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with pytest.raises(ConfigurationError, match=r"int4 has no 'min'.*convert the array"):
        Packing("min", [np.ones(2, ml_dtypes.int4)])


@pytest.mark.parametrize(
    "array",
    [np.array(["a"]), np.array([None]), np.zeros(2, "V4"), np.zeros(2, [("a", "i4")]), np.zeros(2, "M8[s]")],
    ids=lambda array: str(array.dtype),
)
def test_what_is_no_number_is_refused(array: np.ndarray) -> None:
    with pytest.raises(ConfigurationError, match="numeric"):
        Packing("sum", [array])


@pytest.mark.parametrize("op", ["mode", "", None, ["sum"]])
def test_an_operation_that_does_not_exist_is_refused(op: object) -> None:
    with pytest.raises(ConfigurationError, match="it has sum"):
        Packing(op, [SQUARE])  # type: ignore[arg-type]


def test_an_overflow_is_a_value_whatever_the_program_has_set() -> None:
    large = np.full(3, 3e38, "float32")
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        reduce_into(np.add, large, large, large)
    assert np.isinf(large).all()
