"""`all_reduce` as both faces have it: what the caller's threads check and copy, round the wait for the others.

Copying gigabytes takes seconds: on the runtime's loop they would be seconds without heartbeats, on the caller's seconds
without service.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ConfigurationError
from ..transport.packing import Packing
from ..transport.turns import Contribution, Turn
from .arguments import timeout_of
from .client import Client
from .drivers.peer import CoordinationPeer

__all__ = ["all_reduce", "all_reduce_blocking"]

Array = npt.NDArray[Any]

_LARGE_BYTES = 1024 * 1024
"""From this size on, an event loop does not wait for a copy."""


class _Reduction:
    """One call: what this client gives, and where the result goes.

    Raises:
        ConfigurationError: an argument is wrong.
    """

    def __init__(self, array: npt.ArrayLike, op: str, out: Array | None) -> None:
        given = np.asarray(array)
        _check_out(given, out)
        self._out = out
        self._packing = Packing(op, [given])
        call = f"all_reduce({op}, {self._packing.describe()})"
        self.contribution = Contribution(call, self._packing.reduction, self._packing.pack())

    def result(self, totals: tuple[Array, ...]) -> Array:
        """Return the result, in `out` where there is one."""
        (result,) = self._packing.unpack(totals)
        if self._out is None:
            return result
        self._out[...] = result
        return self._out


async def all_reduce(
    client: Client, peer: CoordinationPeer, array: npt.ArrayLike, op: str, out: Array | None, timeout: float | None
) -> npt.NDArray[Any]:
    """See `System.all_reduce`."""
    with _enter(client, peer) as turn:
        limit = timeout_of("all_reduce()", timeout)
        is_large = getattr(array, "nbytes", 0) >= _LARGE_BYTES
        if is_large:
            reduction = await asyncio.to_thread(_Reduction, array, op, out)
        else:
            reduction = _Reduction(array, op, out)
        with peer.waiting():
            turn.give(reduction.contribution)
            totals = asyncio.wrap_future(turn.result)
            totals.add_done_callback(_look_at)  # a caller that was cancelled does not
            await asyncio.wait([totals], timeout=limit)
        if not totals.done():
            raise _timeout(timeout)
        if is_large:
            return await asyncio.to_thread(reduction.result, totals.result())
        return reduction.result(totals.result())


def all_reduce_blocking(
    client: Client, peer: CoordinationPeer, array: npt.ArrayLike, op: str, out: Array | None, timeout: float | None
) -> npt.NDArray[Any]:
    """See `SyncSystem.all_reduce`."""
    with _enter(client, peer) as turn:
        limit = timeout_of("all_reduce()", timeout)
        reduction = _Reduction(array, op, out)
        with peer.waiting():
            turn.give(reduction.contribution)
            try:
                totals = turn.result.result(limit)
            except TimeoutError:
                if turn.result.done():  # it is what the call has come to
                    raise
                raise _timeout(timeout) from None
        return reduction.result(totals)


def _enter(client: Client, peer: CoordinationPeer) -> AbstractContextManager[Turn]:
    # First of all: whatever is wrong with the call on this client, the others wait for it in this place.
    if client.is_forked:
        raise client.end()
    return peer.ring.enter()


def _look_at(totals: asyncio.Future[tuple[Array, ...]]) -> None:
    if not totals.cancelled():
        totals.exception()


def _timeout(timeout: float | None) -> TimeoutError:
    return TimeoutError(f"all_reduce(): not all clients came within timeout={timeout:g} s")


def _check_out(array: Array, out: Array | None) -> None:
    if out is not None and (out.shape, out.dtype) != (array.shape, array.dtype):
        raise ConfigurationError(
            f"out is {out.dtype}{list(out.shape)}, the array is {array.dtype}{list(array.shape)}: they must be alike"
        )
