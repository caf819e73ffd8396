"""One failure, raised to many callers: each gets an exception of its own."""

from __future__ import annotations

import copy
from typing import TypeVar

E = TypeVar("E", bound=BaseException)


def fresh(error: E) -> E:
    """Return a copy of `error` without the traceback of those who were told before."""
    duplicate = copy.copy(error)
    duplicate.__traceback__ = None
    duplicate.__cause__ = error.__cause__
    return duplicate
