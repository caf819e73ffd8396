"""One client of a job in this process: its thread, its peer, and the way in for callers on any loop or none."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import logging
import os
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ...errors import BringupError, NotInitializedError, PeerFailedError
from ...transport.forks import SOCKETS
from ...transport.ports import Network
from ..configuration.plan import Plan
from ..drivers.crash import crash_error
from ..drivers.peer import CoordinationPeer
from ..machines import events as ev
from ..machines.failure_errors import own_failure
from .active import Slot, forked_from
from .caller_imports import CallerImports
from .compose import check_open_files, make_network, make_peer
from .failure_notice import FailureNotice
from .fresh import fresh
from .latch import Latch
from .launcher_report import Reporter
from .loop_thread import Runner, RuntimeThread
from .on_failure import FailureAction
from .progress import show_progress
from .service_client import ServiceClient
from .signals import TerminationNotice

_log = logging.getLogger("bringup")

T = TypeVar("T")

_GOODBYE_TIMEOUT = 3.0


class Client:
    """Lives from `start` until `finished`; `settled` tells when `initialize()` can return.

    Attributes:
        plan: what it was asked for.
        is_blocking: whether `bringup.sync` asked for it, and nobody has been told of the blocking face since.
        settled: set to what came up, or to `None` when the thread has ended without.
        failed: set to the exception that ended the job.
        failure_notice: tells its user so.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        is_blocking: bool = False,
        make_network: Callable[[Plan], Network | None] = make_network,
    ) -> None:
        self.plan = plan
        self._make_network = make_network
        self.is_blocking = is_blocking
        self.job = plan.job
        self.settled: Latch[ev.Up | None] = Latch()
        self.imports = CallerImports()
        self.settled.on_set(lambda _: self.imports.close())
        self.failed: Latch[BaseException] = Latch()
        self.peer: CoordinationPeer | None = None
        self.failure_notice = FailureNotice(self.job.client_id, self.failed)
        self._abort_error: BaseException | None = None
        self._thread: Runner | None = None
        self._started: Latch[None] = Latch()
        self._pid = os.getpid()
        self._failure_action = FailureAction(plan.on_failure, self.job.client_id)
        self._is_noticed = False
        self._termination = TerminationNotice(self._at_termination)
        self.services = ServiceClient(lambda deliver: self._up_peer.service_way(deliver), self._address_of)

    @property
    def _up_peer(self) -> CoordinationPeer:
        assert self.peer is not None
        return self.peer

    def _address_of(self, client_id: int) -> str:
        up = self.settled.value
        return "" if up is None else up.members[client_id].address

    # Its life.

    def start(self) -> None:
        """Begin.

        Raises:
            AlreadyInitializedError: another client is active in this process.
            BringupError: a limit of this process or machine is in the way.
        """
        ACTIVE.claim(self)
        try:
            check_open_files(self.plan)
            Reporter(self.plan.launch, self.job.client_id, self.job.jobs or (), self.failed).start(self.settled)
            if not (self.job.is_loopback or self.job.is_alone):
                _log.warning(
                    "the peers of this job talk without authentication or encryption (insecure=True): "
                    "anybody who reaches %s can join or stop it",
                    self.job.coordinator_address,
                )
            atexit.register(self._at_exit)
            self._termination.install()
            self._thread = RuntimeThread(self._main, name=f"bringup-client-{self.job.client_id}", on_end=self._on_end)
        except BaseException:
            self._unhook()
            ACTIVE.release(self)
            raise
        finally:
            self._started.set(None)
        if self._abort_error is not None:  # it came while there was no thread to tell
            self._thread.call_soon(self._abort, self._abort_error)

    def _unhook(self) -> None:
        atexit.unregister(self._at_exit)
        self._termination.remove()

    @property
    def phase(self) -> str:
        """The phase it is in."""
        return "starting" if self.peer is None else self.peer.machine.phase

    def describe(self) -> str:
        """Return which client of which job it is, and how far it is."""
        return f"client {self.job.client_id} of job {self.job.job_name!r} (phase {self.phase})"

    @property
    def is_over(self) -> bool:
        """Whether its thread has ended, or this is a forked child, which has no such thread and no part in the job."""
        if self.is_forked:
            return True
        return self._started.is_set and (self._thread is None or self._thread.finished.is_set)

    @property
    def is_forked(self) -> bool:
        """Whether this process was forked from that of the client."""
        return os.getpid() != self._pid

    async def wait_over(self) -> None:
        """Wait until its thread has ended. Cancelling is safe."""
        await self._started.wait()
        if self._thread is not None:
            await self._thread.finished.wait()

    @property
    def _running(self) -> Runner:
        assert self._thread is not None, "start() first"
        return self._thread

    def abort(self, error: BaseException) -> None:
        """End it, whatever it is doing; the other clients are told of `error`."""
        if self.is_forked:
            return
        # In this order: it may be just starting, in another thread, which makes its thread first and looks here then.
        self._abort_error = error
        self.imports.close()
        if self._thread is not None:
            self._thread.call_soon(self._abort, error)

    async def finish(self) -> None:
        """Wait until it has ended and nothing of it is left; a cancellation is kept until then."""
        if self.is_forked:
            return
        cancelled: asyncio.CancelledError | None = None
        while not self.is_over:
            try:
                await self.wait_over()
            except asyncio.CancelledError as error:
                cancelled = error
        if self._thread is not None:
            self._thread.join()
        if cancelled is not None:
            raise cancelled

    def forked(self) -> None:
        """See `Occupant.forked`."""
        SOCKETS.let_go()

    def finish_blocking(self) -> None:
        """Block until it has ended and nothing of it is left."""
        if self.is_forked:
            return
        self._started.wait_blocking()
        if self._thread is not None:
            self._thread.finished.wait_blocking()
            self._thread.join()

    # Calls into it.

    async def call(self, make: Callable[[CoordinationPeer], Coroutine[Any, Any, T]]) -> T:
        """Await on the runtime's loop what `make` returns; cancelling cancels it there."""
        try:
            return await asyncio.wrap_future(self.submit(make))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise self.end() from None  # the runtime ended under the call

    def submit(self, make: Callable[[CoordinationPeer], Coroutine[Any, Any, T]]) -> concurrent.futures.Future[T]:
        """Run on the runtime's loop what `make` returns."""
        assert self.peer is not None
        try:
            if self.is_forked:
                raise RuntimeError("this process has no such loop")
            return self._running.call(self._guard(make, self.peer))
        except RuntimeError:
            future: concurrent.futures.Future[T] = concurrent.futures.Future()
            future.set_exception(self.end())
            return future

    def end(self) -> BaseException:
        """Return a fresh exception that says why it ended."""
        if self.is_forked:
            return NotInitializedError(forked_from(self._pid))
        error = self.failed.value
        return NotInitializedError("the system was shut down") if error is None else fresh(error)

    async def _guard(self, make: Callable[[CoordinationPeer], Coroutine[Any, Any, T]], peer: CoordinationPeer) -> T:
        try:
            return await make(peer)
        except BringupError as error:
            raise fresh(error) from None

    # On the runtime's loop.

    async def _main(self) -> None:
        watcher = asyncio.create_task(self._watch_failure())
        loops = asyncio.create_task(self._go_on_without(self.services.watch_loops()))
        progress: asyncio.Task[None] | None = None
        try:
            network = self._make_network(self.plan)
            self.peer = make_peer(self.plan, network, self.imports.import_module, up=self.settled, failed=self.failed)
            if self._abort_error is not None:
                self.peer.abort(self._abort_error)
            progress = asyncio.create_task(self._go_on_without(show_progress(self.peer, self.settled)))
            await self.peer.run()
        except BringupError as error:
            self.failed.set(error)
        finally:
            for task in (watcher, loops, progress):
                if task is not None and not task.done():
                    task.cancel()

    async def _go_on_without(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what the job can live without: an exception is logged once, and ends nothing else."""
        try:
            await work
        except Exception as error:  # noqa: BLE001 - whatever it is
            crash_error(self.job.client_id, error)

    def _abort(self, error: BaseException) -> None:
        if self.peer is not None:  # else it is just starting, and finds the error when there is one
            self.peer.abort(error)

    @property
    def failure(self) -> PeerFailedError | None:
        """What ended a job that was up; `None` also where this client's own program ended it."""
        error, up = self.failed.value, self.settled.value
        if up is None or not isinstance(error, BringupError) or isinstance(error, NotInitializedError):
            return None
        own = up.members[self.job.client_id]
        return own_failure(error, own.client_id, own.address, own.hostname, self.phase)

    async def _watch_failure(self) -> None:
        await self.failed.wait()
        try:
            self._end_calls()
        except Exception as error:  # noqa: BLE001 - the program is to hear of the failure all the same
            crash_error(self.job.client_id, error)
        self._take_failure()

    def _take_failure(self) -> None:
        if self.settled.value is not None:
            self._failure_action.take(self.failure, self._up_peer.parted)

    def _on_end(self, failure: BaseException | None) -> None:
        """Called by the thread when its loop is closed."""
        if failure is not None:
            self.failed.set(crash_error(self.job.client_id, failure))
        self._end_calls()
        SOCKETS.clear()
        self._take_failure()
        if self.settled.value is None:
            ACTIVE.release(self)
        else:
            self.failure_notice.give_at_exit()
        self.settled.set(None)
        self._unhook()

    def _end_calls(self) -> None:
        self.services.end(self.end)
        if self.peer is not None:
            self.peer.preemption.end(self.end)

    def _at_exit(self) -> None:
        """An interpreter that ends without `shutdown()` still says goodbye."""
        self._say_goodbye(SystemExit("its interpreter ended without shutdown()"))

    def _at_termination(self) -> bool:
        """Take SIGTERM as the notice of a preemption where the program looks out for one; else say goodbye."""
        preemption = self.peer.preemption if self.peer is not None else None
        if preemption is not None and preemption.is_used and not self._is_noticed and not self.is_forked:
            self._is_noticed = True
            # Not here: this may have interrupted somebody who holds the lock.
            return self._running.call_soon(preemption.announce, 0.0, "SIGTERM")
        self._say_goodbye(SystemExit("it was ended by SIGTERM"))
        return False

    def _say_goodbye(self, error: BaseException) -> None:
        if self.is_forked:
            return
        self.abort(error)
        if self._thread is not None:
            self._thread.finished.wait_blocking(_GOODBYE_TIMEOUT)


ACTIVE: Slot[Client] = Slot()
"""The client of this process."""

os.register_at_fork(after_in_child=ACTIVE.forked)
