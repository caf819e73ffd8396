"""When to try again, and when to look a name up again: pure, so that what is simulated is what ships."""

from __future__ import annotations

import enum
from dataclasses import dataclass

CONNECT_TIMEOUT = 3.0
"""Seconds that a TCP connection may take: the kernel asks at 0 and 1 s."""

LOOKUP_TIMEOUT = 15.0
"""Seconds after which a look-up counts as failed, and another may begin beside it."""

_RETRY_DELAY_MIN = 0.004
_RETRY_DELAY_MAX = 0.25
_RETRY_DELAY_RATIO = 0.1
_LOOKUP_DELAY_MIN = 0.25
_LOOKUP_DELAY_MAX = 10.0


class TroubleKind(enum.Enum):
    """How an attempt to reach somebody failed."""

    UNRESOLVED = "the name does not resolve"
    UNANSWERED = "no answer"
    REFUSED = "every endpoint of the address refuses connections"
    BROKEN = "the connection ended before an answer"
    DENIED = "the answer is no"


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why an attempt failed; `text` says it to a person."""

    kind: TroubleKind
    text: str


class Goal(enum.Enum):
    """What somebody is to be reached for."""

    COORDINATOR = "the coordinator, which may come late"
    SESSION = "the coordinator that knows this session"
    LINK = "the right neighbour in the ring"
    SERVICES = "the coordination services"
    PROBE = "a suspect"


# A coordinator that was there and refuses has gone. A refused link may be the fault of what lies between: whether the
# neighbour has died others find out, and only itself can deny it.
_FINAL: dict[Goal, tuple[TroubleKind, ...]] = {
    Goal.COORDINATOR: (),
    Goal.SESSION: (TroubleKind.REFUSED,),
    Goal.LINK: (TroubleKind.DENIED,),
    Goal.SERVICES: (),
    Goal.PROBE: (TroubleKind.REFUSED,),
}


class Attempts:
    """The attempts to reach somebody for one `goal`, the first of them at the time `now`, in seconds."""

    def __init__(self, goal: Goal, now: float) -> None:
        self._goal = goal
        self._began = now

    def delay(self, kind: TroubleKind, now: float) -> float | None:
        """Return how many seconds to wait after an attempt that failed, or `None` where it was the last."""
        return None if kind in _FINAL[self._goal] else retry_delay(now - self._began)


def retry_delay(elapsed: float) -> float:
    """Return how long to wait before the next attempt after `elapsed` seconds of attempts.

    In proportion to the time already spent, so that the wait for a coordinator that starts late is overshot by a
    tenth at most, whatever the start order, and an hour of waiting costs no more than four attempts a second.
    """
    return min(max(elapsed * _RETRY_DELAY_RATIO, _RETRY_DELAY_MIN), _RETRY_DELAY_MAX)


def lookup_delay(elapsed: float) -> float:
    """Return how long to wait before a name is looked up again after `elapsed` seconds without success.

    In proportion, too, but no more than every ten seconds in the long run: all clients of a job share one resolver.
    """
    return min(max(elapsed * _RETRY_DELAY_RATIO, _LOOKUP_DELAY_MIN), _LOOKUP_DELAY_MAX)


class NameRecord:
    """What is known of one name: it is looked up when it is first needed, and again while it leads to nobody.

    Attributes:
        hosts: the IP addresses that it was last known to have, the one that answered last first.
        error: why it could not be looked up the last time, or nothing.
    """

    def __init__(self, jitter: float = 0.0) -> None:
        """`jitter`, from 0 to 1, spreads the look-ups of clients that begin together."""
        self.hosts: tuple[str, ...] = ()
        self.error = ""
        self._stretch = 1.0 + 0.5 * jitter
        self._asked_at: float | None = None
        self._is_asking = False
        self._troubled_since: float | None = None

    def is_asking(self, now: float) -> bool:
        """Return whether a look-up is on its way, which has not taken too long yet."""
        return self._is_asking and self._asked_at is not None and now - self._asked_at < LOOKUP_TIMEOUT

    def begin(self, now: float) -> bool:
        """Begin an attempt to reach it; returns whether to look the name up now."""
        if self._troubled_since is None:
            self._troubled_since = now
            is_due = not self.hosts
        else:
            assert self._asked_at is not None
            is_due = now - self._asked_at >= self._stretch * lookup_delay(now - self._troubled_since)
        if not is_due or self.is_asking(now):
            return False
        self._asked_at, self._is_asking = now, True
        return True

    def found(self, hosts: tuple[str, ...]) -> None:
        """A look-up has answered. The host that answered last stays the first to be tried, where it is still there."""
        best = self.hosts[:1]
        self.hosts = tuple(sorted(hosts, key=lambda host: host not in best))
        self.error = ""
        self._is_asking = False

    def failed(self, error: str) -> None:
        """A look-up has failed: what was known is still the best guess."""
        self.error = error
        self._is_asking = False

    def worked(self, host: str) -> None:
        """Somebody who was looked for has answered there: the name need not be looked up until that fails."""
        self._troubled_since = None
        if host in self.hosts[1:]:
            self.hosts = (host, *(other for other in self.hosts if other != host))
