"""The source of a process's keys: the token of its job."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

from .certificates import Authority, KeyPair
from .identity import Subject, name_of
from .token import Token

_COORDINATOR = 0
"""The client that hosts the coordinator."""

_SERVER_LIFE = 10 * 365 * 24 * 3600.0
"""Seconds; beyond the end of any job. The key is in the memory of this process only, beside the token."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a process at one time.

    Attributes:
        pair: its own.
        authorities: certificates, as PEM, of those that others are trusted by.
    """

    pair: KeyPair
    authorities: bytes


class KeySource(Protocol):
    """The source of a process's keys. Its methods may be called from any thread, one at a time.

    Attributes:
        secret: a text about where they come from, for people: never the secret itself.
        serves_changes: whether a server needs them again when they change.
        checks_subjects: whether `refusal_of` may refuse a certificate that an authority has signed.
    """

    secret: str
    serves_changes: bool
    checks_subjects: bool

    def current(self) -> Keys:
        """Return the keys; the same object until they change."""
        ...

    def for_server(self) -> Keys:
        """Return the keys for a server whose keys do not change, or those that it begins with."""
        ...

    def server_name(self, host: str) -> str:
        """Return the name that the coordinator's certificate must have, where its address has this host."""
        ...

    def refusal_of(self, subject: Subject) -> str:
        """Return why a certificate is refused that an authority has signed; nothing where it is accepted."""
        ...


class TokenKeys:
    """Keys made from a token.

    Args:
        token: of the job.
        client_id: of this client; `None` for an observer of the job.
        source: where the token comes from, for people.
    """

    serves_changes = checks_subjects = False

    def __init__(self, token: Token, client_id: int | None, source: str) -> None:
        self.secret = f"the token of fingerprint {token.fingerprint}" + (f" ({source})" if source else "")
        self.fingerprint = token.fingerprint
        self._authority = Authority(token)
        self._name = name_of(client_id, token.fingerprint)
        self._keys: Keys | None = None

    def current(self) -> Keys:
        """See `KeySource.current`."""
        if self._keys is None or time.time() >= self._keys.pair.renewal:
            self._keys = Keys(self._authority.issue(self._name), self._authority.certificate)
        return self._keys

    def for_server(self) -> Keys:
        """See `KeySource.for_server`."""
        return Keys(self._authority.issue(self._name, life=_SERVER_LIFE), self._authority.certificate)

    def server_name(self, host: str) -> str:
        """See `KeySource.server_name`."""
        return name_of(_COORDINATOR, self.fingerprint)

    def refusal_of(self, subject: Subject) -> str:
        """See `KeySource.refusal_of`."""
        return ""
