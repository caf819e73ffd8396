"""One client of a job: its states, its peer on an event loop of its own, and the calls of other threads into it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import enum
import os
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from ...errors import BringupError, NotInitializedError, PeerFailedError
from ..configuration.plan import Plan
from ..drivers.crash import crash_error
from ..drivers.latch import Latch, Steps, first_set
from ..drivers.peer import CoordinationPeer
from ..machines.failure_errors import end_error, forked_from, own_failure
from ..machines.peer.events import Up
from .caller_imports import CallerImports
from .compose import SHIPPED, Parts, make_peer
from .job_failure import FailureNotice
from .loop_thread import Runner, RuntimeThread
from .progress import show_progress
from .service_client import ServiceClient

T = TypeVar("T")


class State(enum.Enum):
    """The states of a client, in their order; it may skip some, and never goes back."""

    NEW = "new"
    """Not started."""
    STARTING = "starting"
    """Its thread runs, and the job is not up."""
    UP = "up"
    """The job is up."""
    ENDED = "ended"
    """The job has ended for this client: it has failed, or this client has left. All calls raise `end_error()`."""
    OVER = "over"
    """Its thread has ended, and nothing of it is left."""
    FORKED = "forked"
    """This process is a forked child of the client's, and has no part in the job."""


class Client:
    """One client, from `start` until `over`; it ends by itself where its job ends.

    Args:
        plan: its job, options and devices.
        is_blocking: whether `bringup.sync` asked for it.
        parts: what it is composed of, where that is not as shipped.

    Attributes:
        plan: see above.
        job: the clients of the job.
        is_blocking: whether `bringup.sync` asked for it, and its user has not been told of `bringup.sync.current` yet.
        up: set to what came up, or to `None` where the client ended before.
        failed: set to the exception that ended the job, unless the job ended in order.
        ended: set once the job has ended for this client.
        over: set once its thread has ended.
        imports: the backend's imports in the caller's thread.
        peer: its part in coordination, once it is made.
        services: its calls to the coordination services.
        failure_notice: tells its user that the job has failed.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        is_blocking: bool = False,
        parts: Parts = SHIPPED,
    ) -> None:
        self.plan = plan
        self.job = plan.job
        self.is_blocking = is_blocking
        self.up: Latch[Up | None] = Latch()
        self.failed: Latch[BaseException] = Latch()
        self.ended: Latch[None] = Latch()
        self.over: Latch[None] = Latch()
        self.imports = CallerImports()
        self.up.on_set(lambda _: self.imports.close())
        self.peer: CoordinationPeer | None = None
        self.services = ServiceClient(lambda deliver: self._up_peer.service_route(deliver), self._address_of)
        self.failure_notice = FailureNotice(self.job.client_id, self.failed)
        self._parts = parts
        self._abort_error: BaseException | None = None
        self._runner: Runner | None = None
        self._pid = os.getpid()

    # Its states.

    @property
    def state(self) -> State:
        """The present state. It follows from the latches, so that waiters and callers agree."""
        if os.getpid() != self._pid:
            return State.FORKED
        if self.over.is_set:
            return State.OVER
        if self.ended.is_set or self.failed.is_set:
            return State.ENDED
        if self.up.value is not None:
            return State.UP
        return State.NEW if self._runner is None else State.STARTING

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left in this process."""
        return self.state in (State.OVER, State.FORKED)

    @property
    def is_forked(self) -> bool:
        """Whether this process was forked from that of the client."""
        return self.state is State.FORKED

    @property
    def phase(self) -> str:
        """The phase of its bring-up or of its job."""
        return "starting" if self.peer is None else self.peer.machine.phase

    def describe(self) -> str:
        """Return which client of which job it is, and its phase."""
        return f"client {self.job.client_id} of job {self.job.job_name!r} (phase {self.phase})"

    def end_error(self) -> BaseException:
        """Return a new exception that says why calls end: the one that every call into an ended client raises."""
        if self.is_forked:
            return NotInitializedError(forked_from(self._pid))
        return end_error(self.failed.value)

    @property
    def failure(self) -> PeerFailedError | None:
        """The failure of a job that was up, with a client's name; `None` also where this client's program ended it."""
        error, up = self.failed.value, self.up.value
        if up is None or not isinstance(error, BringupError) or isinstance(error, NotInitializedError):
            return None
        own = up.members[self.job.client_id]
        return own_failure(error, own.client_id, own.address, own.hostname, self.phase)

    # Calls from any thread.

    def start(self) -> None:
        """Start its thread.

        Raises:
            BringupError: there can be no more threads.
        """
        # In this order: an `abort` from another thread may come at any moment, and `_main` looks for an early one.
        self._runner = self._make_runner()
        self._runner.start()

    def _make_runner(self) -> Runner:
        name = f"bringup-client-{self.job.client_id}"
        return RuntimeThread(self._main, name=name, on_end=self._on_end, finished=self.over)

    def abort(self, error: BaseException) -> None:
        """End it, in whatever state it is; the other clients are told of `error`."""
        if self.is_forked:
            return
        self._abort_error = error
        self.imports.close()
        if self._runner is not None:
            self._runner.call_soon(self._abort)

    def forked(self) -> None:
        """Called in a forked child of this process."""

    def leave(self) -> None:
        """Begin to leave a job that is up, with the other clients; `ended` is set once that is done."""
        if self._runner is not None and self.peer is not None and not self.is_forked:
            self._runner.call_soon(self.peer.begin_to_leave)

    def finish(self) -> Steps[None]:
        """Wait until nothing of it is left; a cancellation is raised only then."""
        if self.is_forked:
            return
        cancelled: asyncio.CancelledError | None = None
        while not self.over.is_set:
            try:
                yield self.over
            except asyncio.CancelledError as error:
                cancelled = error
        if self._runner is not None:
            self._runner.join()
        if cancelled is not None:
            raise cancelled

    def submit(self, make: Callable[[], Awaitable[T]]) -> concurrent.futures.Future[T]:
        """Await on the client's event loop what `make` returns; the end of the loop cancels it.

        Raises:
            BringupError: the client has ended; see `end_error`.
        """
        assert self._runner is not None
        if self.is_forked:
            raise self.end_error()
        try:
            return self._runner.call(_run(make))
        except RuntimeError:
            raise self.end_error() from None

    @property
    def _up_peer(self) -> CoordinationPeer:
        assert self.peer is not None
        return self.peer

    def _address_of(self, client_id: int) -> str:
        up = self.up.value
        return "" if up is None else up.members[client_id].address

    # On its event loop.

    async def _main(self) -> None:
        tasks: list[asyncio.Task[None]] = []
        try:
            network = self._parts.make_network(self.plan)
            import_module, make_machine = self.imports.import_module, self._parts.make_machine
            peer = make_peer(self.plan, network, import_module, make_machine, up=self.up, failed=self.failed)
            self.peer = peer
            self._abort()
            beside = self._watch_end(peer), self.services.watch_loops(), show_progress(peer, self.up)
            tasks += [asyncio.create_task(self._go_on_without(each)) for each in beside]
            await peer.run()
        except BringupError as error:
            self.failed.set(error)
        finally:
            for task in tasks:
                task.cancel()

    def _abort(self) -> None:
        if self._abort_error is not None and self.peer is not None:
            self.peer.abort(self._abort_error)

    async def _go_on_without(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what the job can live without: an exception is logged once, and ends nothing else."""
        try:
            await work
        except Exception as error:  # noqa: BLE001 - whatever it is
            crash_error(self.job.client_id, error)

    async def _watch_end(self, peer: CoordinationPeer) -> None:
        await first_set(peer.left, self.failed)
        try:
            self.services.end(self.end_error)
        finally:
            self.ended.set(None)
            self._on_failure()

    def _on_failure(self) -> None:
        """Called on its thread once the job has ended for it, and again at the end of the thread."""

    def _on_end(self, failure: BaseException | None) -> None:
        """Called on its thread once its event loop has ended."""
        if failure is not None:
            self.failed.set(crash_error(self.job.client_id, failure))
        self.services.end(self.end_error)
        self._on_failure()
        self._on_thread_end()
        self.up.set(None)
        self.ended.set(None)

    def _on_thread_end(self) -> None:
        """Called on its thread after that."""


async def _run(make: Callable[[], Awaitable[T]]) -> T:
    return await make()
