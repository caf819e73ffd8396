"""How a process ends that ends in order: its last words first, then the coordinator's, then all that it held."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bringup.errors import PeerFailedError, RendezvousTimeoutError
from bringup.runtime.drivers.coordinator import FLUSH_TIMEOUT as HOST_FLUSH_TIMEOUT
from bringup.runtime.drivers.coordinator import LATECOMERS_TIMEOUT, SURVIVORS_TIMEOUT
from bringup.runtime.drivers.dialler import FLUSH_TIMEOUT
from bringup.runtime.machines.coordinator.machine import CoordinatorMachine

from .network import EVER

if TYPE_CHECKING:
    from .process import Process


class Closing:
    """Of one process, as its drivers do it."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._has_begun = False
        self._waits_for_latecomers = False

    def begin(self) -> None:
        """The peer is over. What it said last is heard first, or it has taken a second."""
        process = self._process
        if process.session is None:
            return self._close_coordinator()
        process.later(FLUSH_TIMEOUT, self._close_coordinator)
        return process.session.finish_at_client(self._close_coordinator)

    def connection_ended(self) -> None:
        """A client's connection to the coordinator here has ended."""
        if self._has_begun and not self._process.served:
            self._tell_latecomers()

    def coordinator_acted(self) -> None:
        """The coordinator here has taken in something."""
        if self._waits_for_latecomers and self._has_told_all():
            self._process.end()

    def _close_coordinator(self) -> None:
        """The coordinator here, if there is one, lets everybody hear what it has said."""
        process = self._process
        if process.gone_at < EVER or self._has_begun:
            return None
        self._has_begun = True
        if process.coordinator is None:
            return process.end()
        flush_timeout = process.config.heartbeat_timeout if process.failed is None else HOST_FLUSH_TIMEOUT
        for session in process.world.wire.sessions_of(process):
            session.finish_at_host(flush_timeout)
        process.later(flush_timeout, self._tell_latecomers)
        return self.connection_ended()

    def _tell_latecomers(self) -> None:
        """It stays for a moment for those that do not know why the job failed."""
        process = self._process
        if process.gone_at < EVER or self._waits_for_latecomers:
            return None
        if self._has_told_all():
            return process.end()
        self._waits_for_latecomers = True
        has_survived = process.failed is not None and isinstance(process.failed[1], PeerFailedError)
        return process.later(SURVIVORS_TIMEOUT if has_survived else LATECOMERS_TIMEOUT, process.end)

    def _has_told_all(self) -> bool:
        process = self._process
        if process.coordinator is None or process.session is None or process.is_aborted:
            return True
        if process.failed is not None and isinstance(process.failed[1], RendezvousTimeoutError):
            return True
        assert isinstance(process.coordinator.machine, CoordinatorMachine)
        return process.coordinator.machine.has_told_all
