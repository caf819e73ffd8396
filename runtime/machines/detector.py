"""The judgement of silence: when a client was last heard, and whether the judge itself was listening."""

from __future__ import annotations

import itertools
from collections import OrderedDict

_UNREAD_PAUSE = 0.05
"""Seconds after which a judge that has unread events looks again: it would spin otherwise, and not read them."""

_LATE = 0.1
"""Seconds that a loop under load is late for a deadline; beyond that, the process was stopped or starved."""

_READING_MIN = 0.25
_READING_MAX = 1.0
_READING_SHARE = 0.1
"""A late machine reads for this share of its lateness, as the backlog grows with it, within both bounds in seconds:
what a socket holds is read in less, and no verdict is delayed by more than a second."""


class Detector:
    """The time of each client's last sign of life, and the verdict on silence.

    The judge takes its own sleep into account: when it was not run for longer than it asked for (a stopped process, a
    suspended machine, a starved loop), the heartbeats of that time may be waiting unread, so it blames nobody until it
    has listened again for a full timeout. Nor does it take for silence what is only unread: it judges as of the time at
    which it had read all that had come.
    """

    def __init__(self, timeout: float, interval: float) -> None:
        self.timeout = timeout
        self._interval = interval
        # In the order in which they were last heard, so that the first is always the most overdue.
        self._last_heard: OrderedDict[int, float] = OrderedDict()
        self._last_awake: float | None = None
        self._listening_since: float | None = None
        self._slept = 0.0
        self._caught_up_at: float | None = None

    def awake(self, now: float) -> None:
        """Note that the judge runs: call it at every event, and at least once an interval."""
        if self._last_awake is None:
            self._listening_since = now
        elif (pause := now - self._last_awake) > 2 * self._interval:
            self._slept = pause + self.slept(now)
            self._listening_since = now
        self._last_awake = now

    def caught_up(self, now: float) -> None:
        """Note that nothing was unread at `now`. Without any such call, nothing ever counts as unread."""
        self._caught_up_at = now

    def slept(self, now: float) -> float:
        """Return the seconds for which the judge did not run, if it woke up within the last timeout; otherwise 0."""
        is_lately = self._listening_since is not None and now - self._listening_since < self.timeout
        return self._slept if is_lately else 0.0

    def may_have_given_up(self, client_id: int, now: float) -> bool:
        """Return whether a client that has gone may have given up a silent judge.

        It is not said of one that was heard well after the judge woke up, or else lately.
        """
        patience = self.timeout - self._interval
        heard_at = self._last_heard.get(client_id, now)
        woke_at = now if self._listening_since is None else self._listening_since
        has_slept = self.slept(now) >= patience and heard_at <= woke_at + self._interval
        return has_slept or now - heard_at >= patience

    def heard(self, client_id: int, now: float) -> None:
        """Note a sign of life."""
        self._last_heard[client_id] = now
        self._last_heard.move_to_end(client_id)

    def forget(self, client_id: int) -> None:
        """Stop judging a client."""
        self._last_heard.pop(client_id, None)

    def overdue(self, now: float, age: float, most: int) -> list[tuple[int, float]]:
        """Return the clients not heard for more than `age` seconds, at `most` so many: their seconds, longest first."""
        ages = ((client_id, now - last_heard) for client_id, last_heard in self._last_heard.items())
        return list(itertools.islice(itertools.takewhile(lambda late: late[1] > age, ages), most))

    def silent(self, now: float) -> list[tuple[int, float]]:
        """Return the clients to be declared dead, each with the seconds since its heartbeat was due.

        The first is judged by when its next heartbeat was due, as it may have fallen silent just before. With it go all
        that have not been heard for the timeout: they may have fallen silent at the same moment.
        """
        now = now if self._caught_up_at is None else min(now, self._caught_up_at)
        if self._listening_since is None or now - self._listening_since < self.timeout:
            return []
        ages = ((client_id, now - last_heard) for client_id, last_heard in self._last_heard.items())
        late = list(itertools.takewhile(lambda silent: silent[1] >= self.timeout, ages))
        if not late or late[0][1] < self.timeout + self._interval:
            return []
        return [(client_id, age - self._interval) for client_id, age in late]

    def deadline(self) -> float | None:
        """Return when to wake this next: to judge, or to show that the judge is awake."""
        if not self._last_heard or self._last_awake is None or self._listening_since is None:
            return None
        due = max(next(iter(self._last_heard.values())) + self._interval, self._listening_since) + self.timeout
        if due <= self._last_awake and self._caught_up_at is not None:
            due = self._last_awake + _UNREAD_PAUSE
        return min(due, self._last_awake + self._interval)


class Lag:
    """The lateness of a machine: a process that was stopped finds its deadlines past, and unread events that meet them.

    It reads first, for a moment, and judges then, by what it has read.
    """

    def __init__(self) -> None:
        self._reads_until = float("-inf")
        self._has_read = False

    def woken(self, due: float | None, now: float) -> None:
        """Note that the machine runs at `now`, and was due at `due`."""
        if self.is_reading(now):
            return
        late = 0.0 if due is None else now - due
        # After each such moment it judges, however late it is then: otherwise it might never do so.
        self._has_read = late > _LATE and not self._has_read
        if self._has_read:
            self._reads_until = now + min(max(_READING_SHARE * late, _READING_MIN), _READING_MAX)

    def is_reading(self, now: float) -> bool:
        """Return whether it still reads its backlog, and must not judge."""
        return now < self._reads_until

    def after(self, due: float) -> float:
        """Return the earliest time of a judgement that is due at `due`."""
        return max(due, self._reads_until)
