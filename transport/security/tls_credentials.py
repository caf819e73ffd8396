"""Credentials under mutual TLS, whatever the source of the keys."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterable, Mapping, Sequence

from ..addresses import Address
from ..grpc.settings import grpc
from ..names import Endpoint
from .contexts import load_key_pair, make_context
from .diagnosis import diagnose
from .identity import Subject, subject_of_call
from .keys import Keys, KeySource
from .terms import RefusedError, Terms


class TlsCredentials:
    """See `Credentials`.

    Args:
        source: of the keys.
    """

    def __init__(self, source: KeySource) -> None:
        self._source = source
        self._lock = threading.Lock()  # gRPC asks from threads of its own, and services are dialled on other loops
        self._contexts: dict[bool, tuple[Keys, ssl.SSLContext]] = {}
        self._served = self._current()

    def add_port(self, server: grpc.aio.Server, target: str) -> None:
        """See `Credentials.add_port`."""
        if self._source.serves_changes:
            self._served = self._current()
            credentials = grpc.dynamic_ssl_server_credentials(  # type: ignore[no-untyped-call]
                _configuration(self._served), self._changed_configuration, require_client_authentication=True
            )
        else:
            keys = self._source.for_server()
            credentials = grpc.ssl_server_credentials(  # type: ignore[no-untyped-call]
                [(keys.pair.key, keys.pair.certificate)], keys.authorities, require_client_auth=True
            )
        server.add_secure_port(target, credentials)

    def _changed_configuration(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the configuration if it has changed: where gRPC takes one during a handshake, it may crash."""
        if (keys := self._current()) is self._served:
            return None
        self._served = keys
        return _configuration(keys)

    def open_channel(self, target: str, options: Sequence[tuple[str, int | str]], address: Address) -> grpc.aio.Channel:
        """See `Credentials.open_channel`."""
        keys = self._current()
        credentials = grpc.ssl_channel_credentials(  # type: ignore[no-untyped-call]
            keys.authorities, keys.pair.key, keys.pair.certificate
        )
        name = self._source.server_name(address.host)
        return grpc.aio.secure_channel(target, credentials, [*options, ("grpc.ssl_target_name_override", name)])

    async def refusal_at(self, endpoint: Endpoint, address: Address, *, is_needed: bool) -> str:
        """See `Credentials.refusal_at`."""
        if not is_needed and not self._source.checks_subjects:
            return ""
        terms = self.terms(is_server=False)
        return await diagnose(endpoint, terms, self._source, self._source.server_name(address.host))

    def caller(self, context: Mapping[str, Iterable[bytes]]) -> int | None:
        """See `Credentials.caller`."""
        return self._identify(subject_of_call(context))

    def terms(self, *, is_server: bool) -> Terms:
        """See `Credentials.terms`."""
        with self._lock:
            keys = self._source.current()
            loaded, context = self._contexts.get(is_server, (None, None))
            if loaded is None or loaded.authorities != keys.authorities:
                context = make_context(keys.authorities, is_server=is_server)
            assert context is not None
            if loaded is not keys:
                load_key_pair(context, keys.pair)
                self._contexts[is_server] = keys, context
        return Terms(context, self._identify)

    def _identify(self, subject: Subject) -> int | None:
        if refusal := self._source.refusal_of(subject):
            raise RefusedError(refusal)
        return subject.client_id

    def _current(self) -> Keys:
        with self._lock:
            return self._source.current()


def _configuration(keys: Keys) -> grpc.ServerCertificateConfiguration:
    made: grpc.ServerCertificateConfiguration
    made = grpc.ssl_server_certificate_configuration(  # type: ignore[no-untyped-call]
        [(keys.pair.key, keys.pair.certificate)], keys.authorities
    )
    return made
