"""The active client of this process: the only global, behind its lock."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from ...errors import AlreadyInitializedError, NotInitializedError
from ..machines.failure_errors import forked_from

if TYPE_CHECKING:
    from .client import Client


class ActiveClient:
    """Holds at most one client."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._owner_pid = 0

    def claim(self, client: Client) -> None:
        """Make `client` the active one.

        Raises:
            AlreadyInitializedError: another client is active.
        """
        with self._lock:
            self._refuse_another()
            self._client, self._owner_pid = client, os.getpid()

    def refuse_another(self) -> None:
        """Refuse another client while one is active.

        Raises:
            AlreadyInitializedError: one is.
        """
        with self._lock:
            self._refuse_another()

    def _refuse_another(self) -> None:
        incumbent = self._get()
        if incumbent is not None and not incumbent.is_over:
            raise AlreadyInitializedError(
                f"this process is {incumbent.describe()} already: call shutdown() on that system first, "
                "or pass reset=True"
            )

    def release(self, client: Client) -> None:
        """Make room for another client, if `client` is the active one."""
        with self._lock:
            if self._client is client:
                self._client = None

    def get(self) -> Client | None:
        """Return the active client, or `None`."""
        with self._lock:
            return self._get()

    def up(self) -> Client:
        """Return the active client, whose job is up, or has been.

        Raises:
            NotInitializedError: there is none, or its `initialize()` has not returned yet.
            BringupError: its `initialize()` has failed.
        """
        client = self.get()
        if client is None and self._client is not None:
            raise NotInitializedError(forked_from(self._owner_pid))
        if client is None:
            raise NotInitializedError("this process has no active system: call bringup.initialize() first")
        if client.up.value is None:
            not_yet = f"initialize() has not returned yet in this process: it is {client.describe()}"
            raise client.end_error() if client.is_over else NotInitializedError(not_yet)
        return client

    def _get(self) -> Client | None:
        # A forked child has its parent's memory, but neither its threads nor its place in the job.
        return self._client if os.getpid() == self._owner_pid else None

    def forked(self) -> None:
        """Called in a forked child, whose one thread is not the one that may hold the lock in the parent."""
        self._lock = threading.Lock()
        if self._client is not None:
            self._client.forked()


ACTIVE = ActiveClient()

os.register_at_fork(after_in_child=ACTIVE.forked)
