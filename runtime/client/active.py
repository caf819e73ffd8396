"""The one active client of this process: the only global, behind its lock."""

from __future__ import annotations

import os
import threading
from typing import Generic, Protocol, TypeVar

from ...errors import AlreadyInitializedError, NotInitializedError


class Occupant(Protocol):
    """What can be active."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended, so that another may take its place."""
        ...

    def describe(self) -> str:
        """Return who it is, for errors."""
        ...

    def forked(self) -> None:
        """Called in a process that was forked from the occupant's."""
        ...


def forked_from(pid: int) -> str:
    """Return what a child is told that was forked from the process of a client."""
    return (
        f"this process was forked from process {pid}, and has no part in its job: "
        "start clients as processes of their own"
    )


OccupantT = TypeVar("OccupantT", bound=Occupant)


class Slot(Generic[OccupantT]):
    """Holds at most one occupant."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._occupant: OccupantT | None = None
        self._owner_pid = 0

    def claim(self, occupant: OccupantT) -> None:
        """Make `occupant` the active one.

        Raises:
            AlreadyInitializedError: there is one already.
        """
        with self._lock:
            incumbent = self._get()
            if incumbent is not None and not incumbent.is_over:
                raise AlreadyInitializedError(
                    f"this process is {incumbent.describe()} already: call shutdown() on that system first, "
                    "or pass reset=True"
                )
            self._occupant, self._owner_pid = occupant, os.getpid()

    def release(self, occupant: OccupantT) -> None:
        """Make room for another, if `occupant` is the active one."""
        with self._lock:
            if self._occupant is occupant:
                self._occupant = None

    def forked(self) -> None:
        """Called in a forked child, where nobody else runs; whoever held the lock in the parent will not release it."""
        self._lock = threading.Lock()
        if self._occupant is not None:
            self._occupant.forked()

    def get(self) -> OccupantT | None:
        """Return the active one, or `None`."""
        with self._lock:
            return self._get()

    def demand(self) -> OccupantT:
        """Return the active one.

        Raises:
            NotInitializedError: there is none.
        """
        occupant = self.get()
        if occupant is None and self._occupant is not None:
            raise NotInitializedError(forked_from(self._owner_pid))
        if occupant is None:
            raise NotInitializedError("this process has no active system: call bringup.initialize() first")
        return occupant

    def _get(self) -> OccupantT | None:
        # A forked child has its parent's memory, but neither its threads nor its place in the job.
        return self._occupant if os.getpid() == self._owner_pid else None
