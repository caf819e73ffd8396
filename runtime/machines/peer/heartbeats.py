"""When a peer sends its heartbeats."""

from __future__ import annotations

from ..phases import Phase

_PHASE_REPORT_DELAY = 0.05
_FRESH_NEWS_BEFORE_DEADLINE = 0.25


class Heartbeats:
    """One peer's heartbeats: at the interval, and soon after a phase that lasts has begun.

    Attributes:
        sent: how many.
    """

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._due: float | None = None
        self._phase = Phase.CONNECT
        self._phase_changed_at: float | None = None
        self.sent = 0

    def begin(self, now: float) -> None:
        """Begin: the registration was the first."""
        self._due = now + self._interval

    def phase_changed(self, now: float) -> None:
        """Note that this client has got into another phase."""
        self._phase_changed_at = now

    def send(self, phase: Phase, now: float) -> int:
        """Note that one is sent now; returns its number."""
        self.sent += 1
        self._due = now + self._interval
        self._phase = phase
        self._phase_changed_at = None
        return self.sent

    def due(self, phase: Phase, acked_at: float, patience_ends: float | None) -> float | None:
        """Return when to send the next.

        Args:
            phase: of this client, now.
            acked_at: when the coordinator last answered.
            patience_ends: when this client will give up, if it will: shortly before, it asks for fresh news, so that
                what it then says of the others is true.
        """
        if self._due is None:
            return None
        due = self._due
        if self._phase_changed_at is not None and phase is not self._phase:
            due = min(due, self._phase_changed_at + _PHASE_REPORT_DELAY)
        if patience_ends is not None:
            last_news = patience_ends - _FRESH_NEWS_BEFORE_DEADLINE
            if acked_at < last_news and self._due - self._interval < last_news:
                due = min(due, last_news)
        return due
