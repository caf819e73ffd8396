"""The cost model: seconds of a process's event loop for messages, bytes and calls, in which it does nothing else.

Charged are what is counted (messages, bytes, calls), never what a clock says: a seed decides everything. The figures
are those of `python -m tests.simulation.calibrate` on one core of an AMD EPYC under Python 3.11, with uvloop.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from bringup.transport.wire import control
from bringup.transport.wire.messages import HeartbeatAck, Message, Shared

K = TypeVar("K")

MESSAGE = 55e-6
"""To receive a message of a session and act on it, or to send one: half of a heartbeat and its answer, 105 us.

A message that is told to all takes 49 us for each. Where nothing else happens, the two take 530 us: gRPC's threads are
woken up for each. That is not charged, as such a process has the time.
"""

ACCEPT = 550e-6
"""For the coordinator to accept a connection, and to begin a session: registering and `Formed` take 690 us with it."""

LINK_MESSAGE = 25e-6
"""To take a message from a neighbour's link, and to pass it on: 11 us, and as much for what is decided in between."""

HOP = 12e-6
"""To receive a value from the left neighbour in a collective, and to send it on. Its bytes are not charged: large ones
travel in segments, which all links carry at once."""

ENCODED_BYTE = 0.007e-6
"""Of a message that is encoded (0.002 us) or decoded (0.007 us, its texts looked at)."""

SERVICE_MESSAGE = 15e-6
"""To receive or send a message of the coordination services."""

SERVICE_BYTE = 0.008e-6
"""Of such a message."""

CALL = 0.1e-6
"""A call of Python code, with what stands around it and the memory that it looks at (0.03 us where it is near)."""

_CALLS_FREE = 1000
"""Of one step: short ones are paid for with the message that caused them, so that what is cached changes nothing."""

_ACK_BYTES = 10
_PART_BYTES = 12
_KNOWN_MAX = 4096


def slack(num_clients: int) -> float:
    """Return by how many seconds work may delay what must happen: all connect, and some messages with every client."""
    return num_clients * (ACCEPT + 8 * MESSAGE)


class Letter(NamedTuple):
    """A received message: decoded, with its size in bytes."""

    message: Any
    size: int


class Mail:
    """The wire form of messages, by the codec that ships, and what it costs to make and to read.

    What one client says, others say too: the same message is encoded and decoded once. Everybody pays for it all the
    same, except for what the code that ships keeps as well. Answers to heartbeats, which hold most of all that is said,
    are neither encoded nor decoded.
    """

    def __init__(self) -> None:
        self._letters: dict[Message, Letter] = {}
        self._shared: dict[bytes, Letter] = {}

    def encode(self, message: Message) -> tuple[Letter, float]:
        """Return what is sent, and the seconds that it takes to make."""
        if type(message) is HeartbeatAck:
            letter = Letter(message, _ACK_BYTES + _PART_BYTES * (len(message.updates) + len(message.steps)))
            return letter, MESSAGE + ENCODED_BYTE * letter.size
        if isinstance(message, Shared):
            is_kept = hasattr(message, "wire")
            data = control.encode(message)
            letter = self._shared.get(data)
            if letter is None:
                letter = _keep(self._shared, data, Letter(control.decode(data), len(data)))
            return letter, MESSAGE if is_kept else MESSAGE + ENCODED_BYTE * len(data)
        letter = self._letters.get(message)
        if letter is None:
            data = control.encode(message)
            letter = _keep(self._letters, message, Letter(control.decode(data), len(data)))
        return letter, MESSAGE + ENCODED_BYTE * letter.size


def seconds_to_read(size: int) -> float:
    """Return how long it takes to receive a message of so many bytes and to act on it."""
    return MESSAGE + ENCODED_BYTE * size


def _keep(known: dict[K, Letter], key: K, letter: Letter) -> Letter:
    if len(known) >= _KNOWN_MAX:
        known.clear()
    known[key] = letter
    return letter


class Meter:
    """Counts the function calls of a step: a walk over all clients at each event shows as a great many of them.

    It makes a simulation several times slower. A loop that calls nothing is not seen.

    Attributes:
        calls: of the last step.
    """

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, step: Callable[[], Any]) -> tuple[Any, float]:
        """Take a step; returns what it returns, and the seconds that it takes."""
        self.calls = 0
        before = sys.getprofile()
        sys.setprofile(self._count)
        try:
            result = step()
        finally:
            sys.setprofile(before)
        return result, CALL * max(0, self.calls - _CALLS_FREE)

    def _count(self, frame: object, event: str, argument: object) -> None:
        if event == "call" or event == "c_call":
            self.calls += 1
