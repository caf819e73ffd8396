"""The exception of jax's distributed client; its text begins with a code."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ...errors import (
    BarrierTimeoutError,
    BringupError,
    CollectiveMismatchError,
    ConfigurationError,
    KeyExistsError,
    KeyNotFoundError,
    NotInitializedError,
    PeerFailedError,
)

__all__ = ["JaxRuntimeError", "jax_errors"]

_CODES: tuple[tuple[type[BringupError], str], ...] = (
    (KeyExistsError, "ALREADY_EXISTS"),
    (KeyNotFoundError, "NOT_FOUND"),
    (BarrierTimeoutError, "DEADLINE_EXCEEDED"),
    (CollectiveMismatchError, "INVALID_ARGUMENT"),
    (NotInitializedError, "CANCELLED"),
    (PeerFailedError, "UNAVAILABLE"),
)


class JaxRuntimeError(BringupError, RuntimeError):
    """Has the interface of `jax.errors.JaxRuntimeError`. `__cause__` is the error of bringup, with its attributes."""

    @property
    def code(self) -> str:
        """The code that its text begins with: `ALREADY_EXISTS`, `DEADLINE_EXCEEDED`, ..."""
        return str(self).partition(":")[0]


@contextlib.contextmanager
def jax_errors(refused: str = "INVALID_ARGUMENT") -> Iterator[None]:
    """Convert errors of bringup in a body to `JaxRuntimeError`s; `refused` is the code of `ConfigurationError`."""
    try:
        yield
    except JaxRuntimeError:
        raise
    except BringupError as error:
        code = refused if isinstance(error, ConfigurationError) else "INTERNAL"
        code = next((known for kind, known in _CODES if isinstance(error, kind)), code)
        raise JaxRuntimeError(f"{code}: {error}") from error
