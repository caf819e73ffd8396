"""The driver of one client's peer: it carries out the effects of the machine, and feeds it their results."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from ...errors import BringupError, NotInitializedError
from ...transport.addresses import Address
from ...transport.collectives.ring import Ring
from ...transport.ports import LinkIdentity, LinkListener, Network, Server
from ...transport.wire.messages import PreemptionNotice, StepReply
from ...transport.wire.services import ServiceReply
from ..configuration.validation import step_of
from ..machines.failure_errors import end_error, services_lost
from ..machines.id_ranges import COORDINATOR
from ..machines.peer import events as ev
from ..machines.peer.machine import PeerMachine
from ..machines.session.limits import ending_of
from .coordinator import CoordinatorDriver
from .coordinator_link import CoordinatorLink
from .crash import crash_error, own_verdict
from .health import DeviceWatch
from .latch import Latch, first_set
from .loop import INBOX_MAX, drive
from .preemption import Preemption
from .progress import ProgressReports
from .ring import RingDriver
from .service_server import ServiceServer
from .service_transport import LocalRoute, RemoteRoute, Route
from .watch import WatchDriver

T = TypeVar("T")


class CoordinationPeer:
    """The peer of one client. It lives on one event loop; its latches can be awaited anywhere.

    Args:
        machine: its decisions.
        up: set when the job is up.
        failed: set to what ended the job, unless it ended in order.
        devices: the devices of this client.
        network: how to reach the others; `None` for a job of one client.
        coordinator: on client 0, the coordinator to host.
        advertise_host: where others reach this peer; `None` for where the coordinator sees it.
        clock: the time, monotonic, in seconds.
        services: on client 0, the coordination services to serve.
    """

    def __init__(
        self,
        machine: PeerMachine,
        *,
        up: Latch[ev.Up | None],
        failed: Latch[BaseException],
        devices: DeviceWatch,
        network: Network | None,
        coordinator: CoordinatorDriver | None,
        advertise_host: str | None,
        clock: Callable[[], float],
        services: ServiceServer | None = None,
    ) -> None:
        self.machine = machine
        self.clock = clock
        self.up = up
        self.failed = failed
        self.parted: Latch[None] = Latch()  # set once the others have been told, or have had their time
        self.left: Latch[ev.Left] = Latch()
        self.leaving: Latch[None] = Latch()
        self.progress = ProgressReports(clock, self._call_soon)
        self.waiting = self.progress.waiting
        self.preemption = Preemption(machine.config.client_id, self._wish, self.waiting)
        self._devices = devices
        self._network = network
        self._coordinator = coordinator
        self._advertise_host = advertise_host
        self._inbox: asyncio.Queue[ev.PeerEvent | None] = asyncio.Queue(INBOX_MAX)
        self.services = services
        self._loop: asyncio.AbstractEventLoop
        self._is_aborted = False
        self._group: asyncio.TaskGroup
        self._tasks: set[asyncio.Task[Any]] = set()
        self._server: Server | None = None
        self._listener: LinkListener | None = None
        serve_locally = coordinator.serve if coordinator is not None else None
        self._link = CoordinatorLink(
            machine.config,
            network,
            serve_locally=serve_locally,
            spawn=self._spawn,
            inbox=self._inbox,
            on_dial_report=self._on_dial_report,
            clock=clock,
            on_crash=self._crash,
        )
        for served in (coordinator, services):
            if served is not None:
                served.on_crash = self._crash
        self._watch = WatchDriver(self._inbox, self._spawn)
        self._ring = RingDriver(machine.config, network, self._inbox, self._spawn, self.abort, self._watch.begin)

    # The life of the peer.

    async def run(self) -> None:
        """Live until the job has ended for this client, and leave nothing behind.

        Ask it to end with `abort` rather than by cancelling: the others then hear why.
        """
        self._loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await self._live()
            except Exception as error:  # noqa: BLE001 - whatever it is, it ends this client, and the others are told
                self._crash(error)
            finally:
                try:
                    await self._tear_down()
                except Exception as error:  # noqa: BLE001 - the same
                    self._crash_late(error)
                finally:
                    self._end_calls()

    async def _live(self) -> None:
        if self._network is not None:
            self._listener = await self._network.serve_links(
                self.machine.config.incarnation,
                self.services.welcome if self.services is not None else None,
                is_host=self._coordinator is not None,
            )
        if self._coordinator is not None:
            self._spawn(self._coordinator.run())
            if self._network is not None:
                address = Address.parse(self.machine.config.coordinator_address)
                self._coordinator.introduce(self.machine.config.registration(self._link_address(address.host)))
                self._server = await self._network.serve_coordinator(address, self._coordinator.serve)
        await self._inbox.put(ev.Begin())
        await drive(self.machine, self._inbox, self._perform, self.clock, self._is_over)

    async def _tear_down(self) -> None:
        """Last words first, so that the others hear the cause before they see links break."""
        async with contextlib.AsyncExitStack() as last:  # in the reverse order, and whatever one of them raises
            # Closed connections are let go of in the loop's next turn, which may be its last.
            last.push_async_callback(asyncio.sleep, 0)
            last.push_async_callback(self._devices.close)
            if self._listener is not None:
                last.push_async_callback(self._listener.close)
            if self.services is not None:
                last.callback(self.services.close)
            last.callback(self._ring.close)
            last.push_async_callback(self._end_tasks)
            if self._server is not None:
                last.push_async_callback(self._server.close)
            last.callback(self.parted.set, None)
            was_connected = await self._finish_link()
            if self._coordinator is not None:
                gave_up = self._is_aborted or not was_connected
                own, has_left = self.machine.config.client_id, self.left.is_set
                await self._coordinator.close(ending_of(self.failed.value, own, has_left=has_left, gave_up=gave_up))

    async def _finish_link(self) -> bool:
        try:
            return await self._link.finish()
        except Exception as error:  # noqa: BLE001 - the coordinator that this client hosts has others to tell
            self._crash_late(error)
            self._link.cut()
            return True

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def abort(self, error: BaseException) -> None:
        """End this client's part: the others are told of `error`. Call it on the peer's loop."""
        self._is_aborted = True
        self._inbox.put_nowait(ev.Abort(error))

    def _crash(self, error: Exception) -> None:
        """End this client's part with what a machine, a handler or a task has raised, which the others are told."""
        if self._is_over():
            return
        shown = crash_error(self.machine.config.client_id, error)
        for tell in (self._tell_clients_of, self._tell_coordinator_of):
            with contextlib.suppress(Exception):  # the way there may be what has failed: this client ends all the same
                tell(shown)
        self._fail(shown)
        with contextlib.suppress(asyncio.QueueFull):
            self._inbox.put_nowait(None)

    def _tell_clients_of(self, error: BringupError) -> None:
        if self._coordinator is not None:
            self._coordinator.end(own_verdict(self.machine.config, self.machine.phase, error))

    def _tell_coordinator_of(self, error: BringupError) -> None:
        for effect in self.machine.crash(error):
            self._perform(effect)

    def _crash_late(self, error: Exception) -> None:
        """Log what has been raised as this client ended; its cause, if there is one, stays."""
        self.failed.set(crash_error(self.machine.config.client_id, error))

    def _wish(self, message: PreemptionNotice | StepReply) -> None:
        """Send a message in the name of the program; called on any thread."""
        self._call_soon(self._inbox.put_nowait, ev.AgreementMessage(message))

    def _call_soon(self, function: Callable[..., object], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the runtime has ended; whoever waits is about to be told
            return

    # What the user wants of it.

    @property
    def device_type(self) -> str:
        """The type of the devices; right once the job is up."""
        return self._devices.device_type

    @property
    def simulated(self) -> bool:
        """Whether the devices do not exist; right once the job is up."""
        return self._devices.simulated

    def report_progress(self, step: int) -> None:
        """Note the step that the program is at; see `System.report_progress`. Called on any thread."""
        self._check_alive()
        self.progress.report(step_of("report_progress", step))

    def step_of(self, client_id: int) -> tuple[int, float] | None:
        """Return the step that a client's program is known to be at, and for how many seconds."""
        if client_id != self.machine.config.client_id:
            return self.machine.view.step_of(client_id, self.clock())
        own = self.progress.state
        return None if own is None else (own.step, own.age(self.clock()))

    def service_route(self, deliver: Callable[[ServiceReply], None]) -> Route:
        """Return the route to the coordination services from the running event loop, whichever that is.

        Called once the job is up.
        """
        config, up, network = self.machine.config, self.up.value, self._network
        if self.services is not None:
            return LocalRoute(self.services, self._loop, config.client_id, deliver)
        assert up is not None
        assert network is not None
        server = self.machine.view.host
        assert server is not None
        own = LinkIdentity(up.job_id, up.epoch, config.client_id, config.incarnation)
        host = LinkIdentity(up.job_id, up.epoch, COORDINATOR, server.incarnation)
        address = Address.parse(server.link_address)

        def on_lost(reason: str, kept: int, received: int) -> None:
            member, phase = up.members[config.client_id], self.machine.phase
            error = services_lost(member, server, phase, reason, kept=kept, received=received)
            self._call_soon(self.abort, error)

        return RemoteRoute(
            lambda receiver: network.connect_services(address, own, host, receiver),
            deliver,
            lambda error: self._call_soon(self._crash, error),
            on_lost,
        )

    @property
    def ring(self) -> Ring:
        """The ring; there is one once the job is up."""
        return self._ring.ring

    def begin_to_leave(self) -> None:
        """Shut down with the other clients; `left` is set once that is done. Call it on the peer's loop."""
        if not self._is_over():
            self._spawn(self._inbox.put(ev.LeaveRequested(self.ring.called)))

    async def leave(self) -> tuple[int, ...]:
        """Shut down with the other clients, and return those that did not join in time."""
        self.begin_to_leave()
        await first_set(self.left, self.failed)
        return () if self.left.value is None else self.left.value.missing

    # The effects of the machine.

    def _perform(self, effect: ev.PeerEffect) -> None:
        match effect:
            case ev.Send(message):
                self._link.send(message)
            case ev.SendWatch(message):
                self._watch.send(message)
            case ev.Connect(tag):
                self._link.connect(tag, self._link_address)
            case ev.Redial(patience):
                self._link.redial(patience)
            case ev.Probe():
                self._link.probe(effect)
            case ev.StartBackend(tag):
                self._spawn(self._start_backend(tag))
            case ev.ConnectRing():
                self._spawn(self._ring.connect(effect, self._listener))
            case ev.Merge():
                self._spawn(self._ring.merge(effect, self.device_type))
            case ev.Up():
                self.up.set(effect)
                self._spawn(self._pass_on(self._devices.changes()))
                self._spawn(self._pass_on(self.progress.events()))
            case ev.Failed(error):
                self._fail(error)
            case ev.Preempt(message):
                self.preemption.take(message)
            case ev.OthersLeave(leavers):
                assert self.up.value is not None
                members = self.up.value.members
                for run in leavers:
                    self._ring.stop_after(partial(members.__getitem__, run.first), run.collectives)
                self.leaving.set(None)
            case ev.Left():
                self.leaving.set(None)
                self.left.set(effect)
                if effect.error is not None:
                    self._fail(effect.error)

    def _link_address(self, seen_from: str) -> str:
        return "" if self._listener is None else str(Address(self._advertise_host or seen_from, self._listener.port))

    def _on_dial_report(self, reason: str) -> None:
        self._inbox.put_nowait(ev.DialFailed(reason))

    async def _start_backend(self, tag: ev.Tag) -> None:
        await self._inbox.put(await self._devices.start(tag))

    async def _pass_on(self, events: AsyncIterator[ev.PeerEvent]) -> None:
        async for event in events:
            await self._inbox.put(event)

    # Helpers.

    def _spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = self._group.create_task(self._guard(coroutine))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: coroutine.close())  # it may have been cancelled before it began
        return task

    async def _guard(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            return await coroutine
        except Exception as error:
            self._crash(error)
            # Whoever waits for this task waits for what will not be; all tasks are cancelled soon.
            raise asyncio.CancelledError from error

    def _is_over(self) -> bool:
        return self.failed.is_set or self.left.is_set

    def _fail(self, error: BaseException) -> None:
        # A SystemExit or a cancellation of one call must not be raised from another.
        ended = f"this client has ended: {type(error).__name__}: {error}"
        shown = error if isinstance(error, BringupError) else NotInitializedError(ended)
        self.failed.set(shown)
        self._end_calls()

    def _end_calls(self) -> None:
        """Have all pending and later calls raise `_end_error()`."""
        self._ring.end(self._end_error)
        self.preemption.end(self._end_error)

    def _end_error(self) -> BaseException:
        return end_error(self.failed.value)

    def _check_alive(self) -> None:
        if self._is_over():
            raise self._end_error()
