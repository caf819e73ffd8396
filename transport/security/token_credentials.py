"""Credentials made from a token."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Sequence

from ..grpc.settings import grpc
from .certificates import Authority, KeyPair
from .contexts import load_key_pair, make_context
from .diagnosis import describe
from .identity import client_id_of, name_of
from .terms import Terms
from .token import Token

_COORDINATOR = 0
"""The client that hosts the coordinator."""

_SERVER_LIFE = 10 * 365 * 24 * 3600.0
"""Seconds; beyond the end of any job. The key is in the memory of this process only, beside the token."""


class TokenCredentials:
    """See `Credentials`.

    Args:
        token: of the job.
        client_id: of this client; `None` for an observer of the job.
    """

    def __init__(self, token: Token, client_id: int | None) -> None:
        self._token = token
        self._authority = Authority(token)
        self._name = name_of(client_id, token.fingerprint)
        self._pair = self._authority.issue(self._name)
        self._lock = threading.Lock()  # services are dialled on the caller's event loop
        self._contexts: dict[bool, tuple[KeyPair, ssl.SSLContext]] = {}

    def add_port(self, server: grpc.aio.Server, target: str) -> None:
        """See `Credentials.add_port`."""
        pair = self._authority.issue(self._name, life=_SERVER_LIFE)
        # With gRPC's credentials that change, it crashes now and then where a server ends during a handshake.
        server.add_secure_port(
            target,
            grpc.ssl_server_credentials(  # type: ignore[no-untyped-call]
                [(pair.key, pair.certificate)], self._authority.certificate, require_client_auth=True
            ),
        )

    def open_channel(self, target: str, options: Sequence[tuple[str, int | str]]) -> grpc.aio.Channel:
        """See `Credentials.open_channel`."""
        pair = self._current()
        roots = self._authority.certificate
        credentials = grpc.ssl_channel_credentials(roots, pair.key, pair.certificate)  # type: ignore[no-untyped-call]
        name = name_of(_COORDINATOR, self._token.fingerprint)
        return grpc.aio.secure_channel(target, credentials, [*options, ("grpc.ssl_target_name_override", name)])

    def terms(self, *, is_server: bool) -> Terms:
        """See `Credentials.terms`."""
        with self._lock:
            pair = self._current()
            loaded, context = self._contexts.get(is_server, (None, None))
            if context is None:
                context = make_context(self._authority.certificate, is_server=is_server)
            if loaded is not pair:
                load_key_pair(context, pair)
                self._contexts[is_server] = pair, context
        return Terms(context, client_id_of, describe)

    def _current(self) -> KeyPair:
        """Return this client's certificate with its key, made anew in time."""
        if time.time() >= self._pair.renewal:
            self._pair = self._authority.issue(self._name)
        return self._pair
