"""Whether a machine is run so late that what has come for it meanwhile may still be unread."""

from __future__ import annotations

_LATE = 0.1
_READING_MIN = 0.25
_READING_MAX = 1.0
_READING_SHARE = 0.1


class Lag:
    """A process that was stopped, or starved, finds its deadlines past, and what would have met them not read yet.

    It reads first, for a moment, and judges then, by what it has read.
    """

    def __init__(self) -> None:
        self._reads_until = float("-inf")
        self._has_read = False

    def woken(self, due: float | None, now: float) -> None:
        """Note that the machine runs now, and should have run at `due`."""
        if self.is_reading(now):
            return
        late = 0.0 if due is None else now - due
        # After each such moment it judges, however late it is then: otherwise it might never do so.
        self._has_read = late > _LATE and not self._has_read
        if self._has_read:
            self._reads_until = now + min(max(_READING_SHARE * late, _READING_MIN), _READING_MAX)

    def is_reading(self, now: float) -> bool:
        """Return whether it is not to judge yet."""
        return now < self._reads_until

    def after(self, due: float) -> float:
        """Return when it can judge what falls due."""
        return max(due, self._reads_until)
