"""Credentials of a peer, for gRPC and for links."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .grpc.settings import grpc
from .security.key_files import KeyFiles
from .security.terms import Terms
from .security.token import Token

ChannelOptions = Sequence[tuple[str, int | str]]


class Credentials(Protocol):
    """The credentials with which one peer shows who it is, and by which it knows the others."""

    def add_port(self, server: grpc.aio.Server, target: str) -> None:
        """Add `target` to the addresses on which `server`, of the coordinator, listens."""
        ...

    def open_channel(self, target: str, options: ChannelOptions) -> grpc.aio.Channel:
        """Return a channel to the coordinator at `target`."""
        ...

    def terms(self, *, is_server: bool) -> Terms | None:
        """Return the terms for the next link, accepted or opened; `None` means plain TCP."""
        ...


class _Plain:
    """No credentials."""

    def add_port(self, server: grpc.aio.Server, target: str) -> None:
        server.add_insecure_port(target)

    def open_channel(self, target: str, options: ChannelOptions) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(target, options=options)

    def terms(self, *, is_server: bool) -> None:
        return None


INSECURE: Credentials = _Plain()
"""Plain TCP: for networks that the user vouches for."""


def credentials_of(security: Token | KeyFiles | None, client_id: int | None) -> Credentials:
    """Return the credentials of one client.

    Args:
        security: the token of the job, or the files of the user's own PKI; `None`: plain TCP.
        client_id: of the client; `None` for one that looks at a job and is no client of it.

    Raises:
        ConfigurationError: the files cannot be used; names the file, and says why.
    """
    # The modules take some 40 ms to load, which plain TCP has no use for.
    if isinstance(security, Token):
        from .security.token_credentials import TokenCredentials

        return TokenCredentials(security, client_id)
    assert security is None, "own PKI is not there yet"
    return INSECURE
