"""The system: the result of `initialize()`, with the operations of a client on its job."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine, Iterable
from functools import cached_property
from types import TracebackType
from typing import Any, Self, TypeVar, overload

import numpy as np
import numpy.typing as npt

from ..errors import ConfigurationError, PeerFailedError
from ..transport.wire.services import ListLive
from .client import lifecycle
from .client.active import ACTIVE
from .client.compose import SHIPPED, Parts
from .client.service_client import barrier_request, clients_of, name_of_set
from .collectives import all_reduce
from .configuration.request import Request
from .configuration.validation import client_set
from .drivers.latch import awaited
from .kv import KeyValueStore
from .leaving import Leaving
from .system_base import SystemFacts

_log = logging.getLogger("bringup")

S = TypeVar("S", bound=np.generic)
D = TypeVar("D", bound=dict[Any, Any])


class System(SystemFacts):
    """A job that is up, and this client's operations on it. Its methods may be awaited on any event loop.

    As an asynchronous context manager it shuts down at the end, and raises there what `shutdown()` raises. An exception
    of the body has precedence; a failure of the job is added to it as a note.
    """

    @overload
    async def all_reduce(
        self, array: npt.NDArray[S], op: str = ..., *, out: npt.NDArray[S] | None = ..., timeout: float | None = ...
    ) -> npt.NDArray[S]: ...

    @overload
    async def all_reduce(self, array: D, op: str = ..., *, out: D | None = ..., timeout: float | None = ...) -> D: ...

    @overload
    async def all_reduce(self, array: object, op: str = ..., *, out: Any = ..., timeout: float | None = ...) -> Any: ...

    def all_reduce(
        self, array: object, op: str = "sum", *, out: Any = None, timeout: float | None = None
    ) -> Coroutine[Any, Any, Any]:
        """Reduce an array, or a tree of arrays, over all clients. All clients call collectives in the same order.

        A call has its place in that order as soon as it is made; calls that overlap are carried out one by one. Where
        one client's call is cancelled, times out or is refused while others are before it, or its arguments are wrong,
        those of all other clients raise `CollectiveMismatchError`, which names it, and the job goes on. Where it was
        its turn already, others may get a result that this client has not: the job fails.

        Overflows and NaNs are values, whatever `numpy.errstate` says.

        Args:
            array: any shape, any numeric dtype, those of `ml_dtypes` (bfloat16, float8, ...) too; shape and dtype must
                be the same on every client. Or a tree: a dict with texts or whole numbers as keys, a list or a tuple of
                arrays, nested as you like; its structure must be the same on every client. All of it is one collective.
                A list or tuple that holds only numbers is an array. It may be changed once this has returned.
            op: `sum`, `prod`, `min` or `max`; `mean` for floating point and complex numbers: the sum, divided.
            out: where to put the result: an array of the input's shape and dtype, or for a tree the same tree of such
                arrays; returned then. It is written once all is known, and not touched where this raises.
            timeout: seconds, or `None` to wait for as long as the job lives.

        Returns:
            The result, of the input's structure, shape and dtype, with the same bits on every client.

        Raises:
            CollectiveMismatchError: another client called something else, or its call ended before its turn.
            ConfigurationError: an argument is wrong: the array is not numeric, or there is no such operation.
            PeerFailedError: another client failed.
            TimeoutError: not all clients came in time.
        """
        return all_reduce(self._client, self._peer, array, op, out, timeout)

    @cached_property
    def kv(self) -> KeyValueStore:
        """The key-value store that all clients of the job share."""
        self._check_services("kv")
        return KeyValueStore(self._client.services, self._peer.waiting)

    @cached_property
    def leaving(self) -> Leaving:
        """An event, set once clients begin to leave: `await system.leaving.wait()` returns their ids."""
        return Leaving(self._client)

    async def barrier(
        self, name: str, *, client_ids: Iterable[int] | None = None, timeout: float | None = None
    ) -> None:
        """Wait until all clients have entered barrier `name`. Names can be reused.

        Cancelling is safe: this client has not entered then, and enters the same round with its next call.

        Args:
            name: of the barrier, at most 1 KiB.
            client_ids: the participants, this client among them; `None` for all. All must name the same.
            timeout: seconds, or `None`; the first client that enters sets the deadline of all.

        Raises:
            BarrierTimeoutError: names the missing clients, with their phases and steps.
            CollectiveMismatchError: another client names other participants, or this one does without itself.
            ConfigurationError: an argument is wrong, or another call of this client waits there already.
            PeerFailedError: another client failed; or, in phase `leaving`, a missing client is leaving the job, which
                fails this call and not the job.
        """
        self._check_services("barrier()")
        request = barrier_request(name, client_ids, timeout)
        with self._peer.waiting():
            await self._client.services.call(request)

    async def live_clients(self) -> tuple[int, ...]:
        """Return the ids of the clients that the coordinator considers alive.

        Raises:
            PeerFailedError: one has failed, and with it the job.
        """
        self._check_services("live_clients()")
        return clients_of(await self._client.services.call(ListLive))

    @contextlib.asynccontextmanager
    async def live(self, client_ids: Iterable[int] | None = None) -> AsyncIterator[tuple[int, ...]]:
        """A block that all of some clients complete, or none; yields their ids. They meet before and after it.

        Either all of them live until the end, or it raises `PeerFailedError` on all that are left, also where the block
        itself has raised something as a consequence. What the block raises else, it raises once the others have come to
        its end; a block that is cancelled does not wait for them. As jax's `live_devices` does it.

        Args:
            client_ids: the participants, this client among them; `None` for all.
        """
        self._check_services("live()")
        named = range(self.num_clients) if client_ids is None else client_ids
        ids = tuple(client_set("live()", named))
        if self.client_id not in ids:
            raise ConfigurationError(
                f"client_ids={list(ids)} of live(): client {self.client_id} itself is not among them"
            )
        name = name_of_set("live", ids)
        await self.barrier(name, client_ids=ids)
        try:
            yield ids
        except Exception as error:
            try:
                await self.barrier(name, client_ids=ids)
            except PeerFailedError as failure:
                raise failure from error
            raise
        await self.barrier(name, client_ids=ids)

    async def reached_preemption_point(self, step: int) -> bool:
        """Report a step of this client's program, and return whether all clients are to save at it.

        Call it once for each step, on every client. After a SIGTERM to any client, or its `announce_preemption`, all
        clients agree on one step that none has passed: it is true there on all of them, and nowhere else. A call waits
        for the others only during the agreement. In a program that calls this, the first SIGTERM is such a notice; a
        program that does not call it is ended by SIGTERM as usual.

        Args:
            step: 0 or more, counted up by one.

        Raises:
            ConfigurationError: it is no such number.
            PeerFailedError: another client failed.
        """
        answer = self._reached(step)
        return answer if isinstance(answer, bool) else await asyncio.wrap_future(answer)

    async def wait_failed(self) -> PeerFailedError | None:
        """Wait until the job has ended for this client; return its failure, or `None` after an end in order.

        Cancelling is safe.

        Raises:
            BringupError: this client ended it: its program raised, or was interrupted.
        """
        self._check_process()
        await self._client.ended.wait()
        return self._end_of_job()

    async def shutdown(self, *, raise_on_failure: bool = True) -> None:
        """Leave the job in order: all clients meet first, for up to `shutdown_timeout`, then all go.

        Idempotent; after a failure it returns or raises at once. Nothing of the system is left in any case.

        Args:
            raise_on_failure: whether to raise a failure of the job; else it is logged.

        Raises:
            PeerFailedError: another client has failed, or did not shut down in time. So the exit status of a program
                whose job has failed is not 0 by mistake.
        """
        await awaited(lifecycle.leave(self._client, raise_on_failure=raise_on_failure))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            # Not `shutdown()`: the other clients may wait for this one in a collective, without a time-out.
            return await awaited(lifecycle.abandon(self._client, error))
        try:
            return await self.shutdown()
        except asyncio.CancelledError as cancelled:
            await awaited(lifecycle.abandon(self._client, cancelled))
            raise


async def bring_up(request: Request, parts: Parts = SHIPPED) -> System:
    """Carry out `bringup.initialize()` on the running event loop; see there, and `Client` for `parts`."""
    loop = _running_loop()
    if loop is None:
        raise ConfigurationError(
            "bringup.initialize() is awaited where no asyncio event loop runs, under trio for example: call "
            "bringup.sync.initialize() in a thread instead"
        )
    return System(await awaited(lifecycle.bring_up(request, loop, parts)))


def current() -> System:
    """Return the active system of this process; its methods are awaited. `bringup.sync.current()` has the blocking one.

    Raises:
        NotInitializedError: there is none.
        BringupError: its `initialize()` has failed.
    """
    client = ACTIVE.up()
    if client.is_blocking and _running_loop() is None:
        client.is_blocking = False  # said once
        _log.warning(
            "client %d: bringup.current() returns a system to be awaited, and this program came up with "
            "bringup.sync.initialize(): bringup.sync.current() returns the blocking one",
            client.job.client_id,
        )
    return System(client)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
