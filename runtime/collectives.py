"""`all_reduce` of both interfaces: checks and copies in the caller's threads, around the wait for the other clients.

A copy of gigabytes takes seconds: on the runtime's loop these would be seconds without heartbeats, on the caller's
seconds without service.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ..errors import BringupError, ConfigurationError
from ..transport.collectives.packing import Packing
from ..transport.collectives.turns import Contribution, Turn
from .client.client import Client
from .client.trees import arrays_of, describe, is_tree, rebuilt
from .configuration.validation import timeout_of
from .drivers.peer import CoordinationPeer

Array = npt.NDArray[Any]
T = TypeVar("T")

_OPS = ("sum", "mean", "prod", "min", "max")

_LARGE_BYTES = 1024 * 1024
"""From this size on (0.1 ms or more), arrays are copied in a thread rather than on the caller's event loop."""


class _Reduction:
    """One call: the contribution of this client, and the place of its result.

    Raises:
        ConfigurationError: an argument is wrong.
    """

    def __init__(self, array: Any, op: str, out: Any, num_clients: int) -> None:
        given = arrays_of(array, _as_array)
        self._array = array
        self._outs = None if out is None else _outs_of(array, given, out)
        self._out = out
        self._divisor = num_clients if op == "mean" else None
        if not isinstance(op, str) or op not in _OPS:
            raise ConfigurationError(f"all_reduce has no op {op!r}; it has {', '.join(_OPS)}")
        self._packing = Packing("sum" if op == "mean" else op, given)
        if op == "mean":
            _check_mean(given)
        call = f"all_reduce({op}, {describe(array, iter(given))})"
        self.contribution = Contribution(call, self._packing.reduction, self._packing.pack())

    def result(self, totals: tuple[Array, ...]) -> Any:
        """Return the result, in `out` where there is one."""
        if self._divisor is not None:
            with np.errstate(all="ignore"):
                for total in totals:
                    np.true_divide(total, total.dtype.type(self._divisor), out=total)
        results = self._packing.unpack(totals)
        if self._outs is None:
            return rebuilt(self._array, iter(results))
        for target, result in zip(self._outs, results, strict=True):
            target[...] = result
        return self._out


def all_reduce(
    client: Client, peer: CoordinationPeer, array: Any, op: str, out: Any, timeout: float | None
) -> Coroutine[Any, Any, Any]:
    """See `System.all_reduce`. A call takes its place in the order even if it is cancelled before its first step."""

    def withdraw(error: BaseException) -> None:
        # Where the job has failed, the calls that are awaited raise that.
        with contextlib.suppress(BringupError), _enter(client, peer) as turn:
            turn.withdraw(error)

    return _Call(_all_reduce(client, peer, array, op, out, timeout), withdraw)


async def _all_reduce(
    client: Client, peer: CoordinationPeer, array: Any, op: str, out: Any, timeout: float | None
) -> Any:
    with _enter(client, peer) as turn:
        limit = timeout_of("all_reduce()", timeout)
        is_large = _bytes_in(array) >= _LARGE_BYTES
        if is_large:
            reduction = await asyncio.to_thread(_Reduction, array, op, out, client.job.num_clients)
        else:
            reduction = _Reduction(array, op, out, client.job.num_clients)
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
    client: Client, peer: CoordinationPeer, array: Any, op: str, out: Any, timeout: float | None
) -> Any:
    """See `SyncSystem.all_reduce`."""
    with _enter(client, peer) as turn:
        limit = timeout_of("all_reduce()", timeout)
        reduction = _Reduction(array, op, out, client.job.num_clients)
        with peer.waiting():
            turn.give(reduction.contribution)
            try:
                totals = turn.result.result(limit)
            except TimeoutError:
                if turn.result.done():  # the result of the call itself
                    raise
                raise _timeout(timeout) from None
        return reduction.result(totals)


class _Call(Coroutine[Any, Any, T]):
    """A coroutine that is told of a cancellation before its first step, of which Python tells no coroutine.

    That happens in `asyncio.wait_for(call, 0)`, and where another task of a `TaskGroup` fails at once.

    Args:
        coroutine: the coroutine.
        at_once: called with an exception that was thrown in before the first step.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T], at_once: Callable[[BaseException], None]) -> None:
        self.__qualname__ = getattr(coroutine, "__qualname__", type(self).__qualname__)  # tasks show it
        self._coroutine = coroutine
        self._at_once: Callable[[BaseException], None] | None = at_once

    def __await__(self) -> Generator[Any, Any, T]:
        self._at_once = None
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        """See `Coroutine.send`."""
        self._at_once = None
        return self._coroutine.send(value)

    def throw(
        self,
        kind: type[BaseException] | BaseException,
        value: BaseException | object = None,
        trace: TracebackType | None = None,
        /,
    ) -> Any:
        """See `Coroutine.throw`."""
        given = kind if isinstance(kind, BaseException) else value
        error = given if isinstance(given, BaseException) else kind()  # type: ignore[operator]
        at_once, self._at_once = self._at_once, None
        if at_once is not None:
            at_once(error)
        return self._coroutine.throw(error.with_traceback(trace) if trace is not None else error)

    def close(self) -> None:
        """See `Coroutine.close`."""
        self._coroutine.close()


def _enter(client: Client, peer: CoordinationPeer) -> AbstractContextManager[Turn]:
    # Before all checks: the other clients wait for this call in its place, whatever is wrong with it here.
    if client.is_forked:
        raise client.end_error()
    return peer.ring.enter()


def _look_at(totals: asyncio.Future[tuple[Array, ...]]) -> None:
    if not totals.cancelled():
        totals.exception()


def _timeout(timeout: float | None) -> TimeoutError:
    return TimeoutError(f"all_reduce(): not all clients came within timeout={timeout:g} s")


def _bytes_in(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(_bytes_in, value.values()))
    if is_tree(value):
        return sum(map(_bytes_in, value))
    return int(getattr(value, "nbytes", 0))


def _as_array(path: str, leaf: object) -> Array:
    where = f" at {path}" if path else ""
    advice = "give an array, numbers, or a dict, list or tuple of arrays"
    try:
        array = np.asarray(leaf)
    except (ValueError, TypeError) as error:  # numpy's word for lists that are no array
        raise ConfigurationError(
            f"all_reduce takes numeric arrays, got something else{where}: {error}; {advice}"
        ) from error
    if array.dtype.kind == "O":
        raise ConfigurationError(
            f"all_reduce takes numeric arrays, got {type(leaf).__name__}{where} of dtype object; {advice}"
        )
    return array


def _as_out(path: str, leaf: object) -> Array:
    if not isinstance(leaf, np.ndarray):
        where = f" at {path}" if path else ""
        raise ConfigurationError(f"out{where} is a {type(leaf).__name__}: results are put into numpy arrays")
    return leaf


def _check_mean(arrays: list[Array]) -> None:
    for array in arrays:
        none = np.empty(0, array.dtype)
        if array.dtype.kind in "biu" or np.true_divide(none, none).dtype != array.dtype:
            raise ConfigurationError(
                f"all_reduce: the mean of {array.dtype} is not of that dtype: convert the array to floating point "
                "first, or take op='sum' and divide"
            )


def _outs_of(array: Any, given: list[Array], out: Any) -> list[Array]:
    """Return the arrays for the results, checked against the arrays to reduce."""
    if is_tree(array) != is_tree(out):
        raise ConfigurationError("out must be like what is reduced: an array for an array, the same tree for a tree")
    outs = arrays_of(out, _as_out)
    for target, source in zip(outs, given, strict=False):
        if (target.shape, target.dtype) != (source.shape, source.dtype):
            raise ConfigurationError(
                f"out is {target.dtype}{list(target.shape)}, the array is {source.dtype}{list(source.shape)}: "
                "they must be alike"
            )
    if describe(out, iter(outs)) != describe(array, iter(given)):
        raise ConfigurationError("out is not a tree of the same structure as what is reduced")
    return outs
