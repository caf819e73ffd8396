"""The in-memory network of a job within one event loop, for tests: no sockets or ports, and only the given delay.

It ships with the package, so that users can test what they build on bringup: peers over a `MemoryNetwork` behave as
peers over gRPC and TCP do, for one contract suite runs over both. Faults are context managers::

    network = MemoryNetwork()
    peers = [make_peer(network.peer(f"client-{client_id}:9000")) for client_id in range(8)]
    with network.refuse("client-3:9000"):  # as if its process had died
        ...
    with network.cut("client-5:9000"):  # as if its cable had been pulled
        ...
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from ..errors import ConfigurationError
from ..transport.addresses import Address
from ..transport.attempts import Trouble, TroubleKind
from ..transport.in_process import Pipe, Signal
from ..transport.ports import (
    Connection,
    ConnectionClosedError,
    DialReport,
    Link,
    LinkIdentity,
    LinkReport,
    ProbeOutcome,
    ProbeResult,
    ServiceReceiver,
    ServiceWelcome,
)
from ..transport.tcp.handshake import AcceptancePolicy, Hello, Purpose, Status
from .memory_streams import MemoryConnection, MemoryLink, MemoryServiceLink

_log = logging.getLogger("bringup")

_UNREAD_MESSAGES_MAX = 1024
_UNREAD_BYTES_MAX = 1024 * 1024
_STOP_GRACE = 0.5


class MemoryNetwork:
    """The network that the peers of one test share. Addresses are keys: no name is resolved, and every port is free.

    All of its peers must run on one event loop.
    """

    def __init__(self) -> None:
        self._servers: dict[Address, _Server] = {}
        self._listeners: dict[Address, _Listener] = {}
        self._changed = Signal()
        self._pipes: list[tuple[Address, Address, Pipe[Any]]] = []
        self._cut: list[Address] = []
        self._refused: list[Address] = []

    def peer(self, address: str, certified_id: int | None = None) -> PeerNetwork:
        """Return the `Network` of the peer on `address` (`host:port`), where it also accepts links.

        Args:
            address: of the peer.
            certified_id: the client id that a certificate of its would have; `None`: it needs no certificate.
        """
        return PeerNetwork(self, Address.parse(address), certified_id)

    @contextlib.contextmanager
    def cut(self, address: str) -> Iterator[None]:
        """Hold back all traffic of a peer, without an error on either side; it arrives once the cut ends."""
        with self._listed(self._cut, Address.parse(address)):
            yield

    def disconnect(self, one: str, other: str) -> None:
        """Break the connections and links between two peers; they can connect again at once."""
        ends = {Address.parse(one), Address.parse(other)}
        for first, second, pipe in self._pipes:
            if {first, second} == ends:
                pipe.break_off(f"the connection between {first} and {second} broke")

    @contextlib.contextmanager
    def refuse(self, address: str) -> Iterator[None]:
        """Break all connections and links of a peer, and refuse new ones, as if its process had died."""
        dead = Address.parse(address)
        with self._listed(self._refused, dead):
            for one, other, pipe in self._pipes:
                if dead in (one, other):
                    pipe.break_off(f"the connection between {one} and {other} broke")
            yield

    @contextlib.contextmanager
    def _listed(self, faults: list[Address], address: Address) -> Iterator[None]:
        faults.append(address)
        self._fire()
        try:
            yield
        finally:
            faults.remove(address)
            self._fire()

    def _fire(self) -> None:
        self._changed.fire()
        for _, _, pipe in self._pipes:
            pipe.changed.fire()

    def _flows(self, one: Address, other: Address) -> bool:
        return one == other or not (one in self._cut or other in self._cut)

    def _refusal(self, one: Address, other: Address, served: dict[Address, Any]) -> str | None:
        """Return why `one` cannot connect to `other` now."""
        if not self._flows(one, other):
            return "no answer"
        if other not in served or one in self._refused or other in self._refused:
            return "connection refused: nothing listens there"
        return None

    def _connect(self, one: Address, other: Address, limit: int) -> tuple[Pipe[Any], Pipe[Any]]:
        """Return a new pipe from `one` to `other`, and one back."""
        there: Pipe[Any] = Pipe(limit, lambda: self._flows(one, other))
        back: Pipe[Any] = Pipe(limit, lambda: self._flows(one, other))
        self._pipes = [entry for entry in self._pipes if not entry[2].is_over]
        self._pipes += [(one, other, there), (one, other, back)]
        return there, back


class PeerNetwork:
    """One peer's view of a `MemoryNetwork`: see `Network`."""

    def __init__(self, hub: MemoryNetwork, address: Address, certified_id: int | None) -> None:
        self._hub = hub
        self._address = address
        self._certified_id = certified_id

    async def serve_coordinator(
        self, address: Address, on_connection: Callable[[Connection], Awaitable[None]]
    ) -> _Server:
        """See `Network.serve_coordinator`."""
        if address in self._hub._servers:
            raise ConfigurationError(
                f"the coordinator cannot listen on {address}: the address is taken. Choose another."
            )
        server = self._hub._servers[address] = _Server(self._hub, address, on_connection)
        self._hub._fire()
        return server

    async def connect_coordinator(
        self, address: Address, report: DialReport, *, expected: bool = False
    ) -> tuple[Connection, str]:
        """See `Network.connect_coordinator`."""
        reported = ""
        while (reason := self._hub._refusal(self._address, address, self._hub._servers)) is not None:
            if expected and self._hub._flows(self._address, address):
                raise ConnectionClosedError(f"{address}: {reason}")
            if reason != reported:
                report(reported := reason)
            await self._hub._changed.wait()
        there, back = self._hub._connect(self._address, address, _UNREAD_MESSAGES_MAX)
        self._hub._servers[address].welcome(MemoryConnection(there, back, self._certified_id))
        return MemoryConnection(back, there), self._address.host

    async def serve_links(
        self, incarnation: int, welcome: ServiceWelcome | None = None, *, is_host: bool = False
    ) -> _Listener:
        """See `Network.serve_links`."""
        if self._address in self._hub._listeners:
            raise ConfigurationError(f"the ring listener cannot listen on {self._address}: the address is taken.")
        listener = self._hub._listeners[self._address] = _Listener(self._hub, self._address, incarnation, welcome)
        return listener

    async def connect_link(self, address: Address, own: LinkIdentity, right: LinkIdentity, report: LinkReport) -> Link:
        """See `Network.connect_link`."""
        listener, status = await self._find_listener(address, Hello(Purpose.LINK, own, right), report)
        if status is not Status.ACCEPTED:
            raise ConnectionClosedError(
                f"{address} refused the link from client {own.client_id} to client {right.client_id}: {status.name}"
            )
        there, back = self._hub._connect(self._address, address, _UNREAD_BYTES_MAX)
        listener.hand_over(own, MemoryLink(there, back))
        return MemoryLink(back, there)

    async def connect_services(
        self, address: Address, own: LinkIdentity, host: LinkIdentity, receiver: ServiceReceiver
    ) -> MemoryServiceLink:
        """See `Network.connect_services`."""
        listener, status = await self._await_listener(address, Hello(Purpose.SERVICES, own, host))
        if status is not Status.ACCEPTED:
            raise ConnectionClosedError(f"{address} refused services to client {own.client_id}: {status.name}")
        there, back = self._hub._connect(self._address, address, _UNREAD_BYTES_MAX)
        far = MemoryServiceLink(there, back, is_server=True)
        near = MemoryServiceLink(back, there, is_server=False)
        assert listener.welcome is not None
        far.begin(listener.welcome(far, own))
        near.begin(receiver)
        return near

    async def _find_listener(self, address: Address, hello: Hello, report: LinkReport) -> tuple[_Listener, Status]:
        """Return the listener on an address with its answer, however often that address refuses before."""
        last = ""
        while True:
            try:
                return await self._await_listener(address, hello)
            except ConnectionClosedError as error:
                if last != (last := str(error)):
                    report(Trouble(TroubleKind.REFUSED, last))
            await self._hub._changed.wait()

    async def _await_listener(self, address: Address, hello: Hello) -> tuple[_Listener, Status]:
        """Return the listener on an address with its answer, once it has one."""
        while True:
            if self._hub._flows(self._address, address):
                if (reason := self._hub._refusal(self._address, address, self._hub._listeners)) is not None:
                    raise ConnectionClosedError(f"{address}: {reason}")
                listener = self._hub._listeners[address]
                if (status := listener.policy.judge(hello, self._certified_id)) is not None:
                    return listener, status
            await self._hub._changed.wait()

    async def probe(self, address: Address, incarnation: int, timeout: float) -> ProbeResult:
        """See `Network.probe`."""
        reason = self._hub._refusal(self._address, address, self._hub._listeners)
        if not self._hub._flows(self._address, address):
            await asyncio.sleep(timeout)
            return ProbeResult(ProbeOutcome.SILENT, f"{address} does not answer: {reason}")
        if reason is not None:
            return ProbeResult(ProbeOutcome.REFUSED, f"its link port {address} refuses connections")
        if self._hub._listeners[address].policy.incarnation != incarnation:
            return ProbeResult(ProbeOutcome.REPLACED, f"another process answers on {address}")
        return ProbeResult(ProbeOutcome.ALIVE, f"the process on {address} answers")


class _Server:
    def __init__(
        self, hub: MemoryNetwork, address: Address, on_connection: Callable[[Connection], Awaitable[None]]
    ) -> None:
        self._hub = hub
        self._address = address
        self._on_connection = on_connection
        self._tasks: set[asyncio.Task[None]] = set()

    def welcome(self, connection: Connection) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: Connection) -> None:
        try:
            await self._on_connection(connection)
        except Exception:  # noqa: BLE001 - as the real server does: the connection ends, the server goes on
            _log.exception("a connection of the coordinator failed")
        finally:
            await connection.close()

    async def close(self) -> None:
        if self._hub._servers.get(self._address) is self:
            del self._hub._servers[self._address]
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_STOP_GRACE)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class _Listener:
    def __init__(self, hub: MemoryNetwork, address: Address, incarnation: int, welcome: ServiceWelcome | None) -> None:
        self.policy = AcceptancePolicy(incarnation, has_services=welcome is not None)
        self.welcome = welcome
        self.port = address.port
        self._hub = hub
        self._address = address
        self._accepted: dict[LinkIdentity, Link] = {}

    def hand_over(self, sender: LinkIdentity, link: Link) -> None:
        self._accepted[sender] = link
        self.policy.linked.add(sender)
        self._hub._fire()

    async def accept(self, own: LinkIdentity, left: LinkIdentity, *others: LinkIdentity) -> Link:
        self.policy.expect(own, left, *others)
        self._hub._fire()
        while left not in self._accepted:
            if self._hub._listeners.get(self._address) is not self:
                raise ConnectionClosedError(f"the listener on {self._address} was closed")
            await self._hub._changed.wait()
        return self._accepted[left]

    async def close(self) -> None:
        if self._hub._listeners.get(self._address) is self:
            del self._hub._listeners[self._address]
            self._hub._fire()
        for link in self._accepted.values():
            link.close()
