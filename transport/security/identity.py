"""Identities in certificates: each names the client that it was made for, and the token of its job. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .terms import Certificate

_DOMAIN = "bringup.internal"
"""Of names that no DNS server resolves: ICANN has set `internal` aside."""

_CLIENT_NAME = re.compile(r"client-(0|[1-9][0-9]{0,9})\..+", re.IGNORECASE)


def name_of(client_id: int | None, fingerprint: str) -> str:
    """Return the name of a client for its certificate; `None` is an observer, which is no client of the job."""
    holder = "observer" if client_id is None else f"client-{client_id}"
    return f"{holder}.{fingerprint}.{_DOMAIN}"


def client_id_of(certificate: Certificate) -> int | None:
    """Return the client id in the DNS names of a certificate; `None` where there is none, or several."""
    names = [name for kind, name in certificate.get("subjectAltName", ()) if kind == "DNS"]
    return client_id_in(names)


def client_id_in(names: Iterable[str]) -> int | None:
    """Return the client id that DNS names state; `None` where they state none, or several."""
    ids = {int(match[1]) for name in names if (match := _CLIENT_NAME.fullmatch(name))}
    return ids.pop() if len(ids) == 1 else None
