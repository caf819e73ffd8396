"""Bounds and time-outs of sessions, each with its reason."""

from __future__ import annotations

import enum

from ....errors import DeviceFailedError, PeerFailedError, RendezvousTimeoutError
from ....transport.crowds import crowd_timeout

REDIAL_DELAY = 0.05
"""Seconds between a connection that was of no use and the next: a host that accepts and hangs up is not asked in a
tight loop."""

OPEN_TIMEOUT = 2.0
"""Seconds that a connection has to answer `OpenSession`: far longer than a live host takes, and short enough for
another connection to save the session before its silence is judged."""

OPEN_TIMEOUT_MAX = 32.0
"""The same where several connections in turn did not answer: each costs an overloaded host more time."""

REGISTRATION_TIMEOUT = 5.0
"""Seconds that an accepted connection has to send its first message, in a crowd of one: a stranger must not hold it for
ever."""

END_TIMEOUT = 1.0
"""Seconds that the other side has to take in the last messages of a session, and to say so: some round trips of a slow
network. The user waits for it."""

LATECOMERS_TIMEOUT = 1.0
"""Seconds that a client 0 which failed stays for clients that do not know of it yet: they dial several times in it."""

SURVIVORS_TIMEOUT = 0.1
"""The same where another client failed: the user of this one is to hear of that at once, too."""

ACKNOWLEDGE_EVERY = 16
"""Messages received between two acknowledgements: so many, and those on their way, are kept by the other side."""

ACKNOWLEDGE_BYTES = 16 * 1024
"""The same in bytes: client 0 keeps so many for each of thousands of clients, also while nobody calls any more."""

WINDOW = 2 * ACKNOWLEDGE_EVERY
"""Messages kept at which a long answer waits; half of them may have been received and not been acknowledged yet."""

CONTROL_KEPT_MAX = 10_000
"""Unacknowledged messages of the control plane: a few a second are sent, and a silent client is dead long before."""

SERVICES_KEPT_MAX = 1_000_000
"""Unacknowledged messages of the services: one for each concurrent call of a client whose link is broken."""

ENDED_KEPT_MAX = 10_000
"""Sessions that have ended and are still known as such: they may be asked for within `END_TIMEOUT` of their end."""

UNTOUCHED_KEPT_MAX = 1000
"""Sessions that are away, and in which nothing was said. A client whose connection breaks so early begins another one,
each time: without a bound they would stay until the job ends. One that is asked for after all begins anew."""


class Ending(enum.Enum):
    """Why client 0 ends its coordinator, which decides for how long it stays."""

    IN_ORDER = "all clients shut down together"
    FAILED = "this client failed, or its coordinator did"
    SURVIVED = "another client failed"
    GAVE_UP = "the user of this client gave up, or the others have waited for as long"


def ending_of(error: BaseException | None, client_id: int, *, has_left: bool, gave_up: bool) -> Ending:
    """Return why a client ends, given the error that it raises, if any."""
    if has_left:
        return Ending.IN_ORDER
    if gave_up or isinstance(error, RendezvousTimeoutError):
        return Ending.GAVE_UP
    is_own = isinstance(error, DeviceFailedError) and error.client_id == client_id
    return Ending.SURVIVED if isinstance(error, PeerFailedError) and not is_own else Ending.FAILED


def open_timeout(num_unanswered: int, patience: float) -> float:
    """Return for how many seconds to wait for an answer to `OpenSession`, after so many connections without one.

    The second has no longer than the first, as there may be no time for a third before silence is judged.
    """
    return max(min(patience * 2.0 ** max(num_unanswered - 1, 0), OPEN_TIMEOUT_MAX), patience)


def registration_timeout(num_clients: int) -> float:
    """Return for how many seconds an accepted connection may be silent, in a job of so many clients."""
    return crowd_timeout(REGISTRATION_TIMEOUT, num_clients)


def flush_timeout(ending: Ending, heartbeat_timeout: float, num_clients: int) -> float:
    """Return for how many seconds the clients that are there may take to hear of the end.

    In a job that ends in order nobody waits for an error, and a client that is not dismissed raises one.
    """
    seconds = heartbeat_timeout if ending is Ending.IN_ORDER else END_TIMEOUT
    return crowd_timeout(seconds, num_clients)


def stay_timeout(ending: Ending) -> float:
    """Return for how many seconds to stay for clients that are about to come, or to come back.

    They would find nobody there, and wait for the whole of their patience, or take the coordinator for dead.
    """
    match ending:
        case Ending.GAVE_UP:
            return 0.0
        case Ending.SURVIVED:
            return SURVIVORS_TIMEOUT
    return LATECOMERS_TIMEOUT
