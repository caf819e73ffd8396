"""The registered clients, and their changes, which all are told."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from ....transport.wire.messages import HeartbeatAck, MemberInfo, MemberUpdate, Register
from ..phases import Phase, furthest_behind
from ..roster import Roster
from .change_log import ChangeLog

_TROUBLES_MAX = 3
"""Of those that are told in a text: one broken switch may stop every link of a large job."""

_CHANGES_MAX = 64
"""Of those in one answer: where a switch comes back, all clients have changed, and all of them are to be told."""


@dataclass(slots=True)
class MemberState:
    """A client that has registered.

    Attributes:
        register: its registration.
        session: the one it is reached by, or was last.
        attempt: which of its registrations that began.
        trouble: why its ring link could not be opened, by its last report of that.
    """

    register: Register
    session: int
    phase: str = Phase.RENDEZVOUS
    healthy: bool = True
    health: str = ""
    is_leaving: bool = False
    is_connected: bool = True
    reconnects: int = 0
    attempt: int = 1
    trouble: str = ""
    _update: MemberUpdate | None = None

    @property
    def client_id(self) -> int:
        """The id of the client."""
        return self.register.client_id

    def note(self, phase: str, healthy: bool, health: str) -> bool:
        """Take in its phase and its health; returns whether its health is new."""
        self.phase = phase
        if (self.healthy, self.health) == (healthy, health):
            return False
        self.healthy, self.health = healthy, health
        self._update = None
        return True

    def reconnect(self) -> None:
        """Count a resumption of its session."""
        self.reconnects += 1
        self._update = None

    def update(self) -> MemberUpdate:
        """Return its state for the others: one object for all of them, which is encoded once."""
        if self._update is None:
            self._update = MemberUpdate(self.client_id, self.healthy, self.health, self.reconnects)
        return self._update


class Members:
    """All members, by client id and by session; iterates over them in the order of their registrations.

    Args:
        num_clients: the number of clients in the job.

    Attributes:
        first_of_a_type: the first registration that tells its type of devices.
    """

    def __init__(self, num_clients: int) -> None:
        self.first_of_a_type: Register | None = None
        self._num_clients = num_clients
        self._num_leaving = 0
        self._by_id: dict[int, MemberState] = {}
        self._by_session: dict[int, MemberState] = {}
        self._changes = ChangeLog()

    def __iter__(self) -> Iterator[MemberState]:
        return iter(self._by_id.values())

    def __contains__(self, client_id: int) -> bool:
        return client_id in self._by_id

    def __getitem__(self, client_id: int) -> MemberState:
        return self._by_id[client_id]

    def get(self, client_id: int) -> MemberState | None:
        """Return a member, or `None` where that client has not registered."""
        return self._by_id.get(client_id)

    def at(self, session: int) -> MemberState | None:
        """Return the member at the other end of a session."""
        return self._by_session.get(session)

    @property
    def are_complete(self) -> bool:
        """Whether all clients have registered."""
        return len(self._by_id) == self._num_clients

    @property
    def all_leave(self) -> bool:
        """Whether all members are leaving."""
        return self._num_leaving == len(self._by_id)

    @property
    def sessions(self) -> tuple[int, ...]:
        """The sessions of all members."""
        return tuple(self._by_session)

    # Changes.

    def add(self, register: Register, session: int) -> None:
        """Add a client."""
        member = MemberState(register, session, attempt=register.attempt)
        self._by_id[register.client_id] = self._by_session[session] = member
        if self.first_of_a_type is None and register.device_type:
            self.first_of_a_type = register

    def move(self, member: MemberState, session: int) -> None:
        """Note that a member is reached by another session from now on."""
        del self._by_session[member.session]
        self._by_session[session] = member
        member.session, member.is_connected = session, True

    def note(self, member: MemberState, phase: str, healthy: bool, health: str) -> None:
        """Take in a member's phase and health; the others are told where its health is new."""
        if member.note(phase, healthy, health):
            self._changes.add(member.client_id)

    def leave(self, member: MemberState) -> None:
        """Note that a member leaves."""
        member.is_leaving = True
        self._num_leaving += 1
        self.note(member, Phase.LEAVING, member.healthy, member.health)

    def reconnect(self, member: MemberState) -> None:
        """Count a resumption of a member's session."""
        member.reconnect()
        self._changes.add(member.client_id)

    def commit(self) -> None:
        """Note that all are ready."""
        for member in self:
            member.phase = Phase.READY

    def changes_after(self, seen: int) -> tuple[tuple[MemberUpdate, ...], int]:
        """Return members that have changed since change `seen`, and the number of the change up to which these are."""
        changed, news = self._changes.after(seen, _CHANGES_MAX)
        return tuple([self[client_id].update() for client_id in changed]), news

    # Facts.

    def missing(self) -> list[int]:
        """Return the clients that have not registered."""
        return [client_id for client_id in range(self._num_clients) if client_id not in self._by_id]

    def behind(self) -> tuple[str, list[int]]:
        """Return the earliest phase of a member, and all that are in it, in order."""
        found = furthest_behind({member.client_id: member.phase for member in self})
        return next(iter(found.values())), sorted(found)

    def absent(self) -> set[int]:
        """Return the clients of the job that have no connection with the coordinator."""
        return set(range(self._num_clients)) - {member.client_id for member in self if member.is_connected}

    def roster(self) -> Roster:
        """Return the roster of a job that is complete."""
        return Roster.of(info_of(self[client_id].register) for client_id in range(self._num_clients))

    def link_trouble(self) -> str:
        """Return which ring links some still try to open, for the end of a text; empty where there are none."""
        troubled = (member for member in self if member.trouble and member.phase == Phase.RING)
        first = itertools.islice(troubled, _TROUBLES_MAX)
        return "".join(f"; client {member.client_id}: {member.trouble}" for member in first)


def info_of(r: Register) -> MemberInfo:
    """Return the public facts about a client."""
    return MemberInfo(r.client_id, r.address, r.hostname, r.pid, r.incarnation, r.link_address)


def welcome(host: Register) -> HeartbeatAck:
    """Return the answer to a registration, which says where client 0 is, also before that has registered itself.

    The missing clients are named in answers to heartbeats: here they would cost the square of the number of clients.
    """
    return HeartbeatAck(0, (), (), (), host=(info_of(host),))
