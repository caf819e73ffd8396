"""Identities in certificates: each names the client that it was made for, and the token of its job. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_DOMAIN = "bringup.internal"
"""Of names that no DNS server resolves: ICANN has set `internal` aside."""

_CLIENT_NAME = re.compile(r"client-(0|[1-9][0-9]{0,9})\.(.+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Subject:
    """The alternative names of a certificate's subject.

    Attributes:
        names: those of DNS.
        uris: those that are URIs.
    """

    names: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()

    @property
    def client_id(self) -> int | None:
        """The client id that the names state; `None` where they state none, or several."""
        ids = {int(match[1]) for name in self.names if (match := _CLIENT_NAME.fullmatch(name))}
        return ids.pop() if len(ids) == 1 else None

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of the token that the certificate was made from; `None` where it was made from none."""
        for name in self.names:
            _, _, rest = name.partition(".")
            fingerprint, _, domain = rest.partition(".")
            if domain == _DOMAIN:
                return fingerprint
        return None


def name_of(client_id: int | None, fingerprint: str) -> str:
    """Return the name of a client for its certificate; `None` is an observer, which is no client of the job."""
    holder = "observer" if client_id is None else f"client-{client_id}"
    return f"{holder}.{fingerprint}.{_DOMAIN}"


def subject_of(certificate: Mapping[str, Any]) -> Subject:
    """Return the subject of a certificate, which is as `ssl.SSLObject.getpeercert` returns it."""
    names: dict[str, list[str]] = {"DNS": [], "URI": []}
    for kind, name in certificate.get("subjectAltName", ()):
        names.get(kind, []).append(name)
    return Subject(tuple(names["DNS"]), tuple(names["URI"]))


def subject_of_call(context: Mapping[str, Iterable[bytes]]) -> Subject:
    """Return the subject of the certificate of a gRPC call's client, by the authentication context of the call."""
    names, uris = (
        tuple(text.decode("utf-8", "replace") for text in context.get(kind, ())) for kind in ("peer_dns", "peer_uri")
    )
    return Subject(names, uris)
