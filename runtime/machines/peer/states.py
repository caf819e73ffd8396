"""The states of a peer: see the theory of operation in `machine`."""

from __future__ import annotations

import enum

from ..phases import Phase


class PeerState(enum.Enum):
    """The states, in their order.

    Attributes:
        phase: the phase that reports and errors show for it; while the job comes up, `PeerMachine.phase` knows more.
    """

    NEW = (0, Phase.CONNECT)
    CONNECTING = (1, Phase.CONNECT)
    REGISTERING = (2, Phase.CONNECT)
    WAITING = (3, Phase.RENDEZVOUS)
    BRINGING_UP = (4, Phase.RING)
    COMMITTING = (5, Phase.COMMIT)
    UP = (6, Phase.READY)
    LEAVING = (7, Phase.LEAVING)
    CLOSED = (8, Phase.CLOSED)

    def __init__(self, _: int, phase: Phase) -> None:
        self.phase = phase


BEFORE_UP = (
    PeerState.CONNECTING,
    PeerState.REGISTERING,
    PeerState.WAITING,
    PeerState.BRINGING_UP,
    PeerState.COMMITTING,
)
REGISTERED = (PeerState.WAITING, PeerState.BRINGING_UP, PeerState.COMMITTING, PeerState.UP, PeerState.LEAVING)
RING_NEEDED = (PeerState.BRINGING_UP, PeerState.COMMITTING, PeerState.UP)
