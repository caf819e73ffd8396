"""The networks that the contract suites run over: one place for each adapter, on each kind of event loop."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Protocol, TypeVar

import uvloop

from bringup.testing import MemoryNetwork
from bringup.transport.addresses import Address
from bringup.transport.credentials import INSECURE, Credentials, credentials_of
from bringup.transport.network import GrpcNetwork
from bringup.transport.ports import Link, LinkIdentity, LinkListener, Network
from bringup.transport.security.token import Token
from bringup.transport.tcp.interfaces import free_ports

from .proxy import Proxy

DEADLINE = 20.0
JOB_ID = "0123456789abcdef" * 2

T = TypeVar("T")


LoopFactory = Callable[[], asyncio.AbstractEventLoop]

Serve = Callable[[int], Awaitable[LinkListener]]
"""Begins to listen for links, given an incarnation."""


def quietly(trouble: object) -> None:
    """Take a report, and do nothing."""


class Place(Protocol):
    """A fresh network for one test, made within its event loop.

    Attributes:
        coordinator: where the coordinator is to listen.
    """

    coordinator: Address

    def peer(self, client_id: int) -> Network:
        """Return the network of one peer."""
        ...

    def link_address(self, client_id: int, listener: LinkListener) -> Address:
        """Return where others reach a listener."""
        ...

    def entrance(self) -> contextlib.AbstractAsyncContextManager[tuple[Address, Callable[[], None]]]:
        """Return an address at which the coordinator is reached, and what breaks all connections made through it."""
        ...

    def detour(self, client_id: int) -> contextlib.AbstractAsyncContextManager[tuple[Address, Callable[[], None]]]:
        """Return an address at which one client reaches the coordinator, and what breaks its connection with it."""
        ...

    def refusing_link_address(self, client_id: int) -> contextlib.AbstractAsyncContextManager[tuple[Address, Serve]]:
        """Return an address for links that refuses, and what begins to listen there."""
        ...

    def silent_listener(self) -> contextlib.AbstractAsyncContextManager[Address]:
        """Return an address at which connections are accepted and never answered."""
        ...


class MemoryPlace:
    """`MemoryNetwork`."""

    def __init__(self) -> None:
        self.hub = MemoryNetwork()
        self.coordinator = Address("host-0", 9000)

    def peer(self, client_id: int) -> Network:
        return self.hub.peer(f"host-{client_id}:9000", client_id)

    def link_address(self, client_id: int, listener: LinkListener) -> Address:
        return Address(f"host-{client_id}", listener.port)

    @contextlib.asynccontextmanager
    async def entrance(self) -> AsyncIterator[tuple[Address, Callable[[], None]]]:
        with contextlib.ExitStack() as faults:
            yield self.coordinator, lambda: faults.enter_context(self.hub.refuse(str(self.coordinator)))

    @contextlib.asynccontextmanager
    async def detour(self, client_id: int) -> AsyncIterator[tuple[Address, Callable[[], None]]]:
        yield self.coordinator, lambda: self.hub.disconnect(f"host-{client_id}:9000", str(self.coordinator))

    @contextlib.asynccontextmanager
    async def refusing_link_address(self, client_id: int) -> AsyncIterator[tuple[Address, Serve]]:
        yield Address(f"host-{client_id}", 9000), self.peer(client_id).serve_links

    @contextlib.asynccontextmanager
    async def silent_listener(self) -> AsyncIterator[Address]:
        with self.hub.cut("host-99:9000"):
            yield Address("host-99", 9000)


class SocketPlace:
    """`GrpcNetwork` on loopback."""

    def __init__(self) -> None:
        self.coordinator = Address("127.0.0.1", free_ports(1)[0])

    def credentials(self, client_id: int) -> Credentials:
        """Return the credentials of a peer."""
        return INSECURE

    def peer(self, client_id: int) -> Network:
        return GrpcNetwork(own=None, loopback=True, credentials=self.credentials(client_id))

    def link_address(self, client_id: int, listener: LinkListener) -> Address:
        return Address("127.0.0.1", listener.port)

    @contextlib.asynccontextmanager
    async def entrance(self) -> AsyncIterator[tuple[Address, Callable[[], None]]]:
        async with Proxy(self.coordinator.port) as proxy:
            yield Address("127.0.0.1", proxy.port), proxy.break_all

    @contextlib.asynccontextmanager
    async def detour(self, client_id: int) -> AsyncIterator[tuple[Address, Callable[[], None]]]:
        async with self.entrance() as way:
            yield way

    @contextlib.asynccontextmanager
    async def refusing_link_address(self, client_id: int) -> AsyncIterator[tuple[Address, Serve]]:
        port = free_ports(1)[0]
        yield (
            Address("127.0.0.1", port),
            GrpcNetwork(own=None, loopback=True, ring_port=port, credentials=self.credentials(client_id)).serve_links,
        )

    @contextlib.asynccontextmanager
    async def silent_listener(self) -> AsyncIterator[Address]:
        held: list[asyncio.StreamWriter] = []
        server = await asyncio.start_server(lambda _, writer: held.append(writer), "127.0.0.1", 0)
        try:
            yield Address("127.0.0.1", server.sockets[0].getsockname()[1])
        finally:
            server.close()
            for writer in held:
                writer.close()


TOKEN = Token(bytes(range(32)))


class SecurePlace(SocketPlace):
    """`GrpcNetwork` on loopback, under TLS of one token."""

    def credentials(self, client_id: int) -> Credentials:
        return credentials_of(TOKEN, client_id)


PLACES: dict[str, tuple[type[MemoryPlace | SocketPlace], LoopFactory]] = {
    "memory": (MemoryPlace, asyncio.new_event_loop),
    "sockets": (SocketPlace, asyncio.new_event_loop),
    "sockets-uvloop": (SocketPlace, uvloop.new_event_loop),
    "tls": (SecurePlace, asyncio.new_event_loop),
    "tls-uvloop": (SecurePlace, uvloop.new_event_loop),
}
"""The places that a test with the fixture `place` runs in; the mark `places` names some of them."""

_kinds: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, type[MemoryPlace | SocketPlace]]
_kinds = weakref.WeakKeyDictionary()


def loop_factories(names: Iterable[str]) -> dict[str, LoopFactory]:
    """Return what makes an event loop for each of these places."""

    def factory(name: str) -> LoopFactory:
        kind, make = PLACES[name]

        def do() -> asyncio.AbstractEventLoop:
            loop = make()
            _kinds[loop] = kind
            return loop

        return do

    return {name: factory(name) for name in names}


def place_of_running_loop() -> MemoryPlace | SocketPlace:
    """Return a fresh place of the kind that the running event loop was made for."""
    return _kinds[asyncio.get_running_loop()]()


def identity(client_id: int, *, job_id: str = JOB_ID, epoch: int = 1, incarnation: int | None = None) -> LinkIdentity:
    """Return the identity of a client; its incarnation is 1000 and its id, unless said otherwise."""
    return LinkIdentity(job_id, epoch, client_id, 1000 + client_id if incarnation is None else incarnation)


@contextlib.asynccontextmanager
async def links_of(
    place: Place, neighbours: Sequence[Sequence[tuple[int, int]]]
) -> AsyncIterator[list[list[tuple[Link, Link]]]]:
    """Yield the links of each client with its neighbours: from the left and to the right one, of each ring it is in."""
    size = len(neighbours)
    peers = [place.peer(client_id) for client_id in range(size)]
    listeners = [await peer.serve_links(1000 + client_id) for client_id, peer in enumerate(peers)]
    links: list[list[tuple[Link, Link]]] = []

    async def connect(own: int, left: int, right: int) -> tuple[Link, Link]:
        others = [identity(other) for other, _ in neighbours[own] if other != left]
        accepting = asyncio.ensure_future(listeners[own].accept(identity(own), identity(left), *others))
        address = place.link_address(right, listeners[right])
        outgoing = await peers[own].connect_link(address, identity(own), identity(right), quietly)
        return await accepting, outgoing

    try:
        async with asyncio.TaskGroup() as group:
            connecting = [
                [group.create_task(connect(own, left, right)) for left, right in pairs]
                for own, pairs in enumerate(neighbours)
            ]
        links += [[task.result() for task in tasks] for tasks in connecting]
        yield links
    finally:
        for pairs in links:
            for link in itertools.chain(*pairs):
                link.close()
        for listener in listeners:
            await listener.close()


@contextlib.asynccontextmanager
async def ring_of_links(place: Place, size: int) -> AsyncIterator[list[tuple[Link, Link]]]:
    """Yield the incoming and the outgoing link of each of `size` peers in a ring."""
    neighbours = [[((own - 1) % size, (own + 1) % size)] for own in range(size)]
    async with links_of(place, neighbours) as links:
        yield [pairs[0] for pairs in links]
