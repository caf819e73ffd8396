"""The sessions of simulated processes: drivers of the shipped machines over simulated connections.

Whatever becomes of connections, each message of a session arrives once, and in order: that is checked for each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from bringup.runtime.machines.session.effects import (
    Began,
    Dial,
    Drop,
    Effect,
    Effects,
    Finish,
    Finished,
)
from bringup.runtime.machines.session.machine import SessionMachine
from bringup.runtime.machines.session.table import SessionTable
from bringup.transport.wire.session_messages import OpenSession, SessionMessage

from .machine_runner import LATENESS_MAX
from .network import EVER, Stream

if TYPE_CHECKING:
    from .process import Process

_RESET = "the connection broke: Connection reset"

Reaction = Callable[[str], None]


class Numbered(NamedTuple):
    """A message, and its number in its session."""

    number: int
    message: Any


class Letter(NamedTuple):
    """A received message: decoded, with its size in bytes."""

    number: int
    message: Any
    size: int


class Connection:
    """Between a client's process and the one that hosts the coordinator, and the services.

    Attributes:
        link: what pumps a session over it at the client; `sessions`: at the host.
        number_at_client: by which the client's session knows it; likewise at the host.
        on_lost_at_client: told at the client when it ends there, unless the client ended it; likewise at the host.
    """

    def __init__(self, link: DialledSession, sessions: AcceptedSessions) -> None:
        self.link = link
        self.sessions = sessions
        self.client = client = link.process
        self.host = host = sessions.process
        network = client.world.network
        self.up = Stream(network, client.client_id, host, is_local=client is host, sender=client)
        self.down = Stream(network, host.client_id, client, is_local=client is host, sender=host)
        self.number_at_client = self.number_at_host = 0
        self.on_lost_at_client: Reaction | None = None
        self.on_lost_at_host: Reaction | None = None
        self._network = network
        client.connections[self] = None
        host.served[self] = None

    def begin(self, made: Callable[..., None], *arguments: object, is_swallowed: bool) -> None:
        """Report the connection to the client as made; the rest of its traffic may be swallowed."""
        if is_swallowed:
            self.up.drop()
            self.down.end(made, *arguments)
        else:
            self.down.put(made, *arguments)

    def close_at_client(self) -> None:
        """The client ends it, after what it sent."""
        self.on_lost_at_client = None
        self.client.connections.pop(self, None)
        self.up.end(self.lost_at_host, "the client closed its connection")

    def close_at_host(self) -> None:
        """The coordinator ends it, after what it sent."""
        self.on_lost_at_host = None
        self.host.served.pop(self, None)
        self.down.end(self.lost_at_client, "the coordinator ended the connection")

    def client_died(self, *, with_reset: bool) -> None:
        """The client's kernel ends it; where something lay unread there, with a reset, and what was sent is lost."""
        self.on_lost_at_client = None
        (self.up.reset if with_reset else self.up.end)(self.lost_at_host, "the stream broke")

    def host_died(self, *, with_reset: bool) -> None:
        """The coordinator's kernel ends it."""
        self.on_lost_at_host = None
        (self.down.reset if with_reset else self.down.end)(self.lost_at_client, _RESET)

    def break_off(self) -> None:
        """Something between the two ends it, and what is on its way is lost."""
        self.up.drop()
        self.down.drop()
        self.client.later(self._network.delay(), self.lost_at_client, _RESET)
        self.host.later(self._network.delay(), self.lost_at_host, "the stream broke: Connection reset")

    def break_off_at_client(self, late: float) -> None:
        """The client is told that it has ended, and what it has sent arrives late, when another may carry the session.

        So does the end.
        """
        self.down.drop()
        self.up.stall(late)
        reaction, self.on_lost_at_client = self.on_lost_at_client, None
        self.client.connections.pop(self, None)
        self.up.end(self.lost_at_host, "the stream broke: Connection reset")
        if reaction is not None:
            self.client.later(self._network.delay(), reaction, _RESET)

    def break_off_at_host(self, late: float) -> None:
        """The host is told that it has ended, and what it has sent arrives late, as does the end."""
        self.up.drop()
        self.down.stall(late)
        self.host.later(self._network.delay(), self.lost_at_host, "the stream broke: Connection reset")

    def lost_at_client(self, reason: str) -> None:
        """It ends at the client."""
        self.client.connections.pop(self, None)
        reaction, self.on_lost_at_client = self.on_lost_at_client, None
        self.up.drop()
        if reaction is not None:
            reaction(reason)

    def lost_at_host(self, reason: str) -> None:
        """It ends at the coordinator."""
        self.host.served.pop(self, None)
        reaction, self.on_lost_at_host = self.on_lost_at_host, None
        self.down.end(self.lost_at_client, "the coordinator ended the connection")
        if reaction is not None:
            reaction(reason)


class Alarm:
    """Wakes a machine of a process at its deadline, somewhat late."""

    def __init__(self, process: Process, wake: Callable[[], None]) -> None:
        self._process = process
        self._wake = wake
        self._armed_for: float | None = None

    def set(self, due: float | None) -> None:
        """Wake the machine at a time; a timer that is too early stays."""
        if due is None or (self._armed_for is not None and self._armed_for <= due):
            return
        self._armed_for = due
        clock, rng = self._process.world.clock, self._process.world.rng
        clock.at(max(due, clock.now) + rng.random() * LATENESS_MAX, self._process.deliver, self._ring, due)

    def _ring(self, due: float) -> None:
        if self._armed_for == due:
            self._armed_for = None
            self._wake()


class DialledSession:
    """The driver of a session at the client; a subclass for each plane dials, and handles messages and effects.

    Attributes:
        machine: the dialling side.
        dialled: the connections that are asked for, and not open yet.
        end: how the session has ended, once it has.
    """

    def __init__(self, process: Process, kept_max: int, *, begins_anew: bool) -> None:
        self.process = process
        self.machine: SessionMachine[Numbered] = SessionMachine(
            kept_max, begins_anew=begins_anew, revised=lambda kept: Numbered(kept.number, self.revised(kept.message))
        )
        self.dialled: set[int] = set()
        self.end: str | None = None
        self._kept_max = kept_max
        self._ends: dict[int, Connection] = {}
        self._alarm = Alarm(process, self._wake)
        self._num_sent = self._num_heard = 0
        self._on_finished: Callable[[], None] | None = None

    # What a plane makes of it.

    def dial(self, number: int, *, is_expected: bool) -> None:
        """Ask for a connection: `opened` or `unreachable` is called."""
        raise NotImplementedError

    def posted(self, number: int, message: Any) -> Letter:
        """Return what is sent; the work that this takes is done."""
        raise NotImplementedError

    def revised(self, message: Any) -> Any:
        """Return a message as it is sent over another connection."""
        return message

    def deliver(self, letter: Letter) -> None:
        """Take a message."""
        raise NotImplementedError

    def tell(self, effect: Effect) -> None:
        """Take news of the session."""

    # What its owner wants.

    def begin(self) -> None:
        """Begin a session."""
        self._num_sent = self._num_heard = 0
        self.perform(self.machine.begin(self.process.world.rng.getrandbits(63), self.now))

    def send(self, message: Any) -> None:
        """Bring a message to the other side."""
        self.perform(self.machine.put(Numbered(self._num_sent, message)))
        self._num_sent += 1
        kept = self.machine.num_kept
        assert kept <= self._kept_max, f"{self.process.name} keeps {kept} messages of at most {self._kept_max}"

    def finish(self, then: Callable[[], None] = lambda: None) -> None:
        """End the session; `then` happens when it has ended."""
        self._on_finished = then
        if self.machine.is_closed:
            return then()
        return self.perform(self.machine.finish(self.now))

    def abandon(self) -> None:
        """Use it no more."""
        self._on_finished = None
        self.dialled.clear()
        self.perform(self.machine.abandon())

    @property
    def carrier(self) -> Connection | None:
        """The connection that carries the session."""
        return self._ends.get(self.machine.carrier)

    # What the network brings.

    def opened(self, number: int, connection: Connection) -> None:
        """A connection was made."""
        if number not in self.dialled:
            return connection.close_at_client()
        self.dialled.discard(number)
        self._ends[number] = connection
        connection.number_at_client = number
        connection.on_lost_at_client = partial(self._lost, number)
        return self.perform(self.machine.opened(number, self.now))

    def unreachable(self, number: int, reason: str) -> None:
        """A connection cannot be made, for good."""
        if number in self.dialled:
            self.dialled.discard(number)
            self.perform(self.machine.unreachable(number, reason))

    def arrive(self, connection: Connection, message: Letter | SessionMessage) -> None:
        """A message has come."""
        number = connection.number_at_client
        if self._ends.get(number) is not connection:
            return None
        if isinstance(message, SessionMessage):
            return self.perform(self.machine.receive(number, message, self.now))
        if self.machine.take(number, message.size):
            name, expected = self.process.name, self._num_heard
            assert message.number == expected, f"{name} hears message {message.number} of its session, not {expected}"
            self._num_heard += 1
            self.deliver(message)
        return self._pump()

    def _lost(self, number: int, reason: str) -> None:
        if self._ends.pop(number, None) is not None:  # unless it was dropped meanwhile
            self.perform(self.machine.lost(number, reason, self.now))

    def _wake(self) -> None:
        if self.process.gone_at == EVER:
            self.perform(self.machine.wake(self.now))

    # Effects.

    def perform(self, effects: Effects) -> None:
        """Carry effects out."""
        self._pump()
        for effect in effects:
            match effect:
                case Dial(number, is_expected):
                    self.dialled.add(number)
                    self.dial(number, is_expected=is_expected)
                case Drop(number):
                    self.dialled.discard(number)
                    if (end := self._ends.pop(number, None)) is not None:
                        end.close_at_client()
                case Finished(reason):
                    self.end = reason
                    then, self._on_finished = self._on_finished, None
                    if then is not None:
                        then()
                case _:
                    self.tell(effect)
        self._pump()
        self._alarm.set(self.machine.deadline())

    def _pump(self) -> None:
        for number, end in list(self._ends.items()):
            while (message := self.machine.next_to_send(number)) is not None:
                end.up.put(end.sessions.arrive, end, self._letter(message))

    def _letter(self, message: Numbered | SessionMessage) -> Letter | SessionMessage:
        """Return what arrives; the few messages of sessions themselves cost nothing."""
        return self.posted(*message) if isinstance(message, Numbered) else message

    @property
    def now(self) -> float:
        """The time."""
        return self.process.world.clock.now


class AcceptedSessions:
    """The driver of all sessions of one plane at the host; a subclass for each plane handles messages and effects.

    Attributes:
        table: the accepting side.
        clients: the process at the other end of each session, by its number.
    """

    def __init__(self, process: Process, kept_max: int, heartbeat_timeout: float) -> None:
        self.process = process
        self.table: SessionTable[int, Numbered] = SessionTable(kept_max, heartbeat_timeout, process.world.num_clients)
        self.clients: dict[int, Process] = {}
        self._kept_max = kept_max
        self._ends: dict[int, Connection] = {}
        self._alarm = Alarm(process, self._wake)
        self._num_sent: Counter[int] = Counter()
        self._num_heard: Counter[int] = Counter()

    # What a plane makes of it.

    def posted(self, number: int, message: Any) -> Letter:
        """Return what is sent; the work that this takes is done."""
        raise NotImplementedError

    def deliver(self, client: Process, session: int, letter: Letter) -> None:
        """Take a message."""
        raise NotImplementedError

    def tell(self, effect: Effect) -> None:
        """Take news of a session, or of the table."""

    def acknowledged(self) -> None:
        """Take note that a client may have received more."""

    # What its owner wants.

    def accept(self, connection: Connection) -> None:
        """A connection was made."""
        number = connection.number_at_host = self.table.connected(self.now)
        self._ends[number] = connection
        connection.on_lost_at_host = partial(self._lost, number)
        self._alarm.set(self.table.deadline())

    def send(self, session: int, message: Any) -> None:
        """Bring a message to a client."""
        self.put(session, message)
        self.go_on(session)

    def put(self, session: int, message: Any) -> None:
        """Add a message to be sent to a client."""
        if (accepted := self.table.get(session)) is None:
            return
        self.perform(self.table.put(session, Numbered(self._num_sent[session], message)))
        self._num_sent[session] += 1
        assert accepted.num_kept <= self._kept_max, f"{accepted.num_kept} messages are kept of at most {self._kept_max}"

    def go_on(self, session: int) -> None:
        """Write what there is for a client."""
        if (accepted := self.table.get(session)) is not None:
            self.pump(accepted.carrier)

    def carries(self, connection: Connection) -> bool:
        """Return whether a connection carries a session in which something was heard here."""
        accepted = self.table.carried_by(connection.number_at_host)
        return accepted is not None and self._num_heard[accepted.number] > 0

    def arrive(self, connection: Connection, message: Letter | SessionMessage) -> None:
        """A message has come."""
        number = connection.number_at_host
        if self._ends.get(number) is not connection:
            return
        if isinstance(message, OpenSession):
            self.perform(self.table.open(number, message.session, message), connection.client)
        elif isinstance(message, SessionMessage):
            self.perform(self.table.receive(number, message))
            self.acknowledged()
        elif session := self.table.take(number, message.size):
            name, expected = connection.client.name, self._num_heard[session]
            assert message.number == expected, f"message {message.number} of {name} is heard, not {expected}"
            self._num_heard[session] += 1
            self.deliver(connection.client, session, message)
        self.pump(number)

    def _lost(self, number: int, reason: str) -> None:
        del self._ends[number]
        self.perform(self.table.lost(number, reason))

    def _wake(self) -> None:
        if self.process.gone_at == EVER:
            self.perform(self.table.wake(self.now))

    def perform(self, effects: Effects, client: Process | None = None) -> None:
        """Carry effects out."""
        for effect in effects:
            match effect:
                case Drop(number) | Finish(number):
                    self.pump(number)
                    if (end := self._ends.pop(number, None)) is not None:
                        end.close_at_host()
                case Began(session):
                    assert client is not None
                    self.clients[session] = client
                case _:
                    self.tell(effect)
        self._alarm.set(self.table.deadline())

    def pump(self, number: int) -> None:
        """Write what there is for a connection."""
        if (end := self._ends.get(number)) is not None:
            while (message := self.table.next_to_send(number)) is not None:
                letter = self.posted(*message) if isinstance(message, Numbered) else message
                end.down.put(end.link.arrive, end, letter)

    def pump_all(self) -> None:
        """Write what there is for all connections."""
        for number in list(self._ends):
            self.pump(number)

    @property
    def now(self) -> float:
        """The time."""
        return self.process.world.clock.now
