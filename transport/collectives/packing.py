"""Packing of arrays for a collective: one flat buffer for each dtype, reduced in place. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import ConfigurationError

Array = npt.NDArray[Any]

_REDUCTIONS: dict[str, np.ufunc] = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}

# numpy works a name out anew each time, and through many functions at first, which a job would wait for.
_NAMES = {dtype: dtype.name for dtype in map(np.dtype, "?bhilqBHILQefdFD")}


def _name_of(dtype: np.dtype[Any]) -> str:
    return _NAMES.get(dtype) or dtype.name


def reduce_into(reduction: np.ufunc, one: Array, other: Array, out: Array) -> None:
    """Put the reduction of two arrays into `out`.

    An overflow or a NaN is a value like any other here: which client computes it is chance, so no settings of numpy or
    of `warnings` in the program of that one may turn it into an exception.
    """
    with np.errstate(all="ignore"):
        reduction(one, other, out=out)


class Packing:
    """The layout of one client's arrays in the buffers of an all-reduce.

    Making one is cheap and checks everything; `pack` and `unpack` copy, and may run on any thread.

    Args:
        op: `sum`, `prod`, `min` or `max`.
        arrays: any shapes and layouts, numeric dtypes.
        call: what was called, without its arguments.

    Attributes:
        reduction: of two arrays.
        nbytes: bytes of all arrays.

    Raises:
        ConfigurationError: there is no such operation, or an array's dtype does not have it.
    """

    def __init__(self, op: str, arrays: Sequence[Array], call: str = "all_reduce") -> None:
        if not isinstance(op, str) or op not in _REDUCTIONS:
            raise ConfigurationError(f"{call} has no op {op!r}; it has {', '.join(_REDUCTIONS)}")
        self.op = op
        self.reduction = _REDUCTIONS[op]
        self._arrays = arrays
        for dtype in {array.dtype for array in arrays}:
            self._check(call, dtype)
        self.nbytes = sum(array.nbytes for array in arrays)
        # The largest items first, so that all lie aligned where buffers are sent one after the other.
        natives = {array.dtype.newbyteorder("=") for array in arrays}
        self._dtypes = sorted(natives, key=lambda dtype: (-dtype.itemsize, _name_of(dtype)))

    def pack(self) -> tuple[Array, ...]:
        """Return the buffers: copies, of one dimension and in the machine's byte order."""
        return tuple(self._pack(dtype) for dtype in self._dtypes)

    def _pack(self, dtype: np.dtype[Any]) -> Array:
        arrays = [array for array in self._arrays if array.dtype.newbyteorder("=") == dtype]
        buffer = np.empty(sum(array.size for array in arrays), dtype)
        start = 0
        for array in arrays:
            part = buffer[start : start + array.size]
            np.copyto(part.reshape(array.shape), array)
            start += array.size
        return buffer

    def unpack(self, totals: Sequence[Array]) -> list[Array]:
        """Return the arrays, in their original shapes and dtypes, from buffers like those of `pack`."""
        starts = dict.fromkeys(self._dtypes, 0)
        total_of = dict(zip(self._dtypes, totals, strict=True))
        results = []
        for array in self._arrays:
            dtype = array.dtype.newbyteorder("=")
            start = starts[dtype]
            starts[dtype] = start + array.size
            part = total_of[dtype][start : starts[dtype]].reshape(array.shape)
            results.append(part.astype(array.dtype, copy=False))
        return results

    def describe(self) -> str:
        """Return the dtypes and shapes, for the comparison between clients."""
        return ", ".join(f"{_name_of(array.dtype)}{list(array.shape)}" for array in self._arrays)

    def _check(self, call: str, dtype: np.dtype[Any]) -> None:
        is_numeric = dtype.kind in "biufc" or (dtype.kind == "V" and dtype.type is not np.void)
        if not is_numeric:
            raise ConfigurationError(f"{call} takes numeric arrays, got one of dtype {dtype}")
        none = np.empty(0, dtype.newbyteorder("="))
        try:
            reduced = self.reduction(none, none)
        except TypeError:
            reduced = None
        if reduced is None or reduced.dtype != none.dtype:
            raise ConfigurationError(
                f"{call}: dtype {dtype} has no {self.op!r} of its own; convert the array to another, as float32, first"
            )
