"""Runs one client's peer: brings the effects of its machine about, and its results back."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

import numpy.typing as npt

from ...devices.thread import BackendThread
from ...errors import (
    BringupError,
    CollectiveMismatchError,
    ConfigurationError,
    DeviceInitializationError,
    NotInitializedError,
    RendezvousTimeoutError,
)
from ...transport.addresses import Address
from ...transport.local import local_sessions
from ...transport.messages import CoordinatorMessage
from ...transport.ports import ChannelClosedError, Link, LinkIdentity, LinkListener, Network, Server, Session
from ...transport.ring import Ring, RingBrokenError
from ..latch import Latch
from ..machines import events as ev
from ..machines.peer import PeerMachine
from ..merge import merge_devices
from .coordinator import CoordinatorDriver
from .drive import INBOX_MAX, Outbox, drive

__all__ = ["CoordinationPeer"]

FLUSH_TIMEOUT = 1.0
"""Seconds that the last words of a peer may take."""

_BARRIER_NAME_BYTES_MAX = 1024
_SOON = 1e-9
_REDIAL_DELAY = 0.05

BACKEND_STOP_TIMEOUT = 2.0
"""Seconds that a backend may take to release its devices; then its thread is left behind."""


class CoordinationPeer:
    """The object in each client that takes part in coordination. Lives on one event loop; latches reach beyond it.

    Args:
        machine: decides.
        up: set when the job is up.
        failed: set to what ended the job, unless it ended in order.
        backend: the devices.
        network: how to reach the others; `None` for a job of one client.
        coordinator: on client 0, the coordinator to host.
        advertise_host: where others reach this peer; `None` for where the coordinator sees it.
        device_timeout: seconds that a call of the backend may take.
        health_interval: seconds between two health checks.
        clock: the time, monotonic, in seconds.
    """

    def __init__(
        self,
        machine: PeerMachine,
        *,
        up: Latch[ev.Up | None],
        failed: Latch[BaseException],
        backend: BackendThread,
        network: Network | None,
        coordinator: CoordinatorDriver | None,
        advertise_host: str | None,
        device_timeout: float,
        health_interval: float,
        clock: Callable[[], float],
    ) -> None:
        self.machine = machine
        self.clock = clock
        self.up = up
        self.failed = failed
        self.left: Latch[ev.Left] = Latch()
        self._backend = backend
        self._network = network
        self._coordinator = coordinator
        self._advertise_host = advertise_host
        self._device_timeout = device_timeout
        self._health_interval = health_interval
        self._inbox: asyncio.Queue[ev.PeerEvent | None] = asyncio.Queue(INBOX_MAX)
        self._is_aborted = False
        self._tickets = itertools.count(1)
        self._barriers: dict[int, asyncio.Future[None]] = {}
        self._group: asyncio.TaskGroup
        self._tasks: set[asyncio.Task[Any]] = set()
        self._server: Server | None = None
        self._listener: LinkListener | None = None
        self._session: Session | None = None
        self._outbox: Outbox | None = None
        self._pump: asyncio.Task[None] | None = None
        self._outgoing: Link | None = None
        self._ring: Ring | None = None

    # The life of the peer.

    async def run(self) -> None:
        """Live until the job has ended for this client, and leave nothing behind.

        Ask it to end with `abort` rather than by cancelling: the others then hear why.
        """
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                try:
                    await self._live()
                finally:
                    await self._tear_down()
        except* BringupError as errors:
            self._fail(errors.exceptions[0])

    async def _live(self) -> None:
        if self._network is not None:
            self._listener = await self._network.serve_links(self.machine.config.incarnation)
        if self._coordinator is not None:
            if self._network is not None:
                address = Address.parse(self.machine.config.coordinator_address)
                self._server = await self._network.serve_coordinator(address, self._coordinator.serve)
            self._spawn(self._coordinator.run())
        await self._inbox.put(ev.Begin())
        await drive(self.machine, self._inbox, self._perform, self.clock, self._is_over)

    async def _tear_down(self) -> None:
        """Last words first, so that the others hear the cause before they see links break."""
        was_heard = await self._say_last_words()
        if self._coordinator is not None:
            # The user is not kept waiting who gave up, or for those who were waited for long enough.
            is_urgent = self._is_aborted or isinstance(self.failed.value, RendezvousTimeoutError)
            await self._coordinator.close(wait_for_latecomers=was_heard and not is_urgent)
        if self._server is not None:
            await self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._outgoing is not None:
            self._outgoing.close()
        if self._listener is not None:
            await self._listener.close()
        await self._backend.close(BACKEND_STOP_TIMEOUT)
        self._settle_barriers(self.failed.value)
        # Closed connections are let go of in the loop's next turn, which may be its last.
        await asyncio.sleep(0)

    async def _say_last_words(self) -> bool:
        """Send what is left to say and end the session; returns whether there was one."""
        if self._outbox is None or self._pump is None or self._session is None:
            return False
        self._outbox.finish()
        await asyncio.wait([self._pump], timeout=FLUSH_TIMEOUT)
        await self._session.close()
        # gRPC's threads live as long as anybody holds a channel; a system that was shut down may be held for long.
        self._outbox = self._pump = self._session = None
        return True

    def abort(self, error: BaseException) -> None:
        """End this client's part: the others are told of `error`. Call it on the peer's loop."""
        self._is_aborted = True
        self._inbox.put_nowait(ev.Abort(error))

    # What the user wants of it.

    async def barrier(self, name: str, timeout: float | None) -> None:
        """Wait until all clients have come to `name`; see `System.barrier`."""
        self._check_alive()
        _check_barrier(name, timeout)
        ticket = next(self._tickets)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._barriers[ticket] = done
        try:
            # On the wire, 0 is for no time-out.
            await self._inbox.put(ev.WishBarrier(ticket, name, timeout if timeout is None else max(timeout, _SOON)))
            await done
        finally:
            self._barriers.pop(ticket, None)

    async def all_reduce(self, array: npt.NDArray[Any], op: str) -> npt.NDArray[Any]:
        """Reduce over the ring; see `System.all_reduce`."""
        self._check_alive()
        assert self._ring is not None
        try:
            return await self._ring.all_reduce(array, op)
        except RingBrokenError as broken:
            await self._inbox.put(ev.LinkBroken(broken.client_id, broken.cause))
            raise await self.failed.wait() from None
        except BaseException as error:
            if self._ring.is_broken:
                self.abort(BringupError(f"all_reduce() ended half-way: {type(error).__name__}: {error}"))
            raise

    async def leave(self) -> tuple[int, ...]:
        """Shut down with the others; returns the clients that did not join in time."""
        await self._inbox.put(ev.WishLeave())
        left = asyncio.ensure_future(self.left.wait())
        failed = asyncio.ensure_future(self.failed.wait())
        try:
            await asyncio.wait((left, failed), return_when=asyncio.FIRST_COMPLETED)
            return left.result().missing if left.done() else ()
        finally:
            left.cancel()
            failed.cancel()

    # The effects of the machine.

    def _perform(self, effect: ev.PeerEffect) -> None:
        match effect:
            case ev.Send(message):
                if self._outbox is not None:
                    self._outbox.put(message)
            case ev.Connect(tag):
                self._spawn(self._connect(tag))
            case ev.StartBackend(tag):
                self._spawn(self._start_backend(tag))
            case ev.ConnectRing():
                self._spawn(self._connect_ring(effect))
            case ev.Merge():
                self._spawn(self._merge(effect))
            case ev.BarrierDone(ticket, error):
                self._settle_barrier(ticket, error)
            case ev.Up():
                self.up.set(effect)
                self._spawn(self._watch_health())
            case ev.Failed(error):
                self._fail(error)
            case ev.Left():
                self.left.set(effect)

    async def _connect(self, tag: ev.Tag) -> None:
        config = self.machine.config
        if self._coordinator is not None:
            session, far_end = local_sessions()
            self._spawn(self._coordinator.serve(far_end))
            seen_from = Address.parse(config.coordinator_address).host if self._network is not None else ""
        else:
            assert self._network is not None
            if self._outbox is not None:
                # Whoever answered before was not our coordinator: an old one that is ending, or a stranger.
                self._outbox.finish()
                await asyncio.sleep(_REDIAL_DELAY)
            address = Address.parse(config.coordinator_address)
            session, seen_from = await self._network.connect_coordinator(address, self._on_dial_report)
        self._session, self._outbox = session, Outbox(session)
        self._pump = self._spawn(self._outbox.pump())
        link_address = ""
        if self._listener is not None:
            link_address = str(Address(self._advertise_host or seen_from, self._listener.port))
        await self._inbox.put(ev.Connected(tag, link_address))
        await self._read(session)

    async def _read(self, session: Session) -> None:
        try:
            while isinstance(message := await session.receive(), CoordinatorMessage):
                await self._inbox.put(ev.Received(message))
            reason = f"it sent a {type(message).__name__}, which is not for coordinators to send"
        except ChannelClosedError as error:
            reason = str(error)
        await session.close()
        await self._inbox.put(ev.SessionLost(reason))

    def _on_dial_report(self, reason: str) -> None:
        self._inbox.put_nowait(ev.DialFailed(reason))

    async def _start_backend(self, tag: ev.Tag) -> None:
        try:
            devices = await self._backend.start(self._device_timeout)
            health = await self._backend.check_health(self._device_timeout)
            if not health.ok:
                client_id = self.machine.config.client_id
                raise DeviceInitializationError(
                    f"the devices of client {client_id} came up, but are not healthy: {health.detail}",
                    client_id=client_id,
                    cause=health.detail,
                )
        except BringupError as error:
            await self._inbox.put(ev.BackendFailed(tag, error))
        else:
            await self._inbox.put(ev.BackendStarted(tag, devices))

    async def _connect_ring(self, effect: ev.ConnectRing) -> None:
        config = self.machine.config
        if self._network is None or self._listener is None:
            self._ring = Ring(0, 1, None, None)
            return await self._inbox.put(ev.RingConnected(effect.tag))

        def identity(client_id: int, incarnation: int) -> LinkIdentity:
            return LinkIdentity(effect.job_id, effect.epoch, client_id, incarnation)

        own = identity(config.client_id, config.incarnation)
        left, right = (identity(m.client_id, m.incarnation) for m in (effect.left, effect.right))
        accepting = self._group.create_task(self._listener.accept(own, left))
        self._tasks.add(accepting)
        try:
            outgoing = await self._network.connect_link(Address.parse(effect.right.link_address), own, right)
        except ChannelClosedError as error:
            return await self._inbox.put(ev.LinkBroken(right.client_id, str(error)))
        self._outgoing = outgoing
        incoming = await accepting
        self._ring = Ring(config.client_id, config.num_clients, incoming, outgoing)
        for neighbour, link in ((left, incoming), (right, outgoing)):
            self._spawn(self._watch_link(neighbour.client_id, link))
        return await self._inbox.put(ev.RingConnected(effect.tag))

    async def _watch_link(self, client_id: int, link: Link) -> None:
        await self._inbox.put(ev.LinkBroken(client_id, await link.wait_closed()))

    async def _merge(self, effect: ev.Merge) -> None:
        config = self.machine.config
        assert self._ring is not None
        try:
            table = await merge_devices(self._ring, config.client_id, config.num_clients, effect.devices)
            await self._inbox.put(ev.Merged(effect.tag, table))
        except RingBrokenError as broken:
            await self._inbox.put(ev.LinkBroken(broken.client_id, broken.cause))
        except (BringupError, CollectiveMismatchError) as error:
            await self._inbox.put(ev.MergeFailed(effect.tag, error))

    async def _watch_health(self) -> None:
        """Check the devices as long as the job runs; the machine hears of every change."""
        last = (True, "")
        while True:
            await asyncio.sleep(self._health_interval)
            try:
                health = await self._backend.check_health(self._device_timeout)
                now = (health.ok, health.detail)
            except BringupError as error:
                now = (False, str(error))
            if now != last:
                last = now
                await self._inbox.put(ev.HealthChanged(*now))
            if self._backend.abandoned:
                return

    # Helpers.

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._group.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _is_over(self) -> bool:
        return self.failed.is_set or self.left.is_set

    def _fail(self, error: BaseException) -> None:
        # A SystemExit or a cancellation of one call must not be raised from another.
        ended = f"this client has ended: {type(error).__name__}: {error}"
        shown = error if isinstance(error, BringupError) else NotInitializedError(ended)
        self.failed.set(shown)
        self._settle_barriers(shown)

    def _settle_barrier(self, ticket: int, error: BaseException | None) -> None:
        done = self._barriers.pop(ticket, None)
        if done is None or done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def _settle_barriers(self, error: BaseException | None) -> None:
        for ticket in list(self._barriers):
            self._settle_barrier(ticket, error or NotInitializedError("the system was shut down meanwhile"))

    def _check_alive(self) -> None:
        if self.failed.value is not None:
            raise self.failed.value
        if self._is_over():
            raise NotInitializedError("the system was shut down")


def _check_barrier(name: object, timeout: float | None) -> None:
    if not isinstance(name, str) or len(name.encode(errors="replace")) > _BARRIER_NAME_BYTES_MAX:
        raise ConfigurationError(
            f"barrier name {str(name)[:64]!r} is not a text of at most {_BARRIER_NAME_BYTES_MAX} bytes"
        )
    if timeout is not None and not timeout >= 0:
        raise ConfigurationError(f"timeout={timeout!r} of barrier {name!r} is not a number of seconds, 0 or more")
