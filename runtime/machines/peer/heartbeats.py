"""The schedule of a peer's heartbeats."""

from __future__ import annotations

from collections import deque

from msgspec.structs import replace

from ....transport.wire.messages import Heartbeat, Message
from ..phases import Phase

_TOLD = (Phase.COMMIT, Phase.READY, Phase.LEAVING)
"""Phases of a client that the coordinator knows of by a message of their own."""

_UNANSWERED_MAX = 1024
"""Heartbeats of which it is known when they were sent: far more than a coordinator owes answers to that is not lost."""

_FRESH_NEWS_BEFORE_DEADLINE = 0.25
"""Seconds before a time-out of the bring-up: time for the answer to a heartbeat, whose news the error text names."""


def revised(message: Message) -> Message:
    """Return a message as it is sent over another connection, where it has waited for that.

    The wave that a heartbeat reports is older then than it says: the next report tells what is true.
    """
    return replace(message, group=()) if isinstance(message, Heartbeat) and message.group else message


class Heartbeats:
    """One peer's heartbeats: when they are due, and soon after a phase that lasts has begun.

    Args:
        report_delay: seconds that a new phase has to last before it is reported out of turn.

    Attributes:
        sent: their number so far.
        sent_at: when the last was sent; the registration was the first, and before it there is none.
        answered_at: when the last was sent that was answered, if one was.
    """

    def __init__(self, report_delay: float) -> None:
        self._report_delay = report_delay
        self.sent_at: float | None = None
        self.answered_at: float | None = None
        self._unanswered: deque[tuple[int, float]] = deque(maxlen=_UNANSWERED_MAX)
        self._phase = Phase.CONNECT
        self._phase_changed_at: float | None = None
        self.sent = 0

    def begin(self, now: float) -> None:
        """Begin: the registration was the first."""
        self.sent_at = now

    def phase_changed(self, phase: Phase, now: float) -> None:
        """Note that a new phase of this client has begun."""
        self._phase_changed_at = None if phase in _TOLD else now

    def send(self, phase: Phase, now: float) -> int:
        """Note that one is sent now; returns its number."""
        self.sent += 1
        self.sent_at = now
        self._phase = phase
        self._phase_changed_at = None
        self._unanswered.append((self.sent, now))
        return self.sent

    def answered(self, number: int) -> None:
        """Note that one was answered, and with it all before."""
        while self._unanswered and self._unanswered[0][0] <= number:
            self.answered_at = self._unanswered.popleft()[1]

    def due(self, regular: float, phase: Phase, updated_at: float, patience_ends: float | None) -> float:
        """Return when the next is due, after the first.

        Args:
            regular: when one is due unless something is to be told.
            phase: of this client, now.
            updated_at: when the coordinator last answered.
            patience_ends: when this client will give up, if it will: shortly before, it asks for fresh news, so that
                its error names the clients that are missing then.
        """
        assert self.sent_at is not None
        due = regular
        if self._phase_changed_at is not None and phase is not self._phase:
            due = min(due, self._phase_changed_at + self._report_delay)
        if patience_ends is not None:
            last_news = patience_ends - _FRESH_NEWS_BEFORE_DEADLINE
            if updated_at < last_news and self.sent_at < last_news:
                due = min(due, last_news)
        return due
