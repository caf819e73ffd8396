"""The blocking interface: `bringup.sync.initialize()` and the system that it returns."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

import numpy as np
import numpy.typing as npt

from ..errors import BringupError, PeerFailedError
from .client import lifecycle
from .client.active import ACTIVE
from .collectives import all_reduce_blocking
from .configuration.options import OptionOverrides, Options
from .configuration.request import OnFailure, Request
from .drivers.latch import blocked
from .kv import KeyValueStore
from .leaving import Leaving
from .system import System
from .system_base import SystemFacts
from .types import KeyChange

T = TypeVar("T")
S = TypeVar("S", bound=np.generic)
D = TypeVar("D", bound=dict[Any, Any])


_END_OF_WATCH = object()


def initialize(
    device_type: str | None = None,
    *,
    jobs: str | Sequence[str] | None = None,
    client_id: int | None = None,
    num_clients: int | None = None,
    job_name: str | None = None,
    local_device_ids: int | Sequence[int] | None = None,
    num_logical_cpu_devices: int | None = None,
    enable_coordination_service: bool = True,
    enable_megacore: bool = False,
    reset: bool = False,
    resolver: object | None = None,
    on_failure: OnFailure = "raise",
    options: Options | None = None,
    **overrides: Unpack[OptionOverrides],
) -> SyncSystem:
    """Bring this client up, blocking; arguments and errors are those of `bringup.initialize()`.

    Ctrl-C interrupts it at any point, leaves nothing behind, and tells the other clients.
    """
    request = Request(**locals())
    del overrides  # a token in there would show beside a traceback
    client = blocked(lifecycle.bring_up(request, None))
    try:
        return SyncSystem(client)
    except BaseException as interrupt:
        blocked(lifecycle.abandon(client, interrupt))
        raise


def current() -> SyncSystem:
    """Return the active system of this process.

    Raises:
        NotInitializedError: there is none.
        BringupError: its `initialize()` has failed.
    """
    return SyncSystem(ACTIVE.up())


class SyncSystem(SystemFacts):
    """A job that is up, with methods that block; see `System`. It may be used in any thread, beside any event loop."""

    @overload
    def all_reduce(
        self, array: npt.NDArray[S], op: str = ..., *, out: npt.NDArray[S] | None = ..., timeout: float | None = ...
    ) -> npt.NDArray[S]: ...

    @overload
    def all_reduce(self, array: D, op: str = ..., *, out: D | None = ..., timeout: float | None = ...) -> D: ...

    @overload
    def all_reduce(self, array: object, op: str = ..., *, out: Any = ..., timeout: float | None = ...) -> Any: ...

    def all_reduce(self, array: object, op: str = "sum", *, out: Any = None, timeout: float | None = None) -> Any:
        """Reduce an array, or a tree of arrays, over all clients; blocks until all have called it.

        Args:
            array: any shape, any numeric dtype, or a dict, list or tuple of arrays; alike on every client.
            op: `sum`, `prod`, `min`, `max` or, for floating point and complex numbers, `mean`.
            out: where to put the result: an array, or a tree of arrays, like the input; returned then.
            timeout: seconds, or `None` to wait for as long as the job lives.

        Returns:
            The result, of the input's structure, shape and dtype, with the same bits on every client.

        Raises:
            CollectiveMismatchError: another client called something else, or its call ended before its turn.
            ConfigurationError: an argument is wrong.
            PeerFailedError: another client failed.
            TimeoutError: not all clients came in time; see `System.all_reduce` for what becomes of the job.
        """
        return all_reduce_blocking(self._client, self._peer, array, op, out, timeout)

    @cached_property
    def kv(self) -> SyncKeyValueStore:
        """See `System.kv`."""
        return SyncKeyValueStore(System(self._client).kv, self._run)

    @cached_property
    def leaving(self) -> SyncLeaving:
        """See `System.leaving`; its `wait` blocks, and takes a `timeout`."""
        return SyncLeaving(Leaving(self._client), self._run)

    def barrier(self, name: str, *, client_ids: Iterable[int] | None = None, timeout: float | None = None) -> None:
        """See `System.barrier`."""
        self._run(lambda: System(self._client).barrier(name, client_ids=client_ids, timeout=timeout))

    def live_clients(self) -> tuple[int, ...]:
        """See `System.live_clients`."""
        return self._run(lambda: System(self._client).live_clients())

    @contextlib.contextmanager
    def live(self, client_ids: Iterable[int] | None = None) -> Iterator[tuple[int, ...]]:
        """See `System.live`."""
        live = System(self._client).live(client_ids)
        ids = self._run(lambda: live.__aenter__())
        try:
            yield ids
        except BaseException as error:
            if not self._run(partial(live.__aexit__, type(error), error, error.__traceback__)):
                raise
        else:
            self._run(lambda: live.__aexit__(None, None, None))

    def reached_preemption_point(self, step: int) -> bool:
        """See `System.reached_preemption_point`."""
        answer = self._reached(step)
        return answer if isinstance(answer, bool) else _result(answer)

    def wait_failed(self) -> PeerFailedError | None:
        """See `System.wait_failed`."""
        self._check_process()
        self._client.ended.wait_blocking()
        return self._end_of_job()

    def shutdown(self, *, raise_on_failure: bool = True) -> None:
        """See `System.shutdown`."""
        blocked(lifecycle.leave(self._client, raise_on_failure=raise_on_failure))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            return blocked(lifecycle.abandon(self._client, error))
        try:
            return self.shutdown()
        except BringupError:
            raise
        except BaseException as interrupt:
            blocked(lifecycle.abandon(self._client, interrupt))
            raise

    def _run(self, make: Callable[[], Awaitable[T]]) -> T:
        """Block for what `make` returns, awaited on the loop of the client."""
        try:
            return _result(self._client.submit(make))
        except concurrent.futures.CancelledError:
            raise self._client.end_error() from None  # the client ended under the call


class SyncKeyValueStore:
    """The key-value store of a job, with calls that block; see `KeyValueStore`.

    Args:
        store: the store.
        run: blocks for what a function returns, awaited on the loop of the client.
    """

    def __init__(self, store: KeyValueStore, run: Callable[[Callable[[], Awaitable[Any]]], Any]) -> None:
        self._store = store
        self._run = run

    def set(self, key: str, value: bytes | str, *, overwrite: bool = False) -> None:
        """See `KeyValueStore.set`."""
        self._run(lambda: self._store.set(key, value, overwrite=overwrite))

    def get(self, key: str, *, timeout: float | None = None) -> bytes:
        """See `KeyValueStore.get`."""
        value: bytes = self._run(lambda: self._store.get(key, timeout=timeout))
        return value

    def try_get(self, key: str) -> bytes | None:
        """See `KeyValueStore.try_get`."""
        value: bytes | None = self._run(lambda: self._store.try_get(key))
        return value

    def list(self, prefix: str) -> dict[str, bytes]:
        """See `KeyValueStore.list`."""
        items: dict[str, bytes] = self._run(lambda: self._store.list(prefix))
        return items

    def delete(self, key: str) -> None:
        """See `KeyValueStore.delete`."""
        self._run(lambda: self._store.delete(key))

    def increment(self, key: str, by: int = 1) -> int:
        """See `KeyValueStore.increment`."""
        number: int = self._run(lambda: self._store.increment(key, by))
        return number

    def compare_and_set(self, key: str, expected: bytes | str | None, value: bytes | str) -> bool:
        """See `KeyValueStore.compare_and_set`."""
        was_set: bool = self._run(lambda: self._store.compare_and_set(key, expected, value))
        return was_set

    def watch(self, prefix: str) -> Iterator[KeyChange]:
        """See `KeyValueStore.watch`."""
        # A caller that stops early does not wait for the end of the watch: the client's loop closes the generator.
        changes = self._store.watch(prefix)
        while (change := self._run(lambda: anext(changes, _END_OF_WATCH))) is not _END_OF_WATCH:
            yield change


class SyncLeaving:
    """The event that clients have begun to leave, with a `wait` that blocks; see `Leaving`.

    Args:
        leaving: the event.
        run: blocks for what a function returns, awaited on the loop of the client.
    """

    def __init__(
        self, leaving: Leaving, run: Callable[[Callable[[], Awaitable[tuple[int, ...]]]], tuple[int, ...]]
    ) -> None:
        self._leaving = leaving
        self._run = run

    @property
    def client_ids(self) -> tuple[int, ...]:
        """See `Leaving.client_ids`."""
        return self._leaving.client_ids

    def is_set(self) -> bool:
        """See `Leaving.is_set`."""
        return self._leaving.is_set()

    def wait(self, timeout: float | None = None) -> tuple[int, ...]:
        """See `Leaving.wait`; returns no client after `timeout` seconds without one."""

        async def wait() -> tuple[int, ...]:
            try:
                async with asyncio.timeout(timeout):
                    return await self._leaving.wait()
            except TimeoutError:
                return ()

        return self.client_ids or self._run(wait)


def _result(future: concurrent.futures.Future[T]) -> T:
    """Block for the result of a call; Ctrl-C, or an exception of a signal handler, cancels the call."""
    try:
        return future.result()
    finally:
        future.cancel()
