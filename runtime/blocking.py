"""The blocking wrapper: the same system for scripts, for threads, and inside a process whose loop is running."""

from __future__ import annotations

import concurrent.futures
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from functools import cached_property, partial
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

import numpy as np
import numpy.typing as npt

from ..errors import BringupError, PeerFailedError
from .blocking_kv import SyncKeyValueStore
from .client.client import ACTIVE, Client
from .client.ending import add_failure_note, conclude
from .client.startup import not_up, resolve_client
from .collectives import all_reduce_blocking
from .configuration.options import OptionOverrides, Options
from .configuration.plan import OnFailure
from .drivers.peer import CoordinationPeer
from .leaving import Leaving, SyncLeaving
from .system import System
from .system_base import SystemFacts

T = TypeVar("T")
S = TypeVar("S", bound=np.generic)
D = TypeVar("D", bound=dict[Any, Any])


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
    arguments = {
        "device_type": device_type,
        "jobs": jobs,
        "client_id": client_id,
        "num_clients": num_clients,
        "job_name": job_name,
        "local_device_ids": local_device_ids,
        "num_logical_cpu_devices": num_logical_cpu_devices,
        "enable_coordination_service": enable_coordination_service,
        "enable_megacore": enable_megacore,
        "resolver": resolver,
        "on_failure": on_failure,
        "options": options,
        "overrides": overrides,
    }
    client = resolve_client(arguments, is_blocking=True)
    incumbent = ACTIVE.get()
    if incumbent is not None and incumbent.failed.is_set:
        incumbent.finish_blocking()
        incumbent.failure_notice.note_given()
    elif incumbent is not None and reset:
        _end(incumbent)
    client.imports.serve(None)
    client.start()
    try:
        client.imports.serve_blocking()
        client.settled.wait_blocking()
    except BaseException as error:
        _abort(client, error)
        raise
    up = client.settled.value
    if up is None:
        client.finish_blocking()
        raise client.end()
    return SyncSystem(client, up)


def current() -> SyncSystem:
    """Return the active system of this process.

    Raises:
        NotInitializedError: there is none.
    """
    client = ACTIVE.demand()
    up = client.settled.value
    if up is None:
        raise not_up(client)
    return SyncSystem(client, up)


class SyncSystem(SystemFacts):
    """A job that is up, seen from one client; its methods block. As a context manager it ends as a `System` does."""

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
        return SyncKeyValueStore(System(self._client, self._up).kv, self._run)

    @cached_property
    def leaving(self) -> SyncLeaving:
        """See `System.leaving`; its `wait` blocks, and takes a `timeout`."""
        return SyncLeaving(Leaving(self._client), self._run)

    def barrier(self, name: str, *, client_ids: Iterable[int] | None = None, timeout: float | None = None) -> None:
        """See `System.barrier`."""
        self._run(lambda: System(self._client, self._up).barrier(name, client_ids=client_ids, timeout=timeout))

    def live_clients(self) -> tuple[int, ...]:
        """See `System.live_clients`."""
        return self._run(lambda: System(self._client, self._up).live_clients())

    @contextlib.contextmanager
    def live(self, client_ids: Iterable[int] | None = None) -> Iterator[tuple[int, ...]]:
        """See `System.live`."""
        live = System(self._client, self._up).live(client_ids)
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
        self._client.finish_blocking()
        return self._end_of_job()

    def shutdown(self, *, raise_on_failure: bool = True) -> None:
        """See `System.shutdown`."""
        if not self._client.is_over:
            try:
                self._call(lambda peer: peer.leave())
            except BringupError:
                pass  # it ended at the same moment
            self._client.finish_blocking()
        ACTIVE.release(self._client)
        conclude(self._client, raise_on_failure=raise_on_failure)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            return _abort(self._client, error)
        try:
            return self.shutdown()
        except BringupError:
            raise
        except BaseException as interrupt:
            _abort(self._client, interrupt)
            raise

    def _run(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run on the runtime's loop what a `System` would do on its caller's."""
        return self._call(lambda _: make())

    def _call(self, make: Callable[[CoordinationPeer], Coroutine[Any, Any, T]]) -> T:
        try:
            return _result(self._client.submit(make))
        except concurrent.futures.CancelledError:
            raise self._client.end() from None  # the runtime ended under the call


def _result(future: concurrent.futures.Future[T]) -> T:
    """Block for what a call comes to; Ctrl-C, or what a signal handler of the user's raises, cancels it."""
    try:
        return future.result()
    finally:
        future.cancel()  # nobody waits for it any more


def _abort(client: Client, error: BaseException) -> None:
    client.abort(error)
    client.finish_blocking()
    ACTIVE.release(client)
    add_failure_note(client, error)


def _end(incumbent: Client) -> None:
    up = incumbent.settled.value
    if up is not None:
        SyncSystem(incumbent, up).shutdown(raise_on_failure=False)
    else:
        _abort(incumbent, KeyboardInterrupt("another initialize(reset=True) replaced it"))
