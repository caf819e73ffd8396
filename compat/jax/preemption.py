"""Preemption points with the interface of jax's `global_state.preemption_sync_manager`."""

from __future__ import annotations

from ...runtime.blocking import SyncSystem
from .errors import jax_errors

__all__ = ["PreemptionSyncManager"]


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
