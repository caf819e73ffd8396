"""One peer's watch over the coordinator: silence, redials, probes."""

from __future__ import annotations

from ..detector import Detector
from ..id_ranges import COORDINATOR
from ..pacing import fallback_patience, pace, patience
from .config import PeerConfig

_SILENT_INTERVALS = 2.5
"""Heartbeats without an answer after which another connection is tried: fewer would be lost packets."""

_ANSWERED_INTERVALS = 1.5
"""In which a leader that sends a heartbeat an interval was answered, if all is well."""

_GRACE = 1.0
"""Seconds for a verdict to travel from the coordinator, on top of the time that it takes to find."""


class CoordinatorWatch:
    """The coordinator's signs of life. Long before silence is death, another connection is dialled.

    The coordinator's process is asked, too: where it answers, it is only overloaded.

    Attributes:
        is_hosted: whether this client hosts the coordinator itself: then it is neither dialled again nor probed.
        lost: why the connection broke; empty while it stands.
        reconnects: how often the session was taken up again.
        is_doubted: whether the coordinator answers the leader of the group and not this client, whose own connection
            must be broken then: what the leader hears of it counts no more.
        interval: seconds between two heartbeats of a client that nobody watches for the coordinator.
    """

    def __init__(self, config: PeerConfig, now: float) -> None:
        self.is_hosted = config.client_id == COORDINATOR
        self.lost = ""
        self.reconnects = 0
        self._config = config
        self._is_redialling = False  # and nothing was heard since
        self.is_doubted = False
        self._is_up = False
        self._is_told = False
        self._is_slow = False  # alive, and silent
        self._timeout = patience(config.num_clients, config.heartbeat_interval, config.heartbeat_timeout)
        self.interval = pace(config.num_clients, config.heartbeat_interval)
        self._detector = Detector(self._timeout, self.interval)
        self._registration_patience = config.registration_patience
        self._heard_at = now
        self._answered_at = now
        self._alive_at = now
        self._told_at = now
        self._last_told = now
        self._unanswered_since: float | None = None
        self._registered_at = now

    def up(self, now: float) -> None:
        """Note that the job is up: heartbeats are no longer paced by the number of clients that come up."""
        self._is_up = True
        regime = self._config.heartbeat_timeout, self._config.heartbeat_interval
        if regime != (self._timeout, self.interval):
            self._timeout, self.interval = regime
            self._detector.judge_by(*regime, now)

    def awake(self, now: float) -> None:
        """Note that this peer runs."""
        self._detector.awake(now)

    def caught_up(self, now: float) -> None:
        """See `Detector.caught_up`."""
        self._detector.caught_up(now)

    def heard(self, now: float, *, is_question: bool = False) -> None:
        """Note a message of the coordinator; a question does not show that it hears this client."""
        self._detector.heard(COORDINATOR, now)
        self._answered_at = self._alive_at = now
        if is_question:
            return
        self._heard_at = now
        self._unanswered_since = None
        self.is_doubted = False
        self._is_slow = False
        if not self.lost:
            self._is_redialling = False

    def told(self, coordinator_age: float, answered_age: float, now: float) -> None:
        """Note what the leader of the group hears of the coordinator; see `Beat`."""
        asked_at = self._unanswered_since
        if asked_at is not None and answered_age >= 0.0 and now - answered_age > asked_at + self.fallback_patience:
            self.is_doubted = True
        self._is_told = not self.is_doubted
        if self._is_told:
            self._last_told = now - coordinator_age
            self._alive_as_told(self._last_told)

    def not_told(self, told_at: float) -> None:
        """Note that waves have stopped after one that came at `told_at`.

        A leader that had an answer to its last heartbeat then has had one to the next, of which no wave tells any more.
        """
        if self._is_told and told_at - self._last_told <= _ANSWERED_INTERVALS * self.interval:
            self._alive_as_told(told_at)

    def _alive_as_told(self, at: float) -> None:
        self._told_at = max(self._told_at, at)
        self._detector.heard(COORDINATOR, self._told_at)

    @property
    def fallback_patience(self) -> float:
        """See `pacing.fallback_patience`; longer while a large job comes up."""
        return fallback_patience(self.interval, self._timeout)

    def age(self, now: float) -> float:
        """Return the seconds since the last sign of life that this client has had itself."""
        return 0.0 if self.is_hosted else now - self._alive_at

    def sent(self, now: float) -> None:
        """Note that a heartbeat was sent, which the coordinator answers."""
        if self._unanswered_since is None:
            self._unanswered_since = now

    def answered(self, now: float, *, is_alive: bool) -> None:
        """Note the result of a probe; a process that is alive says nothing of the connection."""
        self._answered_at = now
        if is_alive:
            self._alive_at = now
            self._is_slow = not self._is_up
            self._detector.heard(COORDINATOR, now)

    def connection_broke(self, reason: str, now: float) -> None:
        """Note that the connection broke; another is dialled."""
        self.lost, self._is_redialling = reason, True
        self.sent(now)  # over the next one a heartbeat is sent first

    def redials(self) -> float | None:
        """Note that another connection is dialled although this one stands.

        Returns:
            For how many seconds its answer may be waited for; `None` for as many as usual.
        """
        self._is_redialling = True
        return 2 * self._config.heartbeat_timeout if self._is_slow else None

    def resumed(self, now: float, *, is_sign_of_life: bool) -> None:
        """Note that the session goes on over another connection."""
        self.lost, self._heard_at, self._is_redialling = "", now, False
        self._unanswered_since = None
        self.reconnects += 1
        if is_sign_of_life:
            self.answered(now, is_alive=True)

    def registers(self, now: float) -> None:
        """Note that a registration was sent."""
        self._registered_at = now

    def registers_anew(self) -> str:
        """Note that a registration had no answer in time, and double the time-out; returns that, for a text."""
        waited, self._registration_patience = self._registration_patience, 2 * self._registration_patience
        return f"it did not answer the registration within {waited:g} s"

    def silence(self, now: float) -> str:
        """Return the cause, for a text, if the coordinator was silent for too long; otherwise nothing."""
        silent = self._detector.silent(now)
        return f"no heartbeat for {silent[0][1]:.1f} s" + (f" ({self.lost})" if self.lost else "") if silent else ""

    def death(self, reason: str) -> str:
        """Return the cause for a proven death, for a text."""
        return f"process died ({reason}{'; ' if self.lost else ''}{self.lost})"

    # When what is due.

    def deadline(self) -> float | None:
        """Return when to judge."""
        return self._detector.deadline()

    def redial_due(self) -> float | None:
        """Return when to dial another connection although this one stands, unless that is under way.

        TCP itself sends again after ever longer pauses, and may find out that the network is back when all is over. It
        makes no difference that its process answers a probe: that it lives does not mean that it hears this client.
        """
        if self.is_hosted or self._is_redialling or self._unanswered_since is None:
            return None
        # Where it is heard once an interval, one of these had passed when the heartbeat was sent that has no answer.
        patience = max(self._timeout / 2, _SILENT_INTERVALS * self.interval)
        return max(self._heard_at, self._unanswered_since - self.interval) + patience

    def ask_due(self) -> float | None:
        """Return when to probe its process."""
        if self.is_hosted:
            return None
        # Of a group the leader asks; the others do before they judge.
        early = max(self._timeout / 4, _SILENT_INTERVALS * self.interval / 2)
        patience = self._timeout if self._is_told else early
        return max(self._heard_at, self._answered_at, self._told_at) + patience

    def registration_due(self) -> float | None:
        """Return when to register over another connection."""
        return None if self.is_hosted else self._registered_at + self._registration_patience

    def doubt_due(self) -> float | None:
        """Return when to send a heartbeat although another client reports for this one; `None` while one is unanswered.

        The leader hears nothing then: the coordinator does not run, or the leader cannot reach it.
        """
        if self._unanswered_since is not None:
            return None
        return max(self._heard_at, self._alive_at, self._told_at) + self._timeout / 2

    def verdict_due(self, now: float) -> float:
        """Return until when it may take the coordinator to decide what became of a client."""
        return now + self._timeout + 2 * self.interval + _GRACE
