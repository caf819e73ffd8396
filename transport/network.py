"""The network of a real job: sessions over gRPC, links over TCP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from . import links
from .addresses import Address
from .control import GrpcServer, connect_session
from .credentials import INSECURE, Credentials
from .links import TcpLinkListener
from .listening import bind_hosts
from .ports import DialReport, Link, LinkIdentity, ProbeResult, Session

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
    """

    own: Address | None
    loopback: bool
    bind_address: str | None = None
    ring_port: int = 0
    credentials: Credentials = INSECURE

    async def serve_coordinator(self, address: Address, on_session: Callable[[Session], Awaitable[None]]) -> GrpcServer:
        """See `Network.serve_coordinator`."""
        server = GrpcServer(on_session)
        await server.listen(bind_hosts(self.bind_address, self.loopback, address), address.port, self.credentials)
        return server

    async def connect_coordinator(self, address: Address, report: DialReport) -> tuple[Session, str]:
        """See `Network.connect_coordinator`."""
        return await connect_session(address, self.credentials, report)

    async def serve_links(self, incarnation: int) -> TcpLinkListener:
        """See `Network.serve_links`."""
        listener = TcpLinkListener(incarnation)
        hosts = bind_hosts(self.bind_address, self.loopback, self.own)
        await listener.listen(hosts, self.ring_port, self.credentials.link_server)
        return listener

    async def connect_link(self, address: Address, own: LinkIdentity, right: LinkIdentity) -> Link:
        """See `Network.connect_link`."""
        return await links.connect_link(address, own, right, self.credentials)

    async def probe(self, address: Address, incarnation: int, timeout: float) -> ProbeResult:
        """See `Network.probe`."""
        return await links.probe(address, incarnation, timeout, self.credentials)
