"""The accepting side of links: the listener of a peer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

from ..credentials import Credentials
from ..crowds import crowd_timeout, visitors_max
from ..ports import ConnectionClosedError, Link, LinkIdentity, ServiceWelcome
from .handshake import (
    CONFIRMATION,
    HELLO_BYTES,
    HELLO_TIMEOUT,
    AcceptancePolicy,
    Hello,
    Purpose,
    Reply,
    Status,
    decode_hello,
)
from .interfaces import bind_all
from .link import TcpLink
from .service_link import TcpServiceLink
from .tls import protocol_of

_log = logging.getLogger("bringup")

_STRANGERS_MAX = 64
"""Handshakes at once, for a peer that expects one neighbour and some probes: beyond that the oldest is dropped."""

_BACKLOG = 4096
"""Connections in the kernel's queue; the kernel caps it at `net.core.somaxconn`."""


class _Seat:
    """The place of one left neighbour's link, which the neighbour confirms once it has read that it is accepted.

    A neighbour that dials again has given its former link up, whether or not that shows here. So its links take turns:
    one that is alone may take as long as it likes, and one that others wait for has its time.

    Attributes:
        accepted: the link that was confirmed, in the end.
    """

    def __init__(self) -> None:
        self.accepted: asyncio.Future[Link] = asyncio.get_running_loop().create_future()
        self._turn = asyncio.Lock()
        self._num_waiting = 0
        self._time_of_turn: asyncio.Timeout | None = None

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for the turn of one more link, and end that of a former one in time."""
        self._num_waiting += 1
        try:
            if self._time_of_turn is not None and self._time_of_turn.when() is None:
                self._time_of_turn.reschedule(asyncio.get_running_loop().time() + HELLO_TIMEOUT)
            await self._turn.acquire()
        finally:
            self._num_waiting -= 1
        try:
            yield
        finally:
            self._turn.release()

    async def confirm(self, link: TcpLink) -> None:
        """Wait until the neighbour confirms the link whose turn it is.

        Raises:
            TimeoutError: it did not, and others wait for their turn.
            ConnectionClosedError: the link ended.
        """
        try:
            async with asyncio.timeout(HELLO_TIMEOUT if self._num_waiting else None) as self._time_of_turn:
                await link.receive_into(memoryview(bytearray(len(CONFIRMATION))))
        finally:
            self._time_of_turn = None

    def close(self) -> None:
        """End the link, or the wait for it."""
        if self.accepted.done() and not self.accepted.cancelled():
            self.accepted.result().close()
        self.accepted.cancel()


class TcpLinkListener:
    """Listens for the left neighbours' links, for probes, and on client 0 for service links.

    Args:
        incarnation: of this peer.
        patience: see `LinkConnector`.
        welcome: greets the service links; without it there are none.
        crowd: clients that may come in one moment: the whole job to client 0, for its services or to probe it.
    """

    def __init__(
        self, incarnation: int, patience: float, welcome: ServiceWelcome | None = None, crowd: int = 0
    ) -> None:
        self._policy = AcceptancePolicy(incarnation, has_services=welcome is not None)
        self._patience = patience
        self._welcome = welcome
        self._strangers_max = visitors_max(crowd) if crowd else _STRANGERS_MAX
        self._hello_timeout = crowd_timeout(HELLO_TIMEOUT, crowd)
        self._services: list[TcpServiceLink] = []
        self._services_to_sift = _STRANGERS_MAX
        self._servers: list[asyncio.Server] = []
        self._silent: dict[asyncio.Task[None], TcpLink] = {}
        self._heard: dict[asyncio.Task[None], TcpLink] = {}
        self._seats: dict[LinkIdentity, _Seat] = {}
        self._formed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_closed = False
        self.port = 0

    async def listen(self, hosts: list[str], port: int, credentials: Credentials) -> None:
        """Listen on `port` of each of `hosts`; port 0 takes any that is free on all of them.

        Raises:
            ConfigurationError: the port is taken; names it and its holder.
        """
        for sock in bind_all(hosts, port, "the ring listener (ring_port)"):
            server = await asyncio.get_running_loop().create_server(
                lambda: protocol_of(
                    TcpLink(self._greet, self._patience), credentials.terms(is_server=True), is_server=True
                ),
                sock=sock,
                backlog=_BACKLOG,
            )
            self._servers.append(server)
            self.port = sock.getsockname()[1]

    async def accept(self, own: LinkIdentity, left: LinkIdentity, *others: LinkIdentity) -> Link:
        """See `LinkListener.accept`."""
        self._policy.expect(own, left, *others)
        if not self._formed.done():
            self._seats = {each: _Seat() for each in (left, *others)}
            self._formed.set_result(None)
        # A link that comes once its taker has been cancelled ends with this.
        return await asyncio.shield(self._seats[left].accepted)

    async def close(self) -> None:
        """See `LinkListener.close`. The link that was accepted ends, too."""
        self._is_closed = True
        for server in self._servers:
            server.close()
        self._servers.clear()
        handshakes = self._silent | self._heard
        for task, link in handshakes.items():
            task.cancel()
            link.close()
        await asyncio.gather(*handshakes, return_exceptions=True)
        for service in self._services:
            service.close()
        for seat in self._seats.values():
            seat.close()
        self._formed.cancel()

    def _greet(self, link: TcpLink) -> None:
        if self._is_closed:  # it was in the kernel's queue
            link.close()
            return
        if len(self._silent) >= self._strangers_max:
            _drop_oldest(self._silent)
        task = asyncio.get_running_loop().create_task(self._shake_hands(link))
        self._silent[task] = link
        task.add_done_callback(self._forget)

    def _has_said_hello(self, link: TcpLink) -> None:
        """Move a handshake out of the places that silent strangers compete for."""
        if len(self._heard) >= self._strangers_max:
            _drop_oldest(self._heard)
        task = asyncio.current_task()
        assert task is not None
        self._silent.pop(task, None)
        self._heard[task] = link

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._silent.pop(task, None)
        self._heard.pop(task, None)

    async def _shake_hands(self, link: TcpLink) -> None:
        try:
            async with asyncio.timeout(self._hello_timeout):
                data = bytearray(HELLO_BYTES)
                await link.receive_into(memoryview(data))
            hello = decode_hello(data)
            if hello is None:
                return link.close()
            self._has_said_hello(link)
            status = await self._judge(hello, link)
            if status is Status.ACCEPTED and hello.purpose is Purpose.LINK:
                return await self._accept(link, hello)
            await self._reply(link, status)
            if status is Status.ACCEPTED:
                return self._begin_services(link, hello.sender)
            if status is not Status.ALIVE:
                _log.info("a link from client %d was not accepted: %s", hello.sender.client_id, status.name)
        except (ConnectionClosedError, TimeoutError):
            pass  # a stranger: a port scan, an idle connection, or a neighbour that failed meanwhile
        except asyncio.CancelledError:
            link.close()
            raise
        return link.close()

    def _begin_services(self, link: TcpLink, sender: LinkIdentity) -> None:
        assert self._welcome is not None
        service = TcpServiceLink(is_server=True)
        if len(self._services) >= self._services_to_sift:
            self._services = [other for other in self._services if not other.is_closed]
            self._services_to_sift = 2 * len(self._services) + _STRANGERS_MAX
        self._services.append(service)
        service.begin(link, self._welcome(service, sender))

    async def _judge(self, hello: Hello, link: TcpLink) -> Status:
        if (status := self._policy.judge(hello, link.certified_id)) is None:
            await self._wait_formed(link)
            status = self._policy.judge(hello, link.certified_id)
        assert status is not None
        return Status.ACCEPTED if status is Status.ALREADY_LINKED else status  # judged again in `_accept`

    async def _reply(self, link: TcpLink, status: Status) -> None:
        await link.send(Reply(status, self._policy.incarnation).encode())

    async def _accept(self, link: TcpLink, hello: Hello) -> None:
        """Accept a neighbour's link once the neighbour has confirmed the answer; another of its links may come first.

        Raises:
            TimeoutError: it has not confirmed this one, and has dialled again.
            ConnectionClosedError: the link ended.
        """
        seat = self._seats[hello.sender]
        async with seat.turn():
            status = self._policy.judge(hello)
            assert status is not None
            await self._reply(link, status)
            if status is not Status.ACCEPTED:
                _log.info("a second link of the left neighbour was not accepted")
                return link.close()
            await seat.confirm(link)
            self._policy.linked.add(hello.sender)
            return seat.accepted.set_result(link)

    async def _wait_formed(self, link: TcpLink) -> None:
        """Wait until the job has formed: the neighbour may have heard of that before this peer.

        Raises:
            ConnectionClosedError: the other side went before.
        """
        waits: list[asyncio.Future[Any]] = [self._formed, gone := asyncio.ensure_future(link.wait_closed())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
        if not self._formed.done():
            raise ConnectionClosedError("it went before the job had formed")


def _drop_oldest(handshakes: dict[asyncio.Task[None], TcpLink]) -> None:
    oldest, stranger = next(iter(handshakes.items()))
    del handshakes[oldest]  # several may come in one turn of the loop: each drops another one
    oldest.cancel()
    stranger.close()
