"""The one active system of this process: the only global, behind its lock."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from ..errors import AlreadyInitializedError, NotInitializedError

if TYPE_CHECKING:
    from .client import Client

__all__ = ["active", "claim", "current", "release"]

_lock = threading.Lock()
_client: Client | None = None
_owner_pid = 0


def claim(client: Client) -> None:
    """Make `client` the active one.

    Raises:
        AlreadyInitializedError: there is one already.
    """
    global _client, _owner_pid
    with _lock:
        if (incumbent := _get()) is not None and not incumbent.is_over:
            raise AlreadyInitializedError(
                f"this process is client {incumbent.job.client_id} of job {incumbent.job.job_name!r} already "
                f"(phase {incumbent.phase}): call shutdown() on that system first, or pass reset=True"
            )
        _client, _owner_pid = client, os.getpid()


def release(client: Client) -> None:
    """Make room for another, if `client` is the active one."""
    global _client
    with _lock:
        if _client is client:
            _client = None


def current() -> Client:
    """Return the active one.

    Raises:
        NotInitializedError: there is none.
    """
    with _lock:
        client = _get()
    if client is None:
        raise NotInitializedError("this process has no active system: call bringup.initialize() first")
    return client


def active() -> Client | None:
    """Return the active one, or `None`."""
    with _lock:
        return _get()


def _get() -> Client | None:
    # A forked child has its parent's memory, but neither its threads nor its place in the job.
    return _client if os.getpid() == _owner_pid else None


def not_up(client: Client) -> NotInitializedError:
    """Return the exception for a client whose `initialize()` has not returned yet."""
    return NotInitializedError(
        f"initialize() has not returned yet in this process (client {client.job.client_id}, phase {client.phase})"
    )
