"""Texts about failures of TLS, for the people who can do something about them."""

from __future__ import annotations

import ssl


def describe(error: ssl.SSLError) -> str:
    """Return a text about a failure of TLS."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    return f"TLS failed: {error.reason or error}"
