"""Credentials of a peer, for gRPC and for links."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass

from .grpc.settings import grpc

ChannelOptions = Sequence[tuple[str, int | str]]


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials of one peer; `None` throughout means plain TCP.

    Attributes:
        server: for the coordinator's gRPC server.
        channel: for the channel to the coordinator.
        link_server: for accepting ring links.
        link_client: for opening ring links.
    """

    server: grpc.ServerCredentials | None = None
    channel: grpc.ChannelCredentials | None = None
    link_server: ssl.SSLContext | None = None
    link_client: ssl.SSLContext | None = None

    def add_port(self, server: grpc.aio.Server, target: str) -> None:
        """Add `target` to the addresses on which `server` listens."""
        if self.server is None:
            server.add_insecure_port(target)
        else:
            server.add_secure_port(target, self.server)

    def open_channel(self, target: str, options: ChannelOptions) -> grpc.aio.Channel:
        """Return a channel to `target`."""
        if self.channel is None:
            return grpc.aio.insecure_channel(target, options=options)
        return grpc.aio.secure_channel(target, self.channel, options=options)


INSECURE = Credentials()
"""Plain TCP: for loopback, and for networks that the user vouches for."""
