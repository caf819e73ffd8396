"""Retry policy of dialling and of name look-ups. Pure, so that the simulator runs the policy that ships."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from .crowds import poll_delay

CONNECT_TIMEOUT = 3.0
"""Seconds that a TCP connection may take: the kernel asks at 0 and 1 s."""

LOOKUP_TIMEOUT = 15.0
"""Seconds after which a look-up counts as failed, and another may begin beside it."""

_UNTRUSTED_SECONDS = 1.2
"""For which the same address must be untrusted until that is final: a job that has just ended, with another token, may
still hold the port. With the time of an attempt, a wrong token shows within two seconds."""

# In seconds; the reasons stand with `retry_delay` and `lookup_delay`.
_RETRY_DELAY_MIN = 0.004
_RETRY_DELAY_MAX = 0.25
_RETRY_DELAY_RATIO = 0.1
_LOOKUP_DELAY_MIN = 0.25
_LOOKUP_DELAY_MAX = 10.0


class TroubleKind(enum.Enum):
    """The kind of failure of one attempt to connect."""

    UNRESOLVED = "the name does not resolve"
    UNANSWERED = "no answer"
    REFUSED = "every endpoint of the address refuses connections"
    BROKEN = "the connection ended before an answer"
    DENIED = "the answer is no"
    UNTRUSTED = "one side does not accept the other's certificate, or speaks no TLS"


@dataclass(frozen=True, slots=True)
class Trouble:
    """The failure of one attempt; `text` is for error messages."""

    kind: TroubleKind
    text: str


class Goal(enum.Enum):
    """The purpose of a connection: it decides which failures are final."""

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
    """The attempts of one client to connect.

    Args:
        goal: what for.
        now: the time at which they begin, in seconds.
        num_clients: that make attempts at the same host.
        jitter: from 0 to 1, spreads these.
    """

    def __init__(self, goal: Goal, now: float, num_clients: int = 1, jitter: float = 0.5) -> None:
        self._goal = goal
        self._began = now
        self._delay_min = poll_delay(num_clients, jitter)
        self._untrusted_since: float | None = None

    def delay(self, kind: TroubleKind, now: float) -> float | None:
        """Return the seconds until the next attempt, or `None` after a final failure."""
        if kind is not TroubleKind.UNTRUSTED:
            self._untrusted_since = None
        elif self._untrusted_since is None:
            self._untrusted_since = now
        elif now - self._untrusted_since >= _UNTRUSTED_SECONDS:
            return None
        return None if kind in _FINAL[self._goal] else max(retry_delay(now - self._began), self._delay_min)


def retry_delay(elapsed: float) -> float:
    """Return the delay before the next attempt, after `elapsed` seconds of attempts.

    In proportion to the time already spent, so that the wait for a coordinator that starts late is overshot by a
    tenth at most, whatever the start order, and an hour of waiting costs no more than four attempts a second.
    """
    return min(max(elapsed * _RETRY_DELAY_RATIO, _RETRY_DELAY_MIN), _RETRY_DELAY_MAX)


def lookup_delay(elapsed: float) -> float:
    """Return the delay before the next look-up of a name, after `elapsed` seconds without success.

    In proportion, too, but no more than every ten seconds in the long run: all clients of a job share one resolver.
    """
    return min(max(elapsed * _RETRY_DELAY_RATIO, _LOOKUP_DELAY_MIN), _LOOKUP_DELAY_MAX)


class NameRecord:
    """The state of one name: looked up at its first use, and again while connections to it fail.

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
        """Return whether a look-up is in flight and within its time-out."""
        return self._is_asking and self._asked_at is not None and now - self._asked_at < LOOKUP_TIMEOUT

    def begin(self, now: float) -> bool:
        """Begin an attempt to connect; returns whether to look the name up now."""
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
        """Take in the result of a look-up; the host that accepted last stays first in order."""
        best = self.hosts[:1]
        self.hosts = tuple(sorted(hosts, key=lambda host: host not in best))
        self.error = ""
        self._is_asking = False

    def failed(self, error: str) -> None:
        """Take in a failed look-up; the earlier result stays in use."""
        self.error = error
        self._is_asking = False

    def worked(self, host: str) -> None:
        """Note a connection to `host`: no further look-up is needed until connections fail."""
        self._troubled_since = None
        if host in self.hosts[1:]:
            self.hosts = (host, *(other for other in self.hosts if other != host))
