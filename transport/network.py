"""The network of a real job: connections over gRPC, links over TCP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from . import links
from .addresses import Address
from .control import GrpcServer, open_connection
from .credentials import INSECURE, Credentials
from .links import TcpLinkListener
from .listening import bind_hosts
from .ports import (
    Connection,
    DialReport,
    Link,
    LinkIdentity,
    ProbeResult,
    ServiceLink,
    ServiceReceiver,
    ServiceWelcome,
)

__all__ = ["GrpcNetwork"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcNetwork:
    """See `Network`.

    Attributes:
        own: this client's address in the job, or `None` where only the coordinator's is known.
        loopback: whether the whole job is on this machine.
        bind_address: what to listen on, or `None` for the default of `listening.bind_hosts`.
        ring_port: where to listen for links, 0 for any free port.
        credentials: for everything that is opened and accepted.
        patience: seconds for which a link outlives a network that swallows everything.
    """

    own: Address | None
    loopback: bool
    bind_address: str | None = None
    ring_port: int = 0
    credentials: Credentials = INSECURE
    patience: float = 10.0

    async def serve_coordinator(
        self, address: Address, on_connection: Callable[[Connection], Awaitable[None]]
    ) -> GrpcServer:
        """See `Network.serve_coordinator`."""
        server = GrpcServer(on_connection)
        await server.listen(bind_hosts(self.bind_address, self.loopback, address), address.port, self.credentials)
        return server

    async def connect_coordinator(
        self, address: Address, report: DialReport, *, expected: bool = False
    ) -> tuple[Connection, str]:
        """See `Network.connect_coordinator`."""
        return await open_connection(address, self.credentials, report, expected=expected)

    async def serve_links(self, incarnation: int, welcome: ServiceWelcome | None = None) -> TcpLinkListener:
        """See `Network.serve_links`."""
        listener = TcpLinkListener(incarnation, self.patience, welcome)
        hosts = bind_hosts(self.bind_address, self.loopback, self.own)
        await listener.listen(hosts, self.ring_port, self.credentials.link_server)
        return listener

    async def connect_link(self, address: Address, own: LinkIdentity, right: LinkIdentity) -> Link:
        """See `Network.connect_link`."""
        return await links.connect_link(address, own, right, self.credentials, self.patience)

    async def connect_services(
        self, address: Address, own: LinkIdentity, host: LinkIdentity, receiver: ServiceReceiver
    ) -> ServiceLink:
        """See `Network.connect_services`."""
        return await links.connect_services(address, own, host, receiver, self.credentials, self.patience)

    async def probe(self, address: Address, incarnation: int, timeout: float) -> ProbeResult:
        """See `Network.probe`."""
        return await links.probe(address, incarnation, timeout, self.credentials)
