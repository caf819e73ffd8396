"""The terms on which one side of a connection under TLS agrees to it."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass

from .identity import Subject


class RefusedError(Exception):
    """One side has refused the other; the text says why."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of one side.

    Attributes:
        context: with this side's certificate, and the authorities for that of the other side.
        identify: returns the client id of a certificate that the context has accepted, `None` where it has none; raises
            a `RefusedError` where it is not to be accepted after all.
    """

    context: ssl.SSLContext
    identify: Callable[[Subject], int | None]
