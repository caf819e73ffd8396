"""Where links begin: the listener of a peer, the connection to a neighbour, and the probe of a suspect."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from typing import Any

from .addresses import Address
from .credentials import Credentials
from .dial import describe, lookup, open_socket
from .hello import HELLO_BYTES, REPLY_BYTES, Hello, Purpose, Reply, Status, decode_hello, decode_reply
from .link import TcpLink
from .listening import bind_all
from .ports import (
    ChannelClosedError,
    Link,
    LinkIdentity,
    ProbeOutcome,
    ProbeResult,
    ServiceLink,
    ServiceReceiver,
    ServiceWelcome,
)
from .service_link import TcpServiceLink

__all__ = ["TcpLinkListener", "connect_link", "connect_services", "probe"]

_log = logging.getLogger(__name__)

HELLO_TIMEOUT = 5.0
"""Seconds that a new connection has to say who it is, and a neighbour to answer."""

_STRANGERS_MAX = 64
_VISITORS_MAX = 1024
"""On client 0, where all clients of a large job may come for the services in the same moment."""

_BACKLOG = 4096
_PROBE_RETRY_DELAY = 0.005


class TcpLinkListener:
    """Listens for the left neighbour's link, and tells anybody who asks which incarnation this is."""

    def __init__(self, incarnation: int, patience: float, welcome: ServiceWelcome | None = None) -> None:
        self._incarnation = incarnation
        self._patience = patience
        self._welcome = welcome
        self._strangers_max = _STRANGERS_MAX if welcome is None else _VISITORS_MAX
        self._services: list[TcpServiceLink] = []
        self._services_to_sift = _STRANGERS_MAX
        self._servers: list[asyncio.Server] = []
        self._handshakes: dict[asyncio.Task[None], TcpLink] = {}
        self._expected: asyncio.Future[tuple[LinkIdentity, LinkIdentity]] = asyncio.get_running_loop().create_future()
        self._accepted: asyncio.Future[Link] = asyncio.get_running_loop().create_future()
        self._is_closed = False
        self.port = 0

    async def listen(self, hosts: list[str], port: int, context: ssl.SSLContext | None) -> None:
        """Listen on `port` of each of `hosts`; port 0 takes any that is free on all of them.

        Raises:
            ConfigurationError: the port is taken; names it and its holder.
        """
        for sock in bind_all(hosts, port, "the ring listener (ring_port)"):
            server = await asyncio.get_running_loop().create_server(
                lambda: TcpLink(self._greet, self._patience), sock=sock, backlog=_BACKLOG, ssl=context
            )
            self._servers.append(server)
            self.port = sock.getsockname()[1]

    async def accept(self, own: LinkIdentity, left: LinkIdentity) -> Link:
        """See `LinkListener.accept`."""
        assert not self._expected.done(), "a listener accepts one left neighbour"
        self._expected.set_result((own, left))
        return await self._accepted

    async def close(self) -> None:
        """See `LinkListener.close`. The link that was accepted ends, too."""
        self._is_closed = True
        for server in self._servers:
            server.close()
        self._servers.clear()
        for task, link in list(self._handshakes.items()):
            task.cancel()
            link.close()
        await asyncio.gather(*self._handshakes, return_exceptions=True)
        for service in self._services:
            service.close()
        if self._accepted.done() and not self._accepted.cancelled():
            self._accepted.result().close()
        for waiter in (self._expected, self._accepted):
            waiter.cancel()

    def _greet(self, link: TcpLink) -> None:
        if self._is_closed:  # it was in the kernel's queue
            link.close()
            return
        if len(self._handshakes) >= self._strangers_max:
            oldest, stranger = next(iter(self._handshakes.items()))
            del self._handshakes[oldest]  # several may come in one turn of the loop: each drops another one
            oldest.cancel()
            stranger.close()
        task = asyncio.get_running_loop().create_task(self._shake_hands(link))
        self._handshakes[task] = link
        task.add_done_callback(lambda done: self._handshakes.pop(done, None))

    async def _shake_hands(self, link: TcpLink) -> None:
        try:
            async with asyncio.timeout(HELLO_TIMEOUT):
                data = bytearray(HELLO_BYTES)
                await link.receive_into(memoryview(data))
            hello = decode_hello(data)
            if hello is None:
                return link.close()
            status = await self._judge(hello, link)
            await link.send(Reply(status, self._incarnation).encode())
            if status is Status.ACCEPTED and hello.purpose is Purpose.SERVICES:
                return self._begin_services(link, hello.sender)
            if status is Status.ACCEPTED and not self._accepted.done():
                self._accepted.set_result(link)
                return None
            if status is not Status.ALIVE:
                _log.info("a link from client %d was not accepted: %s", hello.sender.client_id, status.name)
        except (ChannelClosedError, TimeoutError):
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
        if hello.purpose is Purpose.PROBE:
            return Status.ALIVE
        if not self._expected.done():
            await self._formed(link)
        status = hello.judge(*self._expected.result())
        if hello.purpose is Purpose.SERVICES:
            return Status.NO_SERVICES if status is Status.ACCEPTED and self._welcome is None else status
        return Status.ALREADY_LINKED if status is Status.ACCEPTED and self._accepted.done() else status

    async def _formed(self, link: TcpLink) -> None:
        """Wait until it is known who may come: the neighbour may have heard that the job has formed before this peer.

        Raises:
            ChannelClosedError: the other side went before.
        """
        waits: list[asyncio.Future[Any]] = [self._expected, gone := asyncio.ensure_future(link.wait_closed())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
        if not self._expected.done():
            raise ChannelClosedError("it went before the job had formed")


async def connect_link(
    address: Address, own: LinkIdentity, right: LinkIdentity, credentials: Credentials, patience: float
) -> Link:
    """See `Network.connect_link`; `patience` as for `TcpLink`."""
    try:
        link, reply = await _exchange(address, Hello(Purpose.LINK, own, right), credentials, None, patience)
    except OSError as error:
        raise ChannelClosedError(f"{address} cannot be reached: {describe(error)}") from None
    if reply.status is Status.ACCEPTED:
        return link
    link.close()
    raise ChannelClosedError(
        f"{address} refused the link from client {own.client_id} to client {right.client_id}: {reply.status.name}"
    )


async def connect_services(
    address: Address,
    own: LinkIdentity,
    host: LinkIdentity,
    receiver: ServiceReceiver,
    credentials: Credentials,
    patience: float,
) -> ServiceLink:
    """See `Network.connect_services`; `patience` as for `TcpLink`."""
    try:
        link, reply = await _exchange(address, Hello(Purpose.SERVICES, own, host), credentials, HELLO_TIMEOUT, patience)
    except OSError as error:
        raise ChannelClosedError(f"{address} cannot be reached: {describe(error)}") from None
    if reply.status is Status.ACCEPTED:
        service = TcpServiceLink(is_server=False)
        service.begin(link, receiver)
        return service
    link.close()
    raise ChannelClosedError(f"{address} refused services to client {own.client_id}: {reply.status.name}")


async def probe(address: Address, incarnation: int, timeout: float, credentials: Credentials) -> ProbeResult:
    """See `Network.probe`."""
    nobody = LinkIdentity("0" * 32, 0, 0, 0)
    hello = Hello(Purpose.PROBE, nobody, LinkIdentity("0" * 32, 0, 0, incarnation))
    reason = "timed out"
    try:
        async with asyncio.timeout(timeout):
            while True:
                try:
                    link, reply = await _exchange(address, hello, credentials, timeout, timeout)
                    break
                except (ConnectionResetError, ChannelClosedError) as error:
                    # A process that is dying accepts and resets; the next answer is clearer.
                    reason = str(error)
                    await asyncio.sleep(_PROBE_RETRY_DELAY)
    except ConnectionRefusedError:
        return ProbeResult(ProbeOutcome.REFUSED, f"{address} refuses connections")
    except OSError as error:  # TimeoutError is one
        return ProbeResult(ProbeOutcome.SILENT, f"{address} does not answer: {error or reason}")
    link.close()
    if reply.incarnation != incarnation:
        return ProbeResult(ProbeOutcome.REPLACED, f"another process answers on {address}")
    return ProbeResult(ProbeOutcome.ALIVE, f"the process on {address} answers")


async def _exchange(
    address: Address, hello: Hello, credentials: Credentials, timeout: float | None, patience: float
) -> tuple[TcpLink, Reply]:
    """Connect to `address`, say `hello`, and return the link with the answer to it."""
    link = await _connect(address, credentials.link_client, patience)
    try:
        await link.send(hello.encode())
        data = bytearray(REPLY_BYTES)
        async with asyncio.timeout(timeout):
            await link.receive_into(memoryview(data))
        reply = decode_reply(data)
        if reply is None:
            raise ChannelClosedError(f"whoever listens on {address} does not speak this protocol")
    except BaseException:
        link.close()
        raise
    return link, reply


async def _connect(address: Address, context: ssl.SSLContext | None, patience: float) -> TcpLink:
    failure: OSError | None = None
    for endpoint in await lookup(address):
        try:
            return await _link_over(await open_socket(endpoint), context, patience)
        except OSError as error:
            failure = failure or error
    raise failure or OSError(f"{address} resolves to no address")


async def _link_over(sock: socket.socket, context: ssl.SSLContext | None, patience: float) -> TcpLink:
    loop = asyncio.get_running_loop()
    try:
        _, link = await loop.create_connection(
            lambda: TcpLink(patience=patience),
            sock=sock,
            ssl=context,
            server_hostname="" if context is not None else None,
        )
    except BaseException:
        if not isinstance(loop, asyncio.BaseEventLoop):
            # uvloop before 0.23 closes the descriptor, and lets Python close it again, whosever it is by then.
            sock.detach()
        raise
    return link
