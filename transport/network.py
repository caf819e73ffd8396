"""The network of a real job: connections over gRPC, links over TCP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from .addresses import Address
from .grpc.connection import GrpcServer, open_connection
from .ports import (
    Connection,
    DialReport,
    ServiceWelcome,
)
from .tcp.connector import LinkConnector
from .tcp.interfaces import bind_hosts
from .tcp.listener import TcpLinkListener


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcNetwork(LinkConnector):
    """See `Network`.

    Attributes:
        own: this client's address in the job, or `None` where only the coordinator's is known.
        loopback: whether the whole job is on this machine.
        bind_address: what to listen on, or `None` for the default of `interfaces.bind_hosts`.
        ring_port: where to listen for links, 0 for any free port.
    """

    own: Address | None
    loopback: bool
    bind_address: str | None = None
    ring_port: int = 0

    async def serve_coordinator(
        self, address: Address, on_connection: Callable[[Connection], Awaitable[None]]
    ) -> GrpcServer:
        """See `Network.serve_coordinator`."""
        server = GrpcServer(on_connection, self.num_clients)
        await server.listen(bind_hosts(self.bind_address, self.loopback, address), address.port, self.credentials)
        return server

    async def connect_coordinator(
        self, address: Address, report: DialReport, *, expected: bool = False
    ) -> tuple[Connection, str]:
        """See `Network.connect_coordinator`."""
        return await open_connection(
            self.names, address, self.credentials, report, expected=expected, num_clients=self.num_clients
        )

    async def serve_links(
        self, incarnation: int, welcome: ServiceWelcome | None = None, *, is_host: bool = False
    ) -> TcpLinkListener:
        """See `Network.serve_links`."""
        listener = TcpLinkListener(incarnation, self.patience, welcome, self.num_clients if is_host else 0)
        hosts = bind_hosts(self.bind_address, self.loopback, self.own)
        await listener.listen(hosts, self.ring_port, self.credentials)
        return listener
