"""The interface of `jax.distributed` and `jax._src.distributed`, over the active system of this process.

A program that takes jax's client for its key-value store, barriers and preemption points needs another import only::

    from bringup.compat.jax.distributed import global_state
    global_state.client.wait_at_barrier("saved", timeout_in_ms=60_000)
"""

from __future__ import annotations

from ...errors import NotInitializedError
from ...runtime.blocking import SyncSystem, current
from .client import DistributedRuntimeClient
from .errors import JaxRuntimeError, jax_errors

__all__ = ["DistributedRuntimeClient", "JaxRuntimeError", "PreemptionSyncManager", "State", "global_state"]


class PreemptionSyncManager:
    """Has the interface of jaxlib's `PreemptionSyncManager`.

    SIGTERM to any client is the notice, and so is `System.announce_preemption`.

    Args:
        system: the job.
    """

    def __init__(self, system: SyncSystem) -> None:
        self._system = system

    def reached_sync_point(self, step_counter: int) -> bool:
        """Return whether all are to save at this step; call it once for each, on every client.

        Raises:
            JaxRuntimeError: a client has failed (`UNAVAILABLE`), where the original returns false; the system was shut
                down (`CANCELLED`); the services are switched off, or the step is no whole number of 0 or more
                (`FAILED_PRECONDITION`).
        """
        with jax_errors(refused="FAILED_PRECONDITION"):
            return self._system.reached_preemption_point(step_counter)


class State:
    """The state of this process in its job. Each property is looked up anew, and so never stale."""

    @property
    def client(self) -> DistributedRuntimeClient | None:
        """The job's key-value store and barriers; `None` while no system is active."""
        system = _active()
        return None if system is None else DistributedRuntimeClient(system)

    @property
    def preemption_sync_manager(self) -> PreemptionSyncManager | None:
        """The manager of preemption points; `None` while no system is active."""
        system = _active()
        return None if system is None else PreemptionSyncManager(system)

    @property
    def process_id(self) -> int:
        """The client id; 0 while no system is active."""
        system = _active()
        return 0 if system is None else system.client_id

    @property
    def num_processes(self) -> int:
        """The number of clients; 1 while no system is active."""
        system = _active()
        return 1 if system is None else system.num_clients

    @property
    def coordinator_address(self) -> str | None:
        """The `host:port` of the coordinator; `None` in local mode, and while no system is active."""
        system = _active()
        return system.jobs[0] if system is not None and system.jobs else None


global_state = State()
"""The counterpart of jax's object of the same name."""


def _active() -> SyncSystem | None:
    try:
        return current()
    except NotInitializedError:
        return None
