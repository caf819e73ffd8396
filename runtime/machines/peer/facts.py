"""What a peer's machine shows of itself and of the others."""

from __future__ import annotations

from ....devices.base import LocalDevice
from ....transport.wire.messages import MemberUpdate
from ..phases import Phase, Progress, Timeline
from .coordinator_watch import CoordinatorWatch
from .job_view import Knowledge, PeerConfig
from .states import PeerState, phase_of


class PeerFacts:
    """The part of `PeerMachine` that others read; the machine itself changes what it is read from.

    Attributes:
        config: of this peer.
        timeline: how long its phases took.
        leavers: the clients that are known to be leaving, as pairs of ids.
    """

    def __init__(self, config: PeerConfig, now: float) -> None:
        self.config = config
        self.timeline = Timeline(config.client_id, now)
        self.leavers: tuple[int, ...] = ()
        self._state = PeerState.NEW
        self._last_phase: Phase | None = None
        self._knowledge = Knowledge(config, now)
        self._watch = CoordinatorWatch(config, now)
        self._devices: tuple[LocalDevice, ...] | None = None
        self._is_linked = False
        self._health = (True, "")

    @property
    def phase(self) -> Phase:
        """The phase this client is in, for reports."""
        return phase_of(self._state, has_devices=self._devices is not None, is_linked=self._is_linked)

    def progress(self, now: float) -> Progress:
        """Return how far this client is, for a progress line."""
        known = self._knowledge
        return Progress(self.phase, self.timeline.elapsed(now), known.missing(), known.waiting_for(self.phase))

    def update_of(self, client_id: int) -> MemberUpdate | None:
        """Return the last known phase, health and reconnections of a client, where the coordinator has said any."""
        if client_id == self.config.client_id:
            own = MemberUpdate(client_id, self._last_phase or self.phase, *self._health, self._watch.reconnects)
            return self._knowledge.update_of(client_id, own)
        return self._knowledge.update_of(client_id)

    def step_of(self, client_id: int, now: float) -> tuple[int, float] | None:
        """Return the step that another client's program is known to be at, and for how many seconds."""
        return self._knowledge.step_of(client_id, now)

    def age_of(self, client_id: int, now: float) -> float:
        """Return the seconds since a client is known to have been heard by the coordinator."""
        if client_id == self.config.client_id:
            return 0.0
        return self._knowledge.age_of(client_id, now)
