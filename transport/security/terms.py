"""The terms on which one side of a connection under TLS agrees to it."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Certificate = Mapping[str, Any]
"""Of the other side, as `ssl.SSLObject.getpeercert` returns it."""


class RefusedError(Exception):
    """One side has refused the other; the text says why."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of one side.

    Attributes:
        context: with this side's certificate, and the authorities for that of the other side.
        identify: returns the client id in a certificate that the context has accepted, `None` where it has none; raises
            a `RefusedError` where it is not to be accepted after all.
        describe: returns a text for people about a failure of TLS.
    """

    context: ssl.SSLContext
    identify: Callable[[Certificate], int | None]
    describe: Callable[[ssl.SSLError], str]
