"""Where this client's program says that it is, and since when it has been at work there."""

from __future__ import annotations


class OwnProgram:
    """Told from outside, by any thread; whoever calls `wait_begins` and `wait_ends` holds a lock.

    Attributes:
        mark: the step that the program last said it has got to, and when it got there.
    """

    def __init__(self) -> None:
        self.mark: tuple[int, float] | None = None
        self._num_waits = 0
        self._waited_at = 0.0
        self._has_ended = False

    def report(self, step: int, now: float) -> None:
        """Note the step that the program is at."""
        if self.mark is None or self.mark[0] != step:
            self.mark = (step, now)

    def wait_begins(self) -> None:
        """Note that a call waits for other clients."""
        self._num_waits += 1

    def wait_ends(self, now: float) -> None:
        """Note that such a call is over: the time that it took is not the program's own."""
        self._num_waits -= 1
        self._waited_at = now

    def ends(self) -> None:
        """Note that it wants to shut down: from now on it waits for the others."""
        self._has_ended = True

    def step_of(self, now: float) -> tuple[int, float] | None:
        """Return the step that the program is at, and for how many seconds."""
        return None if self.mark is None else (self.mark[0], now - self.mark[1])

    def busy(self, now: float) -> float:
        """Return for how many seconds it has been at work: since it got to its step, or last waited for others."""
        if self.mark is None or self._num_waits > 0 or self._has_ended:
            return 0.0
        return now - max(self.mark[1], self._waited_at)
