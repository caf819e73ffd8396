"""Credentials of a peer, for gRPC and for links."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from .addresses import Address
from .grpc.settings import grpc
from .names import Endpoint
from .security.key_files import KeyFiles
from .security.terms import Terms
from .security.token import Token

ChannelOptions = Sequence[tuple[str, int | str]]


class Credentials(Protocol):
    """The credentials with which one peer shows who it is, and by which it knows the others."""

    def add_port(self, server: grpc.aio.Server, target: str) -> None:
        """Add `target` to the addresses on which `server`, of the coordinator, listens."""
        ...

    def open_channel(self, target: str, options: ChannelOptions, address: Address) -> grpc.aio.Channel:
        """Return a channel to `target`, an endpoint of the coordinator's `address`."""
        ...

    async def refusal_at(self, endpoint: Endpoint, address: Address, *, is_needed: bool) -> str:
        """Return why the two sides do not trust each other, after a look at the coordinator; nothing where they may.

        Args:
            endpoint: that is asked.
            address: of the coordinator.
            is_needed: whether a channel could not be opened; otherwise it is asked only where gRPC checks too little.
        """
        ...

    def caller(self, context: Mapping[str, Iterable[bytes]]) -> int | None:
        """Return the client id in the certificate of a call, which has this authentication context.

        Raises:
            RefusedError: the certificate is not to be accepted, as the text says.
        """
        ...

    def terms(self, *, is_server: bool) -> Terms | None:
        """Return the terms for the next link, accepted or opened; `None` means plain TCP."""
        ...


class _Plain:
    """No credentials."""

    def add_port(self, server: grpc.aio.Server, target: str) -> None:
        server.add_insecure_port(target)

    def open_channel(self, target: str, options: ChannelOptions, address: Address) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(target, options=options)

    async def refusal_at(self, endpoint: Endpoint, address: Address, *, is_needed: bool) -> str:
        if not is_needed:
            return ""
        from .security.diagnosis import wants_tls

        if not await wants_tls(endpoint):
            return ""
        return "it speaks TLS, and this client does not (insecure=True): give it the token of the job, or its key files"

    def caller(self, context: Mapping[str, Iterable[bytes]]) -> None:
        return None

    def terms(self, *, is_server: bool) -> None:
        return None


INSECURE: Credentials = _Plain()
"""Plain TCP: for networks that the user vouches for."""


def credentials_of(security: Token | KeyFiles | None, client_id: int | None, source: str = "") -> Credentials:
    """Return the credentials of one client.

    Args:
        security: the token of the job, or the files of the user's own PKI; `None`: plain TCP.
        client_id: of the client; `None` for one that looks at a job and is no client of it.
        source: the place that the token comes from, for error texts.

    Raises:
        ConfigurationError: the files cannot be used; names the file, and says why.
    """
    if security is None:
        return INSECURE
    # The modules take some 40 ms to load, which plain TCP has no use for.
    from .security.tls_credentials import TlsCredentials

    if isinstance(security, Token):
        from .security.keys import TokenKeys

        return TlsCredentials(TokenKeys(security, client_id, source))
    from .security.file_keys import FileKeys

    return TlsCredentials(FileKeys(security))
