"""The connecting side of links: to a neighbour, to the services, and probes of a suspect."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass, field

from ...errors import AuthenticationError
from ..addresses import Address
from ..attempts import Goal, Trouble, TroubleKind
from ..credentials import INSECURE, Credentials
from ..crowds import crowd_timeout
from ..dial import DialError, open_any, reach, trouble_of
from ..names import Names
from ..ports import (
    ConnectionClosedError,
    Link,
    LinkIdentity,
    LinkReport,
    ProbeOutcome,
    ProbeResult,
    ServiceLink,
    ServiceReceiver,
)
from ..security.terms import Terms
from .handshake import CONFIRMATION, HELLO_TIMEOUT, REPLY_BYTES, Hello, Purpose, Reply, Status, decode_reply
from .link import TcpLink
from .service_link import TcpServiceLink
from .tls import protocol_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkConnector:
    """Connects to the listeners of other peers: the half of `Network` that is TCP.

    Attributes:
        names: those that were looked up.
        credentials: for all connections, opened or accepted.
        patience: seconds for which a link outlives a network that swallows everything.
        num_clients: of the job: those that may come to one host at once.
    """

    names: Names = field(default_factory=Names)
    credentials: Credentials = INSECURE
    patience: float = 10.0
    num_clients: int = 1

    async def connect_link(self, address: Address, own: LinkIdentity, right: LinkIdentity, report: LinkReport) -> Link:
        """See `Network.connect_link`."""

        async def attempt() -> TcpLink:
            link, reply = await self._exchange(address, Hello(Purpose.LINK, own, right), None, self.patience)
            if reply.status is not Status.ACCEPTED:
                link.close()
                said = f"link port {address} refused the link from client {own.client_id} to client {right.client_id}"
                raise DialError(Trouble(TroubleKind.DENIED, f"{said}: {reply.status.name}"))
            # An answer that is lost leaves the neighbour waiting for another attempt, and not with half a link.
            await link.send(CONFIRMATION)
            return link

        def report_where(trouble: Trouble) -> None:
            report(Trouble(trouble.kind, f"link port {address} cannot be reached: {trouble.text}"))

        try:
            return await reach(Goal.LINK, attempt, report_where)
        except DialError as error:
            if error.trouble.kind is TroubleKind.UNTRUSTED:
                raise AuthenticationError(f"link port {address}: {error}") from None
            raise ConnectionClosedError(str(error)) from None

    async def connect_services(
        self, address: Address, own: LinkIdentity, host: LinkIdentity, receiver: ServiceReceiver
    ) -> ServiceLink:
        """See `Network.connect_services`."""
        hello = Hello(Purpose.SERVICES, own, host)
        timeout = crowd_timeout(HELLO_TIMEOUT, self.num_clients)
        try:
            link, reply = await self._exchange(address, hello, timeout, self.patience)
        except (OSError, DialError) as error:
            raise ConnectionClosedError(f"link port {address} cannot be reached: {trouble_of(error).text}") from None
        if reply.status is Status.ACCEPTED:
            service = TcpServiceLink(is_server=False)
            service.begin(link, receiver)
            return service
        link.close()
        raise ConnectionClosedError(
            f"link port {address} refused services to client {own.client_id}: {reply.status.name}"
        )

    async def probe(self, address: Address, incarnation: int, timeout: float) -> ProbeResult:
        """See `Network.probe`."""
        nobody = LinkIdentity("0" * 32, 0, 0, 0)
        hello = Hello(Purpose.PROBE, nobody, LinkIdentity("0" * 32, 0, 0, incarnation))
        reasons = ["timed out"]
        try:
            async with asyncio.timeout(timeout):
                # A process that is dying accepts and resets; the next answer is clearer.
                link, reply = await reach(
                    Goal.PROBE,
                    lambda: self._exchange(address, hello, timeout, timeout),
                    lambda trouble: reasons.append(trouble.text),
                )
        except DialError as error:
            if error.trouble.kind is TroubleKind.UNTRUSTED:
                return ProbeResult(ProbeOutcome.SILENT, f"its link port {address} does not answer: {error}")
            return ProbeResult(ProbeOutcome.REFUSED, f"its link port {address} refuses connections")
        except TimeoutError:
            return ProbeResult(ProbeOutcome.SILENT, f"its link port {address} does not answer: {reasons[-1]}")
        link.close()
        if reply.incarnation != incarnation:
            return ProbeResult(ProbeOutcome.REPLACED, f"another process answers on its link port {address}")
        return ProbeResult(ProbeOutcome.ALIVE, f"the process on its link port {address} answers")

    async def _exchange(
        self, address: Address, hello: Hello, timeout: float | None, patience: float
    ) -> tuple[TcpLink, Reply]:
        """Connect to `address`, say `hello`, and return the link with the answer to it."""
        sock, endpoint = await open_any(self.names, address)
        link = await _link_over(sock, self.credentials.terms(is_server=False), patience)
        try:
            await link.send(hello.encode())
            data = bytearray(REPLY_BYTES)
            async with asyncio.timeout(timeout):
                await link.receive_into(memoryview(data))
            reply = decode_reply(data)
            if reply is None:
                raise ConnectionClosedError(f"whoever listens on {address} does not speak this protocol")
            if hello.purpose is not Purpose.PROBE:
                _check_identity(link, address, hello.receiver.client_id)
        except ConnectionClosedError:
            link.close()
            if link.refusal:
                raise DialError(Trouble(TroubleKind.UNTRUSTED, link.refusal)) from None
            raise
        except BaseException:
            link.close()
            raise
        self.names.worked(address, endpoint)
        return link, reply


async def _link_over(sock: socket.socket, terms: Terms | None, patience: float) -> TcpLink:
    loop = asyncio.get_running_loop()
    link = TcpLink(patience=patience)
    try:
        await loop.create_connection(lambda: protocol_of(link, terms, is_server=False), sock=sock)
    except BaseException:
        if not isinstance(loop, asyncio.BaseEventLoop):
            # uvloop before 0.23 closes the descriptor, and lets Python close it again, whosever it is by then.
            sock.detach()
        raise
    return link


def _check_identity(link: TcpLink, address: Address, client_id: int) -> None:
    if link.certified_id not in (None, client_id):
        found = f"the certificate there is that of client {link.certified_id}, and not of client {client_id}"
        raise DialError(Trouble(TroubleKind.DENIED, f"link port {address} is not the right one: {found}"))
