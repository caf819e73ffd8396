"""A client's way to the coordination services, from one event loop: calls by ticket, over one link after another."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol, get_args

from ...transport.attempts import Goal
from ...transport.ports import Frame, ServiceLink, ServiceReceiver
from ...transport.tcp.dial import reach
from ...transport.wire.framing import decode, encode_parts
from ...transport.wire.services import (
    CancelCall,
    ChannelOpened,
    CloseChannel,
    EndChannel,
    MessagesReceived,
    OpenChannel,
    ServiceReply,
    ServiceRequest,
)
from .channel import Channel
from .crash import OnCrash, let_crash
from .service_server import ServiceServer

_RETRY_DELAY = 0.05
_REPLIES = frozenset(get_args(ServiceReply))

Connect = Callable[[ServiceReceiver], Awaitable[ServiceLink]]
Deliver = Callable[[ServiceReply], None]


class Way(Protocol):
    """How requests get to the services, and their replies back to `deliver` on the loop of the caller."""

    def send(self, request: ServiceRequest) -> None:
        """Send a request; waits for nothing."""
        ...

    async def drained(self) -> None:
        """Wait while much of what was sent has not left yet."""
        ...

    def close(self) -> None:
        """Use it no more."""
        ...

    def end_from(self, other: Way) -> None:
        """Use it no more, said over another way: the event loop of this one is closed."""
        ...


class Feed:
    """The replies to a call that is answered again and again; used on one event loop."""

    def __init__(self) -> None:
        self._replies: deque[ServiceReply] = deque()
        self._arrived = asyncio.Event()
        self._error: Callable[[], BaseException] | None = None

    def put(self, reply: ServiceReply) -> None:
        """Take a reply."""
        self._replies.append(reply)
        self._arrived.set()

    def end(self, error: Callable[[], BaseException]) -> None:
        """Let whoever waits raise what `error` makes, once all replies were taken."""
        self._error = error
        self._arrived.set()

    async def next(self) -> ServiceReply:
        """Return the next reply. Cancelling is safe."""
        while not self._replies:
            if self._error is not None:
                raise self._error()
            self._arrived.clear()
            await self._arrived.wait()
        return self._replies.popleft()


class ServiceCalls:
    """The calls of one event loop.

    Args:
        make_way: given where replies are to go, returns the way to the services.
    """

    def __init__(self, make_way: Callable[[Deliver], Way]) -> None:
        self._loop = asyncio.get_running_loop()
        self._tickets = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[ServiceReply]] = {}
        self._listening: dict[int, Feed] = {}
        self._error: Callable[[], BaseException] | None = None
        self._way = make_way(self._deliver)

    async def call(self, make: Callable[[int], ServiceRequest]) -> ServiceReply:
        """Make a call, given its ticket, and wait for the reply. Cancelling cancels it there, too."""
        if self._error is not None:
            raise self._error()
        ticket = next(self._tickets)
        reply: asyncio.Future[ServiceReply] = self._loop.create_future()
        self._waiting[ticket] = reply
        try:
            self._way.send(make(ticket))
            await self._way.drained()
            return await reply
        except asyncio.CancelledError:
            if not reply.done() or reply.cancelled():
                self._way.send(CancelCall(ticket))
            raise
        finally:
            self._waiting.pop(ticket, None)

    def listen(self, make: Callable[[int], ServiceRequest]) -> tuple[int, Feed]:
        """Make a call that is answered again and again; returns its ticket, for `forget`, and the replies."""
        if self._error is not None:
            raise self._error()
        ticket = next(self._tickets)
        # Before it is sent: services on this very loop answer at once.
        feed = self._listening[ticket] = Feed()
        self._way.send(make(ticket))
        return ticket, feed

    def post(self, request: ServiceRequest) -> None:
        """Send a request that is not answered."""
        if self._error is None:
            self._way.send(request)

    def forget(self, ticket: int) -> None:
        """Stop listening."""
        if self._listening.pop(ticket, None) is not None and self._error is None:
            self._way.send(CancelCall(ticket))

    def end(self, error: Callable[[], BaseException]) -> None:
        """Let all calls, those that wait and those to come, raise what `error` makes; called on this loop."""
        if self._error is not None:
            return
        self._error = error
        for reply in self._waiting.values():
            if not reply.done():
                reply.set_exception(error())
                reply.exception()  # a caller that was cancelled meanwhile does not look at it
        self._waiting.clear()
        for feed in self._listening.values():
            feed.end(error)
        self._way.close()

    def end_for(self, gone: ServiceCalls) -> None:
        """End those of an event loop that is closed, before whatever is called on this one."""
        gone._way.end_from(self._way)

    @property
    def error(self) -> BaseException | None:
        """What every call raises by now."""
        return None if self._error is None else self._error()

    def _deliver(self, reply: ServiceReply) -> None:
        waiting = self._waiting.get(reply.ticket)
        if waiting is not None:
            if not waiting.done():
                waiting.set_result(reply)
        elif (listener := self._listening.get(reply.ticket)) is not None:
            listener.put(reply)


class LocalWay:
    """To services in this process, on another event loop or on this one.

    Args:
        server: the services.
        loop: where they live.
        client_id: who calls.
        deliver: where replies are to go, on the running loop.
    """

    def __init__(
        self, server: ServiceServer, loop: asyncio.AbstractEventLoop, client_id: int, deliver: Deliver
    ) -> None:
        self._server = server
        self._client_id = client_id
        own = asyncio.get_running_loop()
        self._post: Callable[..., object] | None = None if own is loop else loop.call_soon_threadsafe
        self._session = server.open_session(deliver if own is loop else lambda reply: _call_back(own, deliver, reply))

    def send(self, request: ServiceRequest) -> None:
        """See `Way.send`."""
        self._call(self._server.handle, self._session, self._client_id, request)

    async def drained(self) -> None:
        """See `Way.drained`."""

    def close(self) -> None:
        """See `Way.close`."""
        self._call(self._server.close_session, self._session)

    def end_from(self, other: Way) -> None:
        """See `Way.end_from`."""
        assert isinstance(other, LocalWay)
        # As the other posts its requests, so that this comes before them.
        other._call(self._server.close_session, self._session)

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        if self._post is None:
            return function(*arguments)
        try:
            self._post(function, *arguments)
        except RuntimeError:  # the runtime has ended; whoever calls is about to be told
            return None
        return None


def _call_back(loop: asyncio.AbstractEventLoop, deliver: Deliver, reply: ServiceReply) -> None:
    try:
        loop.call_soon_threadsafe(deliver, reply)
    except RuntimeError:  # that loop is closed: nobody waits there
        return


class RemoteWay:
    """To services in another process: a link that is made when it is first needed, and again when it breaks.

    Args:
        connect: opens a link.
        deliver: where replies are to go, on the running loop.
        on_crash: told what a handler has raised that nobody expected; on that loop.
    """

    def __init__(self, connect: Connect, deliver: Deliver, on_crash: OnCrash = let_crash) -> None:
        self._connect = connect
        self._deliver = deliver
        self._on_crash = on_crash
        self._channel = Channel()
        self._number = secrets.randbits(63)
        self._loop = asyncio.get_running_loop()
        self._connecting: asyncio.Task[None] | None = None
        self._opening: ServiceLink | None = None
        self._is_closed = False

    def send(self, request: ServiceRequest) -> None:
        """See `Way.send`."""
        self._channel.send(request)
        if self._channel.link is None and self._connecting is None and self._opening is None:
            self._begin()

    async def drained(self) -> None:
        """See `Way.drained`."""
        if self._channel.link is not None:
            await self._channel.link.drained()

    def close(self) -> None:
        """See `Way.close`."""
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        for link in (self._channel.link, self._opening):
            if link is not None:
                link.send(encode_parts(CloseChannel()))
                link.close()
        self._channel.link = self._opening = None

    def end_from(self, other: Way) -> None:
        """See `Way.end_from`."""
        other.send(EndChannel(0, self._number))

    def received(self, frame: Frame) -> None:
        """See `ServiceReceiver.received`."""
        try:
            message = decode(frame)
            if type(message) in _REPLIES:
                self._channel.note_received(len(frame))
                self._deliver(message)  # type: ignore[arg-type]
            elif isinstance(message, MessagesReceived):
                self._channel.acknowledged(message.received)
            elif isinstance(message, ChannelOpened) and self._opening is not None:
                link, self._opening = self._opening, None
                self._channel.attach(link, message.received)
        except ValueError as error:
            self.lost(str(error))
        except Exception as error:  # noqa: BLE001 - a network would drop the link, and the reply with it
            self._on_crash(error)

    def lost(self, reason: str) -> None:
        """See `ServiceReceiver.lost`: whoever waits for a reply still gets it, over another link."""
        link = self._channel.link or self._opening
        if link is not None:
            link.close()
        delay = _RETRY_DELAY if self._opening is not None else 0.0
        self._channel.link = self._opening = None
        if not self._is_closed:
            self._begin(delay)

    def _begin(self, delay: float = 0.0) -> None:
        self._connecting = self._loop.create_task(self._open(delay), name="bringup-services")

    async def _open(self, delay: float) -> None:
        """Dial until it works; the job's own failure detection says when there is nobody any more."""
        try:
            await asyncio.sleep(delay)
            link = await reach(Goal.SERVICES, lambda: self._connect(self), lambda trouble: None)
        except Exception as error:  # noqa: BLE001 - nobody awaits this, and calls would wait for ever
            self._on_crash(error)
            return
        finally:
            self._connecting = None
        self._opening = link
        link.send(encode_parts(OpenChannel(self._number, self._channel.received)))
