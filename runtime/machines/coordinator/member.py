"""What the coordinator knows of one client."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from ....transport.wire.messages import HeartbeatAck, MemberInfo, MemberUpdate, Register
from ..phases import Phase

_TROUBLES_MAX = 3


@dataclass(slots=True)
class Member:
    """A client that has registered.

    Attributes:
        session: the connection it is reached by, or was last.
        trouble: why its ring link could not be opened, the last time that it said so.
    """

    register: Register
    session: int
    phase: str = Phase.RENDEZVOUS
    healthy: bool = True
    health: str = ""
    is_leaving: bool = False
    is_connected: bool = True
    reconnects: int = 0
    trouble: str = ""
    _update: MemberUpdate | None = None

    def note(self, phase: str, healthy: bool, health: str) -> bool:
        """Take in what it says of itself; returns whether that is new."""
        if (self.phase, self.healthy, self.health) == (phase, healthy, health):
            return False
        self.phase, self.healthy, self.health = phase, healthy, health
        self._update = None
        return True

    def reconnect(self) -> None:
        """Note that its session was taken up again."""
        self.reconnects += 1
        self._update = None

    def update(self) -> MemberUpdate:
        """Return what the others are told of it: one object for all of them."""
        if self._update is None:
            self._update = MemberUpdate(self.register.client_id, self.phase, self.healthy, self.health, self.reconnects)
        return self._update


def roster(members: Mapping[int, Member]) -> tuple[MemberInfo, ...]:
    """Return what all are told of all, by client id."""
    return tuple([info_of(members[client_id].register) for client_id in range(len(members))])


def info_of(r: Register) -> MemberInfo:
    """Return what the others are told of a client once."""
    return MemberInfo(r.client_id, r.address, r.hostname, r.pid, r.incarnation, r.link_address)


def welcome(host: Register) -> HeartbeatAck:
    """Return the answer to a registration, which says where client 0 is, also before that has registered itself.

    Who is missing is said in answer to heartbeats: here it would cost the square of the number of clients.
    """
    return HeartbeatAck(0, (), (), (), host=(info_of(host),))


def link_trouble(members: Mapping[int, Member]) -> str:
    """Return which ring links some still try to open, for the end of a text; empty where there are none."""
    troubled = ((c, m.trouble) for c, m in members.items() if m.trouble and m.phase == Phase.RING)
    return "".join(f"; client {c}: {trouble}" for c, trouble in itertools.islice(troubled, _TROUBLES_MAX))


def absent(members: Mapping[int, Member], num_clients: int) -> set[int]:
    """Return the clients that have no connection with the coordinator."""
    return set(range(num_clients)) - {client_id for client_id, member in members.items() if member.is_connected}
