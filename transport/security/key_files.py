"""Names of the files of a user's own public-key infrastructure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class KeyFiles:
    """Files in PEM, read again when they change.

    Attributes:
        ca: the authorities by which certificates of others are judged.
        cert: the certificate of this client, and those between it and the authority.
        key: its private key, not encrypted.
        uri_prefix: of a URI in every client's certificate, as SPIFFE has them; nothing: none is asked for.
    """

    ca: Path
    cert: Path
    key: Path
    uri_prefix: str = ""
