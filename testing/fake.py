"""A job within one process, for unit tests: clients with simulated devices, on one event loop and a network in memory.

What a client decides, and what its system does, is what ships; only the network and the devices are others::

    async with FakeJob(3) as job:
        await asyncio.gather(*(train(system) for system in job.systems))

    async with FakeJob(3) as job:
        waiting = asyncio.create_task(job.systems[0].barrier("epoch"))
        job.kill(1)
        with pytest.raises(bringup.PeerFailedError):
            await waiting

For code that blocks, each client with a thread of its own::

    with FakeJob(2) as job, ThreadPoolExecutor() as pool:
        list(pool.map(train, job.blocking_systems))
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from ..errors import ConfigurationError, PeerFailedError
from ..runtime.blocking import SyncSystem
from ..runtime.client.client import Client
from ..runtime.client.compose import Parts
from ..runtime.client.loop_thread import Runner, RuntimeThread
from ..runtime.configuration.options import OptionOverrides
from ..runtime.configuration.plan import make_plan
from ..runtime.configuration.request import Request
from ..runtime.drivers.latch import Latch, awaited
from ..runtime.system import System
from .memory_network import MemoryNetwork

T = TypeVar("T")

_UP_TIMEOUT = 30.0
_FIRST_PORT = 9000


class FakeSystem(System):
    """A system of a `FakeJob`."""


class FakeJob:
    """A job of `num_clients`, up from `async with` (on the running loop) or `with` (on a loop of its own) to its end.

    Clients that the test has not shut down by then are ended without a meeting.

    Args:
        num_clients: how many.
        environment: the settings of the simulated devices: see `BRINGUP_SIM_TOPOLOGY` and others of the SIM backend.
        enable_coordination_service: as for `initialize()`.
        **options: any field of `Options`.

    Attributes:
        systems: of each client, in client order; to be awaited on the loop of the `async with`.
        blocking_systems: the same for `with`; not for the thread of that loop.
    """

    def __init__(
        self,
        num_clients: int = 1,
        *,
        environment: Mapping[str, str] | None = None,
        enable_coordination_service: bool = True,
        **options: Unpack[OptionOverrides],
    ) -> None:
        if num_clients < 1:
            raise ConfigurationError(f"num_clients={num_clients} of FakeJob: give 1 or more")
        self.systems: tuple[FakeSystem, ...] = ()
        self.blocking_systems: tuple[SyncSystem, ...] = ()
        self._network = MemoryNetwork()
        self._jobs = tuple(f"localhost:{_FIRST_PORT + client_id}" for client_id in range(num_clients))
        self._deaths = contextlib.ExitStack()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: RuntimeThread | None = None
        self._clients = [
            _FakeClient(self._network, self._jobs, client_id, environment or {}, enable_coordination_service, options)
            for client_id in range(num_clients)
        ]

    # Faults. They may be called on any thread.

    def kill(self, client_id: int) -> None:
        """End a client as if its process had been killed: it says no goodbye, and its address refuses connections."""
        self._do(self._kill, client_id)

    def cut(self, client_id: int) -> None:
        """Hold back all traffic of a client, without an error on either side, as if its cable had been pulled."""
        self._do(lambda address: self._deaths.enter_context(self._network.cut(address)), self._address(client_id))

    # Its life.

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_UP_TIMEOUT):
                await self._bring_up()
        except BaseException:
            await self._end()
            raise
        self.systems = tuple(FakeSystem(client) for client in self._clients)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._end()

    def __enter__(self) -> Self:
        self._is_over, self._finished = Latch[None](), Latch[None]()
        is_up: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._thread = RuntimeThread(
            lambda: self._live(is_up), name="bringup-fake-job", on_end=lambda failure: None, finished=self._finished
        )
        self._thread.start()
        try:
            is_up.result(_UP_TIMEOUT)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self.blocking_systems = tuple(SyncSystem(client) for client in self._clients)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._thread is not None
        self._is_over.set(None)
        self._finished.wait_blocking()
        self._thread.join()

    async def _live(self, is_up: concurrent.futures.Future[None]) -> None:
        """Hold the job of a `with` on the loop of its thread."""
        try:
            async with self:
                is_up.set_result(None)
                await self._is_over.wait()
        except BaseException as error:
            if is_up.done():
                raise
            is_up.set_exception(error)

    async def _bring_up(self) -> None:
        for client in self._clients:
            client.start()
        for client in self._clients:
            if await client.up.wait() is None:
                raise client.end_error()

    async def _end(self) -> None:
        for client in self._clients:
            client.abort(RuntimeError("the FakeJob is over"))
        for client in self._clients:
            await awaited(client.finish())
        self._deaths.close()

    def _kill(self, client_id: int) -> None:
        self._deaths.enter_context(self._network.refuse(self._address(client_id)))
        self._clients[client_id].die()

    def _address(self, client_id: int) -> str:
        if client_id not in range(len(self._jobs)):
            raise ConfigurationError(f"client_id={client_id}: the FakeJob has clients 0 to {len(self._jobs) - 1}")
        return self._jobs[client_id]

    def _do(self, fault: Callable[..., object], *arguments: object) -> None:
        assert self._loop is not None, "the FakeJob is not up: enter it first"
        try:
            is_own = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_own = False
        if is_own:
            fault(*arguments)
            return

        async def on_loop() -> None:
            fault(*arguments)

        asyncio.run_coroutine_threadsafe(on_loop(), self._loop).result(_UP_TIMEOUT)


class _FakeClient(Client):
    """A client on the running loop and a network in memory, beside others in this process."""

    def __init__(
        self,
        network: MemoryNetwork,
        jobs: tuple[str, ...],
        client_id: int,
        environment: Mapping[str, str],
        enable_coordination_service: bool,
        options: OptionOverrides,
    ) -> None:
        request = Request(
            "SIM",
            jobs=jobs,
            client_id=client_id,
            num_clients=len(jobs),
            enable_coordination_service=enable_coordination_service,
            overrides={"insecure": True, **options},  # nobody else reaches a network in memory
        )
        super().__init__(
            make_plan(request, environment),
            parts=Parts(lambda plan: network.peer(jobs[client_id])),
        )

    def _make_runner(self) -> Runner:
        return _LoopRunner(self._main, self._on_end, self.over)

    def die(self) -> None:
        """End without a goodbye to the other clients."""
        assert self.up.value is not None
        member = self.up.value.members[self.job.client_id]
        died = f"client {self.job.client_id} ({member.hostname}, {member.address}) was killed by the test"
        self.failed.set(PeerFailedError(died, client_id=self.job.client_id, address=member.address, cause="killed"))
        self.abort(RuntimeError("it was killed by the test"))


class _LoopRunner:
    """A `Runner` on the running event loop."""

    def __init__(
        self,
        main: Callable[[], Coroutine[Any, Any, None]],
        on_end: Callable[[BaseException | None], None],
        finished: Latch[None],
    ) -> None:
        self._main = main
        self._on_end = on_end
        self._finished = finished
        self._loop = asyncio.get_running_loop()
        self._calls: set[concurrent.futures.Future[Any]] = set()
        self._task: asyncio.Task[None]

    def start(self) -> None:
        self._task = self._loop.create_task(self._main())
        self._task.add_done_callback(self._end)

    def withdraw(self) -> bool:
        return False

    def call(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        if self._task.done():
            coroutine.close()
            raise RuntimeError("the client has ended")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        self._calls.add(future)
        future.add_done_callback(self._calls.discard)
        return future

    def call_soon(self, callback: Callable[..., object], *args: object) -> bool:
        if self._task.done():
            return False
        self._loop.call_soon_threadsafe(callback, *args)
        return True

    def join(self) -> None:
        """Do nothing: the loop belongs to the `FakeJob`."""

    def _end(self, task: asyncio.Task[None]) -> None:
        for call in list(self._calls):
            call.cancel()
        self._on_end(asyncio.CancelledError() if task.cancelled() else task.exception())
        self._finished.set(None)
