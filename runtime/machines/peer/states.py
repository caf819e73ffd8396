"""The states of a peer, and the phases that reports and errors show for them."""

from __future__ import annotations

import enum

from ..phases import Phase


class PeerState(enum.Enum):
    """See the theory of operation of `PeerMachine`."""

    NEW = enum.auto()
    CONNECTING = enum.auto()
    REGISTERING = enum.auto()
    WAITING = enum.auto()
    BRINGING_UP = enum.auto()
    COMMITTING = enum.auto()
    UP = enum.auto()
    LEAVING = enum.auto()
    CLOSED = enum.auto()


BEFORE_UP = (
    PeerState.CONNECTING,
    PeerState.REGISTERING,
    PeerState.WAITING,
    PeerState.BRINGING_UP,
    PeerState.COMMITTING,
)
REGISTERED = (PeerState.WAITING, PeerState.BRINGING_UP, PeerState.COMMITTING, PeerState.UP, PeerState.LEAVING)
RING_NEEDED = (PeerState.BRINGING_UP, PeerState.COMMITTING, PeerState.UP)

_PHASES = {
    PeerState.NEW: Phase.CONNECT,
    PeerState.CONNECTING: Phase.CONNECT,
    PeerState.REGISTERING: Phase.CONNECT,
    PeerState.WAITING: Phase.RENDEZVOUS,
    PeerState.COMMITTING: Phase.COMMIT,
    PeerState.UP: Phase.READY,
    PeerState.LEAVING: Phase.LEAVING,
    PeerState.CLOSED: Phase.CLOSED,
}


def phase_of(state: PeerState, *, has_devices: bool, is_linked: bool) -> Phase:
    """Return the phase of a peer in `state`, whose devices and whose ring may be up or not."""
    if state is not PeerState.BRINGING_UP:
        return _PHASES[state]
    if not has_devices:
        return Phase.DEVICES
    return Phase.MERGE if is_linked else Phase.RING
