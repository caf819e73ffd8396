"""One forming of the job: its members, their reports, and its verdicts."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bringup.runtime.machines.coordinator.config import CoordinatorConfig
    from bringup.runtime.machines.core_table import CoreTable
    from bringup.runtime.machines.roster import Roster
    from bringup.transport.wire.messages import Verdict

    from .process import Process
    from .services import SimulatedServices
    from .store_oracle import StoreOracle


class Job:
    """One coordinator's.

    Attributes:
        host: the process that hosts the coordinator.
        services: the coordination services there.
        members: the processes that registered and were taken in, and when.
        sound_table: one that was found to be right.
        sound_roster: the same.
        arrivals: how many have come to a barrier for the so manieth time, by name and count.
        verdicts: the coordinator's, with the times.
        committed_at: when it was, if it was.
        store: what its key-value store must hold, and its clients must see.
        points: which clients were told to save, or not to, by the step at which they were.
    """

    def __init__(
        self, host: Process, config: CoordinatorConfig, services: SimulatedServices, store: StoreOracle
    ) -> None:
        self.host = host
        self.services = services
        self.store = store
        self.config = config
        self.members: dict[int, Process] = {}
        self.taken_in_at: dict[int, float] = {}
        self._digests: dict[int, bytes] = {}
        self._agreed: bytes | None = None
        self.sound_table: CoreTable | None = None
        self.sound_roster: Roster | None = None
        self.arrivals: Counter[tuple[str, int]] = Counter()
        self.committed_at: float | None = None
        self.verdicts: list[tuple[float, Verdict]] = []
        self.points: dict[int, dict[int, bool]] = {}

    def take_in(self, process: Process, now: float) -> None:
        """Note that a process was taken in."""
        process.job = self
        self.members[process.client_id] = process
        self.taken_in_at[process.client_id] = now

    def note_ready(self, client_id: int, digest: bytes) -> None:
        """Note that a client has reported the digest of its table."""
        self._digests[client_id] = digest
        self._agreed = None

    @property
    def agreed(self) -> bytes | None:
        """The digest that all have reported; `None` where some have not, or another."""
        if self._agreed is None and len(self._digests) == self.config.num_clients:
            first, *others = set(self._digests.values())
            self._agreed = None if others else first
        return self._agreed

    @property
    def is_complete(self) -> bool:
        """Whether all clients have registered."""
        return len(self.members) == self.config.num_clients

    def has_lost(self, client_id: int) -> bool:
        """Return whether a client has ended."""
        return client_id in self.members and not self.members[client_id].is_listening
