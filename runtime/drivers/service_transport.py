"""The calls of one event loop to the coordination services, and the routes that carry them: local, or over links."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, get_args

from ...transport.attempts import Goal
from ...transport.dial import reach
from ...transport.ports import Frame, ServiceLink, ServiceReceiver
from ...transport.wire.form import MalformedMessageError
from ...transport.wire.framing import decode, encode_parts
from ...transport.wire.services import CancelCall, EndOther, ServiceReply, ServiceRequest
from ...transport.wire.session_messages import SessionMessage
from ..machines.session.effects import Dial, Drop, Effects, GivenUp, Gone
from ..machines.session.limits import SERVICES_KEPT_MAX
from ..machines.session.machine import SessionMachine
from .alarm import Alarm
from .crash import OnCrash, let_crash
from .service_server import ServiceServer
from .service_sessions import write_all

_REPLIES = frozenset(get_args(ServiceReply))

Connect = Callable[[ServiceReceiver], Awaitable[ServiceLink]]
Deliver = Callable[[ServiceReply], None]
OnLost = Callable[[str, int, int], None]


def _let_end(reason: str, kept: int, received: int) -> None:
    raise ConnectionError(f"the session with the coordination services has ended: {reason}")


class Route(Protocol):
    """Carries requests to the services, and their replies to a receiver on the loop of the caller."""

    def send(self, request: ServiceRequest) -> None:
        """Send a request; waits for nothing."""
        ...

    async def drained(self) -> None:
        """Wait while much of what was sent has not left yet."""
        ...

    def close(self) -> bool:
        """End the session; returns whether the services are sure to know."""
        ...

    def end_from(self, other: Route) -> None:
        """End the session over another route: the event loop of this one is closed."""
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
        """Raise a new `error` to the waiting caller, once all replies were taken."""
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
        make_route: returns the route to the services, given the receiver of replies.

    Attributes:
        route: what carries the calls.
    """

    def __init__(self, make_route: Callable[[Deliver], Route]) -> None:
        self._loop = asyncio.get_running_loop()
        self._tickets = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[ServiceReply]] = {}
        self._listening: dict[int, Feed] = {}
        self._error: Callable[[], BaseException] | None = None
        self.route = make_route(self._deliver)

    async def call(self, make: Callable[[int], ServiceRequest]) -> ServiceReply:
        """Make a call, given its ticket, and wait for the reply. Cancelling cancels it there, too."""
        if self._error is not None:
            raise self._error()
        ticket = next(self._tickets)
        reply: asyncio.Future[ServiceReply] = self._loop.create_future()
        self._waiting[ticket] = reply
        try:
            self.route.send(make(ticket))
            await self.route.drained()
            return await reply
        except asyncio.CancelledError:
            if not reply.done() or reply.cancelled():
                self.route.send(CancelCall(ticket))
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
        self.route.send(make(ticket))
        return ticket, feed

    def post(self, request: ServiceRequest) -> None:
        """Send a request that is not answered."""
        if self._error is None:
            self.route.send(request)

    def forget(self, ticket: int) -> None:
        """Stop listening."""
        if self._listening.pop(ticket, None) is not None and self._error is None:
            self.route.send(CancelCall(ticket))

    def end(self, error: Callable[[], BaseException]) -> bool:
        """Raise a new `error` to all pending and later calls; called on this loop.

        Returns:
            Whether the services are sure to know that there are no more calls.
        """
        if self._error is not None:
            return True
        self._error = error
        for reply in self._waiting.values():
            if not reply.done():
                reply.set_exception(error())
                reply.exception()  # a caller that was cancelled meanwhile does not look at it
        self._waiting.clear()
        for feed in self._listening.values():
            feed.end(error)
        return self.route.close()

    def end_for(self, gone: ServiceCalls) -> None:
        """End those of an event loop that is closed, before whatever is called on this one."""
        gone.route.end_from(self.route)

    @property
    def error(self) -> BaseException | None:
        """The exception that every call raises, once the calls have ended."""
        return None if self._error is None else self._error()

    def _deliver(self, reply: ServiceReply) -> None:
        waiting = self._waiting.get(reply.ticket)
        if waiting is not None:
            if not waiting.done():
                waiting.set_result(reply)
        elif (listener := self._listening.get(reply.ticket)) is not None:
            listener.put(reply)


class LocalRoute:
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
        self.session = server.open_session(deliver if own is loop else lambda reply: _call_back(own, deliver, reply))

    def send(self, request: ServiceRequest) -> None:
        """See `Route.send`."""
        self._call(self._server.handle, self.session, self._client_id, request)

    async def drained(self) -> None:
        """See `Route.drained`."""

    def close(self) -> bool:
        """See `Route.close`."""
        self._call(self._server.close_session, self.session)
        return True

    def end_from(self, other: Route) -> None:
        """See `Route.end_from`."""
        assert isinstance(other, LocalRoute)
        # As the other posts its requests, so that this comes before them.
        other._call(self._server.close_session, self.session)

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


class RemoteRoute:
    """To services in another process: pumps a session over a link that is opened when it is first needed.

    Args:
        connect: opens a link.
        deliver: where replies are to go, on the running loop.
        on_crash: told what a handler has raised that nobody expected; on that loop.
        on_lost: told why the session has ended for good, of how many messages nobody knows whether they have arrived,
            and how many have come; on that loop.

    Attributes:
        session: with the services.
        link: the one that carries it.
    """

    def __init__(
        self, connect: Connect, deliver: Deliver, on_crash: OnCrash = let_crash, on_lost: OnLost = _let_end
    ) -> None:
        self._connect = connect
        self.deliver = deliver
        self.on_crash = on_crash
        self._on_lost = on_lost
        self._number = secrets.randbits(63)
        self.session: SessionMachine[list[bytes]] = SessionMachine(SERVICES_KEPT_MAX)
        self._loop = asyncio.get_running_loop()
        self._alarm = Alarm(self._wake, self._loop.time, on_crash)
        self._dials: dict[int, asyncio.Task[None]] = {}
        self._links: dict[int, ServiceLink] = {}
        self.link: ServiceLink | None = None

    def send(self, request: ServiceRequest) -> None:
        """See `Route.send`."""
        parts = encode_parts(request)
        try:
            if self.session.pass_through(parts):
                assert self.link is not None
                return self.link.send(parts)
            if not self.session.number:
                self._perform(self.session.begin(self._number, self._loop.time()))
            self._perform(self.session.put(parts))
        except Exception as error:  # noqa: BLE001 - the caller may be anybody; the end of the client ends the call
            self.on_crash(error)

    async def drained(self) -> None:
        """See `Route.drained`."""
        if (link := self.link) is not None:
            await link.drained()

    def close(self) -> bool:
        """See `Route.close`. The link may break with the last word on its way: nobody stays to say it again."""
        try:
            self._perform(self.session.finish(self._loop.time()))
            self._perform(self.session.abandon())
            self._alarm.cancel()
        except Exception as error:  # noqa: BLE001 - a loop only logs what its callbacks raise
            self.on_crash(error)
            for dial in self._dials.values():
                dial.cancel()
            for link in self._links.values():
                link.close()
        return not self.session.number

    def end_from(self, other: Route) -> None:
        """See `Route.end_from`."""
        other.send(EndOther(0, self._number))

    def _perform(self, effects: Effects) -> None:
        self.pump()
        for effect in effects:
            match effect:
                case Dial(number):
                    self._dials[number] = self._loop.create_task(self._dial(number), name="bringup-services")
                case Drop(number):
                    self.drop(number)
                case Gone(reason) | GivenUp(reason):
                    self._on_lost(reason, self.session.num_kept, self.session.received)
        self.pump()
        self.link = self._links.get(self.session.carrier)
        self._alarm.set(self.session.deadline())

    def pump(self) -> None:
        """Write what the session has for its links."""
        for number, link in list(self._links.items()):
            write_all(link, partial(self.session.next_to_send, number))

    def _wake(self) -> None:
        self._perform(self.session.wake(self._loop.time()))

    def drop(self, number: int) -> None:
        """End a link, or its dialling."""
        if (link := self._links.pop(number, None)) is not None:
            link.close()
        elif (dial := self._dials.pop(number, None)) is not None:
            dial.cancel()

    async def _dial(self, number: int) -> None:
        """Dial until it works; the job's own failure detection says when there is nobody any more."""
        receiver = _LinkReceiver(self, number)
        try:
            link = await reach(Goal.SERVICES, lambda: self._connect(receiver), lambda trouble: None)
            self._links[number] = link
            self._perform(self.session.opened(number, self._loop.time()))
            if receiver.end is not None:
                self.lost(number, receiver.end)
        except Exception as error:  # noqa: BLE001 - nobody awaits this, and calls would wait for ever
            self.on_crash(error)
        finally:
            self._dials.pop(number, None)

    def receive(self, number: int, message: SessionMessage) -> None:
        """Take in a message of the session itself."""
        self._perform(self.session.receive(number, message, self._loop.time()))

    def lost(self, number: int, reason: str) -> None:
        """Take in that a link has ended."""
        self._links.pop(number, None)
        self._perform(self.session.lost(number, reason, self._loop.time()))


class _LinkReceiver:
    """Takes what comes over one link.

    Attributes:
        end: how it has ended, once it has.
    """

    def __init__(self, route: RemoteRoute, number: int) -> None:
        self._route = route
        self._session = route.session
        self._deliver = route.deliver
        self._number = number
        self.end: str | None = None

    def received(self, frame: Frame) -> None:
        """See `ServiceReceiver.received`."""
        try:
            message = decode(frame)
            if type(message) not in _REPLIES:
                self._route.receive(self._number, message)  # type: ignore[arg-type]
            elif self._session.take(self._number, len(frame)):
                self._deliver(message)  # type: ignore[arg-type]
                if self._session.owes_acknowledgement:
                    self._route.pump()
        except MalformedMessageError as error:
            self._end(str(error), drop=True)
        except Exception as error:  # noqa: BLE001 - a network would drop the link, and the reply with it
            self._route.on_crash(error)

    def lost(self, reason: str) -> None:
        """See `ServiceReceiver.lost`: whoever waits for a reply still gets it, over another link."""
        self.end = reason
        self._end(reason)

    def _end(self, reason: str, *, drop: bool = False) -> None:
        try:
            if drop:
                self._route.drop(self._number)
            self._route.lost(self._number, reason)
        except Exception as error:  # noqa: BLE001 - a network would only log it
            self._route.on_crash(error)
