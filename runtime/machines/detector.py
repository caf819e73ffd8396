"""The judgement of silence: when a client was last heard, and whether the judge itself was listening."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

_UNREAD_PAUSE = 0.05
"""Seconds after which a judge that has unread events looks again: it would spin otherwise, and not read them."""

_LOOK_INTERVAL = 0.1
"""Seconds for which one look at all clients serves those who ask for the late ones: each answer to a heartbeat does."""

_EVER = float("inf")

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

    A sign of life costs the same however many clients there are: all are looked at only when the one that was heard the
    longest ago, as far as that is known, may be late.
    """

    def __init__(self, timeout: float, interval: float) -> None:
        self.timeout = timeout
        self._interval = interval
        self._last_heard: dict[int, float] = {}
        self._heard_since = _EVER  # all were heard then, or later
        self._looked_at: float | None = None
        self._looked_for = 0.0
        self._nearly_late: list[int] = []
        self._last_awake: float | None = None
        self._listening_since: float | None = None
        self._slept = 0.0
        self._caught_up_at: float | None = None

    def judge_by(self, timeout: float, interval: float, now: float) -> None:
        """Judge by another timeout from now on; whoever is late by then has it once more."""
        self._slept = self.slept(now)
        self.timeout, self._interval = timeout, interval
        self._listening_since = self._last_awake = now

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

    def heard(self, client_id: int, at: float) -> None:
        """Note a sign of life, which was given at a time, or later."""
        known = self._last_heard.get(client_id)
        if known is None:
            self._heard_since = min(self._heard_since, at)
        if known is None or known < at:
            self._last_heard[client_id] = at

    def all_heard(self, client_ids: Iterable[int], at: float) -> None:
        """Note a sign of life of several clients; of those that are judged."""
        for client_id in client_ids:
            known = self._last_heard.get(client_id)
            if known is not None and known < at:
                self._last_heard[client_id] = at

    def unheard(self, client_id: int, now: float) -> float:
        """Return for how many seconds a client was silent while the judge listened; 0 for one that is not judged."""
        now = now if self._caught_up_at is None else min(now, self._caught_up_at)
        listened_since = now if self._listening_since is None else self._listening_since
        return now - max(self._last_heard.get(client_id, now), listened_since)

    def judges(self, client_id: int) -> bool:
        """Return whether silence of a client is judged."""
        return client_id in self._last_heard

    def forget(self, client_id: int) -> None:
        """Stop judging a client."""
        self._last_heard.pop(client_id, None)

    def overdue(self, now: float, age: float, most: int) -> list[tuple[int, float]]:
        """Return the clients not heard for more than `age` seconds, at `most` so many: their seconds, longest first."""
        if now - self._heard_since <= age:
            return []
        if self._looked_at is None or self._looked_for != age or now - self._looked_at > _LOOK_INTERVAL:
            # With those that may be late before it looks again.
            self._looked_at, self._looked_for = now, age
            self._nearly_late = self._not_heard_since(now + _LOOK_INTERVAL - age)
        ages = ((client_id, now - self._last_heard.get(client_id, now)) for client_id in self._nearly_late)
        return list(itertools.islice((late for late in ages if late[1] > age), most))

    def silent(self, now: float) -> list[tuple[int, float]]:
        """Return the clients to be declared dead, each with the seconds since its heartbeat was due.

        The first is judged by when its next heartbeat was due, as it may have fallen silent just before. With it go all
        that have not been heard for the timeout: they may have fallen silent at the same moment.
        """
        now = now if self._caught_up_at is None else min(now, self._caught_up_at)
        if now < self._silence_due():
            return []
        silent = self._not_heard_since(now - self.timeout)
        if now < self._silence_due():  # they have been looked at again
            return []
        return [(client_id, now - self._last_heard[client_id] - self._interval) for client_id in silent]

    def deadline(self) -> float | None:
        """Return when to wake this next: to judge, or to show that the judge is awake."""
        if not self._last_heard or self._last_awake is None:
            return None
        due = self._silence_due()
        if due <= self._last_awake and self._caught_up_at is not None:
            due = self._last_awake + _UNREAD_PAUSE
        return min(due, self._last_awake + self._interval)

    def _silence_due(self) -> float:
        """Return when the client that was heard the longest ago, as far as is known, is to be declared dead.

        One expression for the deadline and for the judgement: two that differ by a rounding make a wake in vain.
        """
        if self._listening_since is None:
            return _EVER
        return max(self._heard_since + self._interval, self._listening_since) + self.timeout

    def _not_heard_since(self, moment: float) -> list[int]:
        """Return the clients that were not heard after a moment, the one heard longest ago first."""
        heard = self._last_heard
        self._heard_since = min(heard.values(), default=_EVER)
        late = [] if self._heard_since > moment else [client_id for client_id, at in heard.items() if at <= moment]
        return sorted(late, key=heard.__getitem__)


class Lag:
    """The lateness of a machine: a process that was stopped finds its deadlines past, and unread events that meet them.

    It reads first, for a moment, and judges then, by what it has read.
    """

    def __init__(self) -> None:
        self._reads_until = float("-inf")
        self._has_read = False

    def woken(self, due: float | None, now: float) -> None:
        """Note that the machine runs at `now`, and was due at `due`, which `after` has returned."""
        if self.is_reading(now):
            return
        late = 0.0 if due is None else now - due
        # What was due while it read it judges next, however late it is then: otherwise it might never do so.
        has_read = self._has_read and due is not None and due <= self._reads_until
        self._has_read = late > _LATE and not has_read
        if self._has_read:
            self._reads_until = now + min(max(_READING_SHARE * late, _READING_MIN), _READING_MAX)

    def is_reading(self, now: float) -> bool:
        """Return whether it still reads its backlog, and must not judge."""
        return now < self._reads_until

    def after(self, due: float) -> float:
        """Return the earliest time of a judgement that is due at `due`."""
        return max(due, self._reads_until)
