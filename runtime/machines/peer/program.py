"""The position of this client's program, and the time for which it has been at work there (pure)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProgressReported:
    """An event of the peer's machine: the state of its program has changed.

    Attributes:
        step: the last step that the program reported.
        reached_at: when it got there.
        is_waiting: whether one of its calls waits for other clients.
        waited_until: when the last wait that is over ended.
    """

    step: int
    reached_at: float
    is_waiting: bool
    waited_until: float

    def age(self, now: float) -> float:
        """Return for how many seconds the program has been at its step."""
        return now - self.reached_at

    def busy(self, now: float) -> float:
        """Return for how many seconds it has been at work: since it got to its step, or last waited for others."""
        return 0.0 if self.is_waiting else now - max(self.reached_at, self.waited_until)


def place_of(program: ProgressReported | None, now: float, *, is_leaving: bool) -> tuple[int, float, float]:
    """Return the step of a program, and the seconds for which it has been there, and at work there."""
    if program is None:
        return -1, -1.0, 0.0
    # A client that leaves waits for the others.
    return program.step, program.age(now), 0.0 if is_leaving else program.busy(now)


class OwnProgram:
    """Collects the reports and the waits of one program. Not for two threads at once."""

    def __init__(self) -> None:
        self._mark: tuple[int, float] | None = None
        self._num_waits = 0
        self._waited_until = 0.0

    def report(self, step: int, now: float) -> None:
        """Note the step of the program; one that is reported again is no progress."""
        if self._mark is None or self._mark[0] != step:
            self._mark = (step, now)

    def wait_begins(self) -> None:
        """Note that a call waits for other clients."""
        self._num_waits += 1

    def wait_ends(self, now: float) -> None:
        """Note that such a call is over: the time that it took is not the program's own."""
        self._num_waits -= 1
        self._waited_until = now

    @property
    def is_waiting(self) -> bool:
        """Whether a call waits for other clients."""
        return self._num_waits > 0

    def state(self) -> ProgressReported | None:
        """Return the event for the machine; `None` where the program has reported no step yet."""
        return None if self._mark is None else ProgressReported(*self._mark, self.is_waiting, self._waited_until)
