"""The blocking wrapper: the same system for scripts, for threads, and inside a process whose loop is running."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from ..errors import BringupError, PeerFailedError
from .client import ACTIVE, Client
from .configuration.options import Options
from .configuration.plan import OnFailure
from .drivers.peer import CoordinationPeer
from .initialize import not_up, resolve_client
from .system import SystemFacts, check_out

__all__ = ["SyncSystem", "current", "initialize"]

T = TypeVar("T")


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
    **overrides: Any,
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
    client = resolve_client(arguments)
    incumbent = ACTIVE.get()
    if incumbent is not None and incumbent.failed.is_set:
        incumbent.finish_blocking()
    elif incumbent is not None and reset:
        _end(incumbent)
    client.start()
    try:
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
    """A job that is up, seen from one client; its methods block. As a context manager it shuts down at the end."""

    def all_reduce(
        self,
        array: npt.ArrayLike,
        op: str = "sum",
        *,
        out: npt.NDArray[Any] | None = None,
        timeout: float | None = None,
    ) -> npt.NDArray[Any]:
        """See `System.all_reduce`."""
        given = np.asarray(array)
        check_out(given, out)
        result = self._call(lambda peer: peer.all_reduce(given, op), timeout)
        if out is None:
            return result
        out[...] = result
        return out

    def barrier(self, name: str, *, timeout: float | None = None) -> None:
        """See `System.barrier`."""
        self._check_services("barrier()")
        self._call(lambda peer: peer.barrier(name, timeout))

    def wait_failed(self) -> PeerFailedError:
        """See `System.wait_failed`."""
        self._client.finish_blocking()
        error = self._client.failed.value
        if isinstance(error, PeerFailedError):
            return error
        raise self._client.end()

    def shutdown(self) -> None:
        """See `System.shutdown`."""
        if not self._client.is_over:
            try:
                self._warn_of_missing(self._call(lambda peer: peer.leave()))
            except BringupError:
                pass  # it ended at the same moment
            self._client.finish_blocking()
        ACTIVE.release(self._client)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.shutdown()
        else:
            _abort(self._client, error)

    def _call(self, make: Callable[[CoordinationPeer], Coroutine[Any, Any, T]], timeout: float | None = None) -> T:
        future = self._client.submit(make)
        try:
            return future.result(timeout)
        except concurrent.futures.TimeoutError:
            if not future.done():
                future.cancel()
                raise TimeoutError(f"not all clients came within timeout={timeout:g} s") from None
            raise
        except concurrent.futures.CancelledError:
            raise self._client.end() from None  # the runtime ended under the call
        except KeyboardInterrupt:
            future.cancel()
            raise


def _abort(client: Client, error: BaseException) -> None:
    client.abort(error)
    client.finish_blocking()
    ACTIVE.release(client)


def _end(incumbent: Client) -> None:
    up = incumbent.settled.value
    if up is not None:
        SyncSystem(incumbent, up).shutdown()
    else:
        _abort(incumbent, KeyboardInterrupt("another initialize(reset=True) replaced it"))
