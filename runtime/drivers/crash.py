"""Unexpected exceptions: each ends this client, and all others hear its cause."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ...errors import BringupError
from ...transport.wire.messages import Verdict
from ..machines.peer.config import PeerConfig

_log = logging.getLogger("bringup")

OnCrash = Callable[[Exception], None]
"""Called on the peer's loop with an exception of a machine, a handler or a task of the runtime."""


def crash_error(client_id: int, error: BaseException) -> BringupError:
    """Log an exception, and return the one for the users of all clients; its cause is the original."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, BringupError):
        return error
    _log.critical("internal error in the runtime of client %d", client_id, exc_info=error)
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    shown = BringupError(
        f"internal error in the runtime of client {client_id}: {text}. This is a defect of bringup, or of a backend: "
        "please report it with the traceback in the log of that client."
    )
    shown.__cause__ = error
    return shown


def own_verdict(config: PeerConfig, phase: str, error: BringupError) -> Verdict:
    """Return the verdict for all clients when client 0 itself ends with `error`."""
    address = "" if config.addresses is None else config.addresses[config.client_id]
    return Verdict("PeerFailedError", config.client_id, address, config.hostname, phase, str(error), (), ())


def let_crash(error: Exception) -> None:
    """Raise the exception again: for drivers that run without a peer."""
    raise error
