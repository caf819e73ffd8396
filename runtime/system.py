"""The system: what `initialize()` returns, and all that a client can do with the job."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from ..errors import BringupError, ConfigurationError, PeerFailedError
from ..transport.messages import Span
from ..transport.service_messages import ListLive
from .arguments import client_set, seconds, step_of
from .client import ACTIVE, Client
from .drivers.peer import CoordinationPeer
from .kv import KeyValueStore
from .machines.events import Up
from .machines.ids import format_ids
from .records import Device, Member, devices_of
from .services import barrier_request, clients_of, name_of_set

if TYPE_CHECKING:
    from .topology.topology import Topology

__all__ = ["System", "SystemFacts", "check_out"]

_log = logging.getLogger("bringup")


class SystemFacts:
    """What the asynchronous and the blocking system have in common: the facts of the job, which wait for nothing."""

    def __init__(self, client: Client, up: Up) -> None:
        self._client = client
        self._up = up

    @property
    def device_type(self) -> str:
        """The type of the devices: `CPU`, `GPU`, `TPU`, `SIM`, ..."""
        return self._client.device_type

    @property
    def client_id(self) -> int:
        """This client."""
        return self._client.job.client_id

    @property
    def num_clients(self) -> int:
        """How many clients the job has."""
        return self._client.job.num_clients

    @property
    def job_name(self) -> str:
        """What the clients call the job."""
        return self._client.job.job_name

    @property
    def job_id(self) -> str:
        """128 random bits in hexadecimal, drawn each time the job forms."""
        return self._up.job_id

    @property
    def jobs(self) -> tuple[str, ...]:
        """The `host:port` of every client, in client order; empty in local mode."""
        return tuple(member.address for member in self._up.members if member.address)

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        """All devices of the job, in client order, then local order."""
        return devices_of(self._up.table, self._up.kinds, self.device_type, self.job_name)

    @cached_property
    def local_devices(self) -> tuple[Device, ...]:
        """The devices of this client."""
        return tuple(device for device in self.devices if device.client_id == self.client_id)

    @property
    def core_ids(self) -> npt.NDArray[np.int32]:
        """The core ids of all devices: read-only int32 `[num_devices]`, by client, then by local device."""
        return self._up.table.core_ids

    @cached_property
    def topology(self) -> Topology | None:
        """Where all devices sit, or `None` where they have no location."""
        from .topology.topology import Topology  # when it is asked for: not every job pays for loading it

        table = self._up.table
        return None if table.locations is None else Topology.of_locations(table.counts, table.locations)

    @property
    def members(self) -> tuple[Member, ...]:
        """All clients of the job, as this client knows them now."""
        machine = self._peer.machine
        now = self._peer.clock()
        members: list[Member] = []
        for info in self._up.members:
            update = machine.update_of(info.client_id)
            step, step_age = machine.step_of(info.client_id, now) or (None, None)
            members.append(
                Member(
                    client_id=info.client_id,
                    address=info.address,
                    hostname=info.hostname,
                    pid=info.pid,
                    incarnation=info.incarnation,
                    phase="ready" if update is None else str(update.phase),
                    health="healthy" if update is None or update.healthy else update.health,
                    last_heartbeat_age=machine.age_of(info.client_id, now),
                    step=step,
                    step_age=step_age,
                    reconnects=0 if update is None else update.reconnects,
                )
            )
        return tuple(members)

    def report_progress(self, step: int) -> None:
        """Say that this client's program has got to a step: `members` and errors then tell who is behind, by how much.

        Cheap, waits for nothing, and may be called from any thread. With `options.stall_timeout` on client 0, a client
        that stays at one step for so long, without waiting for others in a collective or barrier, has failed.

        Args:
            step: 0 or more; a step that is reported again is no progress.

        Raises:
            ConfigurationError: it is no such number.
            PeerFailedError: the job has failed.
        """
        self._peer.report_progress(step)

    def announce_preemption(self, deadline: float = 0.0, reason: str = "announce_preemption()") -> None:
        """Say that this client is to be taken: see `reached_preemption_point`. Waits for nothing; from any thread.

        Args:
            deadline: seconds until then; all save 15 minutes before, or as soon as they can.
            reason: for the logs of all.

        Raises:
            ConfigurationError: `deadline` is no number.
        """
        self._check_services("announce_preemption()")
        deadline_in = seconds(deadline)
        if deadline_in is None:
            raise ConfigurationError(f"announce_preemption(deadline={deadline!r}): give a number of seconds")
        self._peer.preemption.announce(deadline_in, str(reason))

    def _reached(self, step: int) -> concurrent.futures.Future[bool] | bool:
        self._check_services("reached_preemption_point()")
        return self._peer.preemption.reached(step_of("reached_preemption_point", step))

    @property
    def failure(self) -> PeerFailedError | None:
        """What ended the job, or `None`."""
        error = self._client.failed.value
        return error if isinstance(error, PeerFailedError) else None

    @property
    def timeline(self) -> tuple[Span, ...]:
        """The phases of this client's bring-up, then, of each phase, the slowest client's where that is another's.

        Starts and durations are in seconds since that client called `initialize()`.
        """
        slowest = (span for span in self._up.slowest if span.client_id != self.client_id)
        return self._peer.machine.timeline.spans() + tuple(slowest)

    @property
    def _peer(self) -> CoordinationPeer:
        assert self._client.peer is not None
        return self._client.peer

    def _check_services(self, what: str) -> None:
        who = None if self._up.has_services else "client 0"
        if not self._client.plan.enable_coordination_service:
            who = "this client"
        if who is not None:
            raise ConfigurationError(
                f"{what} needs the coordination services, which {who} switched off "
                "(enable_coordination_service=False): initialize with them on"
            )

    def _warn_of_missing(self, missing: tuple[int, ...]) -> None:
        if missing:
            _log.warning(
                "client %d shut down without clients %s, which did not join within shutdown_timeout=%g s",
                self.client_id,
                format_ids(missing),
                self._client.plan.options.shutdown_timeout,
            )

    def __repr__(self) -> str:
        state = f"failed: {self._client.failed.value}" if self._client.failed.is_set else self._client.phase
        return (
            f"<{type(self).__name__} client {self.client_id} of {self.num_clients}, "
            f"{len(self._up.table.core_ids)} {self.device_type} devices, {state}>"
        )


class System(SystemFacts):
    """A job that is up, seen from one client. Its methods may be awaited on any event loop.

    As an asynchronous context manager it shuts down at the end.
    """

    async def all_reduce(
        self,
        array: npt.ArrayLike,
        op: str = "sum",
        *,
        out: npt.NDArray[Any] | None = None,
        timeout: float | None = None,
    ) -> npt.NDArray[Any]:
        """Reduce an array over all clients. All clients call collectives in the same order.

        Cancelling, or a time-out, while the others are in it leaves the ring in the middle of a message: the job fails.

        Args:
            array: any shape, any numeric dtype; shape and dtype must be the same on every client.
            op: `sum`, `prod`, `min` or `max`.
            out: where to put the result, of the input's shape and dtype; returned then.
            timeout: seconds, or `None` to wait for as long as the job lives.

        Returns:
            The result, of the input's shape and dtype, with the same bits on every client.

        Raises:
            CollectiveMismatchError: another client called something else.
            ConfigurationError: the array is not numeric, or there is no such operation.
            PeerFailedError: another client failed.
            TimeoutError: not all clients came in time.
        """
        given = np.asarray(array)
        check_out(given, out)
        async with asyncio.timeout(timeout):
            result = await self._client.call(lambda peer: peer.all_reduce(given, op))
        if out is None:
            return result
        out[...] = result
        return out

    @cached_property
    def kv(self) -> KeyValueStore:
        """The key-value store that all clients of the job share."""
        self._check_services("kv")
        return KeyValueStore(self._client.services, self._peer.waiting)

    async def barrier(
        self, name: str, *, client_ids: Iterable[int] | None = None, timeout: float | None = None
    ) -> None:
        """Wait until all clients have come to barrier `name`. Names can be used again.

        Cancelling is safe: this client has not come then, and comes to the same round with its next call.

        Args:
            name: of the barrier, at most 1 KiB.
            client_ids: who takes part, this client among them; `None` for all. All must say the same.
            timeout: seconds, or `None`; the first to come sets the deadline of all.

        Raises:
            BarrierTimeoutError: says who did not come, and where they are.
            CollectiveMismatchError: another client names other participants, or this one does without itself.
            ConfigurationError: an argument is wrong, or another call of this client waits there already.
            PeerFailedError: another client failed.
        """
        self._check_services("barrier()")
        request = barrier_request(name, client_ids, timeout)
        with self._peer.waiting():
            await self._client.services.call(request)

    async def live_clients(self) -> tuple[int, ...]:
        """Return the clients that the coordinator holds alive now.

        Raises:
            PeerFailedError: one has failed, and with it the job.
        """
        self._check_services("live_clients()")
        return clients_of(await self._client.services.call(ListLive))

    @contextlib.asynccontextmanager
    async def live(self, client_ids: Iterable[int] | None = None) -> AsyncIterator[tuple[int, ...]]:
        """Do something that all of some clients do, or none; yields who they are. They meet before and after.

        Either all of them live until the end, or it raises `PeerFailedError` on all that are left, also where the block
        itself has raised something as a consequence. What the block raises else, it raises once the others have come to
        its end; a block that is cancelled does not wait for them. As jax's `live_devices` does it.

        Args:
            client_ids: who takes part, this client among them; `None` for all.
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
        """Say that this client's program has got to a step, and return whether it is the one at which all are to save.

        Call it once for each step, on every client. A SIGTERM to any client, or its `announce_preemption`, lets all
        agree on one step that none has passed: there it is true on all of them, and nowhere else. Only while they agree
        does a call wait for the others. While a program calls this, SIGTERM is such a notice, the first time; a program
        that does not call it is ended by SIGTERM as ever.

        Args:
            step: 0 or more, counted up by one.

        Raises:
            ConfigurationError: it is no such number.
            PeerFailedError: another client failed.
        """
        answer = self._reached(step)
        return answer if isinstance(answer, bool) else await asyncio.wrap_future(answer)

    async def wait_failed(self) -> PeerFailedError:
        """Wait until the job fails, and return why; cancelling is safe.

        Raises:
            NotInitializedError: the system was shut down instead.
        """
        failed = asyncio.ensure_future(self._client.failed.wait())
        finished = asyncio.ensure_future(self._client.wait_over())
        try:
            await asyncio.wait((failed, finished), return_when=asyncio.FIRST_COMPLETED)
        finally:
            failed.cancel()
            finished.cancel()
        error = self._client.failed.value
        if isinstance(error, PeerFailedError):
            return error
        raise self._client.end()

    async def shutdown(self) -> None:
        """Leave the job in order: all clients meet first, for up to `shutdown_timeout`, then all go.

        Clients that do not come are named in the log. Idempotent, and safe after a failure, when it returns at once.
        """
        if not self._client.is_over:
            try:
                self._warn_of_missing(await self._client.call(lambda peer: peer.leave()))
            except BringupError:
                pass  # it ended at the same moment
            await self._client.finish()
        ACTIVE.release(self._client)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            await self.shutdown()
        else:
            # The others may be waiting for this client in a collective: they must not wait for it to shut down.
            self._client.abort(error)
            await self._client.finish()
            ACTIVE.release(self._client)


def check_out(array: npt.NDArray[Any], out: npt.NDArray[Any] | None) -> None:
    """Raise `ConfigurationError` where a result for `array` does not fit into `out`."""
    if out is not None and (out.shape, out.dtype) != (array.shape, array.dtype):
        raise ConfigurationError(
            f"out is {out.dtype}{list(out.shape)}, the array is {array.dtype}{list(array.shape)}: they must be alike"
        )
