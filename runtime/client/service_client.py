"""A client's calls to the coordination services, from any number of event loops, each with its own route."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import threading
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import cast

from ...errors import BarrierTimeoutError, BringupError, ConfigurationError, NotInitializedError, PeerFailedError
from ...transport.texts import printable
from ...transport.wire.services import ClientIds, EnterBarrier, Refusal, ServiceReply, ServiceRequest
from ..configuration.validation import client_set, timeout_of
from ..drivers.service_transport import Route, ServiceCalls
from ..machines.failure_errors import REFUSAL_ERRORS, forked_from
from ..machines.id_ranges import pack_ids, unpack_ids
from ..machines.phases import Phase

_BARRIER_NAME_BYTES_MAX = 1024


class ServiceClient:
    """The calls of a client, on the caller's event loop, without a hop to the runtime's.

    Args:
        make_route: returns the route from the running loop to the services, given the receiver of replies.
        address_of: returns the address of a client.
    """

    def __init__(
        self, make_route: Callable[[Callable[[ServiceReply], None]], Route], address_of: Callable[[int], str]
    ) -> None:
        self._make_route = make_route
        self._address_of = address_of
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._calls: dict[asyncio.AbstractEventLoop, ServiceCalls] = {}
        self._departures: dict[asyncio.AbstractEventLoop, AsyncGenerator[None, None]] = {}
        self._left: list[tuple[asyncio.AbstractEventLoop, ServiceCalls]] = []  # of which the services may not know
        self._error: Callable[[], BaseException] | None = None

    async def call(self, make: Callable[[int], ServiceRequest]) -> ServiceReply:
        """Make a call, and return its reply; `make` returns the request with a given ticket.

        Raises:
            BringupError: it was refused; or the job has failed, or is over.
        """
        self._check_process()
        calls = self._calls.get(asyncio.get_running_loop()) or self.calls()
        if len(self._calls) > 1 or self._left:
            self._end_closed_loops(calls)
        return self.checked(await calls.call(make))

    def checked(self, reply: ServiceReply) -> ServiceReply:
        """Return a reply.

        Raises:
            BringupError: it is a refusal.
        """
        if type(reply) is Refusal:
            raise self.refused(reply)
        return reply

    def calls(self) -> ServiceCalls:
        """Return the calls of the running loop."""
        self._check_process()
        loop = asyncio.get_running_loop()
        with self._lock:
            calls = self._calls.get(loop)
            if calls is None:
                calls = self._calls[loop] = ServiceCalls(self._make_route)
                self._departures[loop] = _at_loop_end(lambda: self._leave(loop))
                if self._error is not None:
                    calls.end(self._error)
        return calls

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise NotInitializedError(forked_from(self._pid))

    async def watch_loops(self, interval: float = 1.0) -> None:
        """Poll for event loops that were closed without notice, and end their calls; until cancelled."""
        while True:
            await asyncio.sleep(interval)
            if any(loop.is_closed() for loop in [*self._calls, *(loop for loop, _ in self._left)]):
                self._end_closed_loops(self.calls())

    def _end_closed_loops(self, calls: ServiceCalls) -> None:
        """End the calls of closed loops: a barrier must not count them as waiting, nor a watch keep any changes."""
        with self._lock:
            gone = [calls for loop, calls in self._left if loop.is_closed()]
            self._left = [left for left in self._left if not left[0].is_closed()]
            gone += [self._calls.pop(loop) for loop in list(self._calls) if loop.is_closed()]
            self._departures = {loop: kept for loop, kept in self._departures.items() if not loop.is_closed()}
        for each in gone:
            calls.end_for(each)

    def _leave(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close the route of a loop that ends: the services would keep it for a reconnection."""
        with self._lock:
            calls = self._calls.pop(loop, None)
            self._departures.pop(loop, None)
        if calls is not None and not calls.end(lambda: NotInitializedError("the event loop of this call has ended")):
            with self._lock:
                self._left.append((loop, calls))  # the services are told over another route

    def refused(self, refusal: Refusal) -> BringupError:
        """Return the exception for a refusal."""
        kind = REFUSAL_ERRORS.get(refusal.error)
        if kind is None:
            return BringupError(f"{printable(refusal.error)}: {printable(refusal.text)}")
        if kind is BarrierTimeoutError:
            missing = {client_id: self._address_of(client_id) for client_id in unpack_ids(refusal.missing)}
            return BarrierTimeoutError(printable(refusal.text), missing=missing)
        if kind is PeerFailedError:  # a call that waits for those who leave; where the job fails, no call is answered
            leaver = next(unpack_ids(refusal.missing), None)
            return PeerFailedError(
                printable(refusal.text),
                client_id=leaver,
                address="" if leaver is None else self._address_of(leaver),
                phase=Phase.LEAVING,
                cause="it is leaving the job (shutdown)",
            )
        return kind(printable(refusal.text))

    def end(self, error: Callable[[], BaseException]) -> None:
        """Have all pending and later calls on all loops raise what `error` returns. Any thread; idempotent."""
        with self._lock:
            if self._error is not None:
                return
            self._error = error
            calls, self._calls = self._calls, {}
        for loop, ended in calls.items():
            try:
                loop.call_soon_threadsafe(ended.end, error)
            except RuntimeError:  # that loop is closed, and its waiters with it
                continue


def _at_loop_end(callback: Callable[[], None]) -> AsyncGenerator[None, None]:
    """Call back when the running loop shuts its asynchronous generators down, which `asyncio.run` does at its end.

    asyncio has no other notice of it. The caller must keep a reference to the generator until then.
    """

    async def wait() -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            callback()

    generator = wait()
    with contextlib.suppress(StopIteration):
        generator.__anext__().send(None)
    return generator


def barrier_request(
    name: str, client_ids: Iterable[int] | None, timeout: float | None
) -> Callable[[int], EnterBarrier]:
    """Return a function that makes the request to enter a barrier, given its ticket.

    Raises:
        ConfigurationError: an argument is wrong; names it.
    """
    if not isinstance(name, str) or not _is_barrier_name(name):
        raise ConfigurationError(
            f"barrier name {str(name)[:64]!r} is not a text of at most {_BARRIER_NAME_BYTES_MAX} bytes of UTF-8"
        )
    # A set without this client is refused by the coordinator, not here: the others may wait for it, and must hear.
    packed = () if client_ids is None else pack_ids(client_set(f"barrier {name!r}", client_ids))
    limit = timeout_of(f"barrier {name!r}", timeout)
    return lambda ticket: EnterBarrier(ticket, name, packed, -1.0 if limit is None else limit)


def _is_barrier_name(name: str) -> bool:
    try:
        return len(name.encode()) <= _BARRIER_NAME_BYTES_MAX
    except UnicodeEncodeError:
        return False


def name_of_set(what: str, client_ids: Iterable[int]) -> str:
    """Return the name of a barrier for a set of clients: barriers of different sets are independent."""
    return f"bringup/{what}/{hashlib.sha256(repr(pack_ids(client_ids)).encode()).hexdigest()}"


def clients_of(reply: ServiceReply) -> tuple[int, ...]:
    """Return the clients that a reply lists."""
    return tuple(unpack_ids(cast(ClientIds, reply).client_ids))
