"""The registered clients, and for each the changes of the others that it has not been sent yet."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from ....transport.wire.messages import HeartbeatAck, MemberInfo, MemberUpdate, Register
from ..id_ranges import pack_ids
from ..phases import Phase, furthest_behind
from ..roster import Roster

_TROUBLES_MAX = 3
"""Of those that are told in a text: one broken switch may stop every link of a large job."""


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
        """Take in its phase and its health; returns whether they are new."""
        if (self.phase, self.healthy, self.health) == (phase, healthy, health):
            return False
        self.phase, self.healthy, self.health = phase, healthy, health
        self._update = None
        return True

    def reconnect(self) -> None:
        """Count a resumption of its session."""
        self.reconnects += 1
        self._update = None

    def update(self) -> MemberUpdate:
        """Return its state for the others: one object for all of them, which is encoded once."""
        if self._update is None:
            self._update = MemberUpdate(self.client_id, self.phase, self.healthy, self.health, self.reconnects)
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
        self._changes = _ChangeLog()
        self._absentees: tuple[int, ...] | None = None

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
        self._absentees = None
        if self.first_of_a_type is None and register.device_type:
            self.first_of_a_type = register

    def move(self, member: MemberState, session: int) -> None:
        """Note that a member is reached by another session from now on."""
        del self._by_session[member.session]
        self._by_session[session] = member
        member.session, member.is_connected = session, True

    def note(self, member: MemberState, phase: str, healthy: bool, health: str) -> None:
        """Take in a member's phase and health; the others are told where they are new."""
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
        """Note that all are ready. The commit says so: it takes the place of all changes of phase."""
        self._changes = _ChangeLog()
        for member in self:
            member.note(Phase.READY, member.healthy, member.health)
            if member.reconnects or not member.healthy:
                self._changes.add(member.client_id)

    def changes_for(self, client_id: int) -> tuple[MemberUpdate, ...]:
        """Return the members that have changed since this was last called for `client_id`."""
        return tuple([self[changed].update() for changed in self._changes.read(client_id)])

    # Facts.

    def missing(self) -> tuple[int, ...]:
        """Return the clients that have not registered, or, once all have, those that are furthest behind, as ranges."""
        everybody = range(self._num_clients)
        if self.are_complete:
            return pack_ids(furthest_behind({client_id: self[client_id].phase for client_id in everybody}))
        if self._absentees is None:
            self._absentees = pack_ids(client_id for client_id in everybody if client_id not in self)
        return self._absentees

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


class _ChangeLog:
    """Which members have changed since each client last read it. Costs the number of changes, not of clients."""

    def __init__(self) -> None:
        self._sequence = 0
        self._changed: OrderedDict[int, int] = OrderedDict()
        self._read: dict[int, int] = {}

    def add(self, client_id: int) -> None:
        self._sequence += 1
        self._changed[client_id] = self._sequence
        self._changed.move_to_end(client_id)

    def read(self, client_id: int) -> list[int]:
        seen = self._read.get(client_id, 0)
        self._read[client_id] = self._sequence
        changes: list[int] = []
        for changed, sequence in reversed(self._changed.items()):
            if sequence <= seen:
                break
            changes.append(changed)
        return changes


def info_of(r: Register) -> MemberInfo:
    """Return the public facts about a client."""
    return MemberInfo(r.client_id, r.address, r.hostname, r.pid, r.incarnation, r.link_address)


def welcome(host: Register) -> HeartbeatAck:
    """Return the answer to a registration, which says where client 0 is, also before that has registered itself.

    The missing clients are named in answers to heartbeats: here they would cost the square of the number of clients.
    """
    return HeartbeatAck(0, (), (), (), host=(info_of(host),))
