"""The system: what `initialize()` returns, and all that a client can do with the job."""

from __future__ import annotations

import asyncio
import logging
from functools import cached_property
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ..errors import BringupError, ConfigurationError, PeerFailedError
from ..transport.messages import Span
from .client import ACTIVE, Client
from .drivers.peer import CoordinationPeer
from .machines.events import Up
from .machines.ids import format_ids
from .machines.topology import Topology
from .records import Device, Member, devices_of

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
                )
            )
        return tuple(members)

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
        if not self._client.plan.enable_coordination_service:
            raise ConfigurationError(
                f"{what} needs the coordination service, which this client switched off "
                "(enable_coordination_service=False): initialize with it on"
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

    async def barrier(self, name: str, *, timeout: float | None = None) -> None:
        """Wait until all clients have come to barrier `name`. Names can be used again.

        A call that is cancelled counts as having come: the others are released, and this client cannot come to the same
        name again until they are.

        Args:
            name: of the barrier.
            timeout: seconds, or `None`; the first to come sets the deadline of all.

        Raises:
            BarrierTimeoutError: says who did not come.
            PeerFailedError: another client failed.
        """
        self._check_services("barrier()")
        await self._client.call(lambda peer: peer.barrier(name, timeout))

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
