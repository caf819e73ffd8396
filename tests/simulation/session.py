"""The sessions of simulated processes: the machines that ship, pumped over simulated connections."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from bringup.runtime.machines.coordinator import events as coordinator_events
from bringup.runtime.machines.peer import events as ev
from bringup.runtime.machines.session.effects import (
    Began,
    Dial,
    Drop,
    Effects,
    Ended,
    Finish,
    Finished,
    Flushed,
    GivenUp,
    Gone,
    Lost,
    Opened,
    Resumed,
    TableClosed,
)
from bringup.runtime.machines.session.limits import CONTROL_KEPT_MAX, Ending
from bringup.runtime.machines.session.machine import SessionMachine
from bringup.runtime.machines.session.table import SessionTable
from bringup.transport.wire.messages import ClientMessage, CoordinatorMessage, Leave, Message
from bringup.transport.wire.session_messages import OpenSession, SessionMessage

from .costs import Letter, seconds_to_read
from .machine_runner import LATENESS_MAX
from .network import EVER, Network, Stream

if TYPE_CHECKING:
    from .process import Process

_RESET = "the connection broke: Connection reset"

Reaction = Callable[[str], None]


class Connection:
    """Between a client's process and the one that hosts the coordinator.

    Attributes:
        number_at_client: by which the client's session knows it; likewise at the host.
        on_lost_at_client: told at the client when it ends there, unless the client ended it; likewise at the host.
    """

    def __init__(self, network: Network, client: Process, host: Process) -> None:
        self.client = client
        self.host = host
        self.up = Stream(network, client.client_id, host, is_local=client is host, sender=client)
        self.down = Stream(network, host.client_id, client, is_local=client is host, sender=host)
        self.number_at_client = self.number_at_host = 0
        self.on_lost_at_client: Reaction | None = None
        self.on_lost_at_host: Reaction | None = None
        self._network = network
        client.connections[self] = None
        host.served[self] = None

    def begin(self, made: Callable[..., None], *arguments: object, is_swallowed: bool) -> None:
        """Let the client know that it is made, and that be all, where the rest is swallowed."""
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


class ClientLink:
    """What pumps the session of a client with the coordinator.

    Attributes:
        machine: the dialling side.
        dialled: the connections that are asked for, and not open yet.
    """

    def __init__(self, process: Process) -> None:
        self.machine: SessionMachine[Message] = SessionMachine(CONTROL_KEPT_MAX, begins_anew=True)
        self.dialled: set[int] = set()
        self._process = process
        self._ends: dict[int, Connection] = {}
        self._alarm = Alarm(process, self._wake)
        self._tag: ev.Tag = 0
        self._on_finished: Callable[[], None] | None = None

    def connect(self, tag: ev.Tag) -> None:
        """Begin a session."""
        self._tag = tag
        self._perform(self.machine.begin(self._process.world.rng.getrandbits(63), self._now))

    def redial(self) -> None:
        """Dial although a connection stands."""
        self._perform(self.machine.redial())

    def send(self, message: ClientMessage) -> None:
        """Bring a message to the coordinator."""
        assert self.machine.number, f"{self._process.name} sends {message} without a session"
        self._perform(self.machine.put(message))

    def finish(self, then: Callable[[], None]) -> None:
        """End the session; `then` happens when it has ended."""
        self._on_finished = then
        if self.machine.is_closed:
            return then()
        return self._perform(self.machine.finish(self._now))

    def abandon(self) -> None:
        """Use it no more."""
        self._on_finished = None
        self.dialled.clear()
        self._perform(self.machine.abandon())

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
        return self._perform(self.machine.opened(number, self._now))

    def unreachable(self, number: int, reason: str) -> None:
        """A connection cannot be made, for good."""
        if number in self.dialled:
            self.dialled.discard(number)
            self._perform(self.machine.unreachable(number, reason))

    def arrive(self, connection: Connection, letter: Letter) -> None:
        """A message has come."""
        number = connection.number_at_client
        message: Any = letter.message
        if self._ends.get(number) is not connection:
            return
        if isinstance(message, SessionMessage):
            self._perform(self.machine.receive(number, message, self._now))
            return
        process = self._process
        process.work(seconds_to_read(letter))
        if self.machine.take(number):
            process.heard_host_at = self._now
            process.tell_peer(ev.Received(message))
        self._pump()

    def _lost(self, number: int, reason: str) -> None:
        del self._ends[number]
        self._perform(self.machine.lost(number, reason, self._now))

    def _wake(self) -> None:
        if self._process.gone_at == EVER:
            self._perform(self.machine.wake(self._now))

    # Effects.

    def _perform(self, effects: Effects) -> None:
        process = self._process
        for effect in effects:
            match effect:
                case Dial(number, is_expected):
                    self.dialled.add(number)
                    process.world.wire.dial(self, process, number, is_expected=is_expected)
                case Drop(number):
                    self.dialled.discard(number)
                    if (end := self._ends.pop(number, None)) is not None:
                        end.close_at_client()
                case Opened():
                    process.tell_peer(ev.Connected(self._tag, process.link_address))
                case Resumed():
                    process.tell_peer(ev.Reconnected())
                case Lost(reason):
                    process.tell_peer(ev.SessionLost(reason))
                case Gone(reason):
                    process.tell_peer(ev.CoordinatorGone(reason))
                case GivenUp(reason):
                    process.tell_peer(ev.SessionGivenUp(reason))
                case Finished():
                    then, self._on_finished = self._on_finished, None
                    if then is not None:
                        then()
        self._pump()
        self._alarm.set(self.machine.deadline())

    def _pump(self) -> None:
        for number, end in list(self._ends.items()):
            while (message := self.machine.next_to_send(number)) is not None:
                end.up.put(end.host.sessions.arrive, end, _posted(self._process, message))

    @property
    def _now(self) -> float:
        return self._process.world.clock.now


class HostSessions:
    """What pumps the sessions of a coordinator.

    Attributes:
        table: the accepting side.
        clients: the process at the other end of each session, by its number.
    """

    def __init__(self, process: Process) -> None:
        self.table: SessionTable[int, Message] = SessionTable(CONTROL_KEPT_MAX, process.config.heartbeat_timeout)
        self.clients: dict[int, Process] = {}
        self._heard: set[int] = set()
        self._process = process
        self._ends: dict[int, Connection] = {}
        self._alarm = Alarm(process, self._wake)
        self._on_flushed: Callable[[], None] = lambda: None
        self._on_closed: Callable[[], None] = lambda: None

    def accept(self, connection: Connection) -> None:
        """A connection was made."""
        number = connection.number_at_host = self.table.connected(self._now)
        self._ends[number] = connection
        connection.on_lost_at_host = partial(self._lost, number)
        self._alarm.set(self.table.deadline())

    def send(self, session: int, message: CoordinatorMessage) -> None:
        """Bring a message to a client."""
        self._perform(self.table.put(session, message))
        self._pump_session(session)

    def finish(self, session: int) -> None:
        """End a session after what was said in it."""
        self._perform(self.table.finish(session, self._now))
        self._pump_session(session)

    def close(self, ending: Ending, on_flushed: Callable[[], None], on_closed: Callable[[], None]) -> None:
        """Let all clients hear of the end."""
        self._on_flushed, self._on_closed = on_flushed, on_closed
        self._perform(self.table.close(ending, self._now))
        for number in list(self._ends):
            self._pump(number)

    def stay(self, *, is_needed: bool) -> None:
        """Stay for those that are away, where that is needed."""
        self._perform(self.table.stay(self._now, is_needed=is_needed))

    def all_told(self) -> None:
        """Stay no longer."""
        self._perform(self.table.all_told())

    def carries(self, connection: Connection) -> bool:
        """Return whether a connection carries a session in which the coordinator has heard something."""
        accepted = self.table.carried_by(connection.number_at_host)
        return accepted is not None and accepted.number in self._heard

    def arrive(self, connection: Connection, letter: Letter) -> None:
        """A message has come."""
        number = connection.number_at_host
        message: Any = letter.message
        if self._ends.get(number) is not connection:
            return
        if isinstance(message, OpenSession):
            self._perform(self.table.open(number, message.session, message), connection.client)
        elif isinstance(message, SessionMessage):
            self._perform(self.table.receive(number, message))
        else:
            self._process.work(seconds_to_read(letter))
            if session := self.table.take(number):
                self._deliver(connection.client, session, message)
        self._pump(number)

    def _deliver(self, client: Process, session: int, message: ClientMessage) -> None:
        client.heard_at = self._now
        self._heard.add(session)
        if type(message) is Leave:
            client.is_let_go = True
        self._process.tell_coordinator(coordinator_events.MessageReceived(session, message))

    def _lost(self, number: int, reason: str) -> None:
        del self._ends[number]
        self._perform(self.table.lost(number, reason))

    def _wake(self) -> None:
        if self._process.gone_at == EVER:
            self._perform(self.table.wake(self._now))

    def _perform(self, effects: Effects, client: Process | None = None) -> None:
        for effect in effects:
            match effect:
                case Drop(number) | Finish(number):
                    self._pump(number)
                    if (end := self._ends.pop(number, None)) is not None:
                        end.close_at_host()
                case Began(session) if client is not None:
                    self.clients[session] = client
                case Resumed(session):
                    self.clients[session].heard_at = self._now
                    self._process.tell_coordinator(coordinator_events.SessionResumed(session))
                case Ended(session, reason, is_settled):
                    self._process.tell_coordinator(coordinator_events.SessionEnded(session, reason, is_settled))
                case Flushed():
                    self._on_flushed()
                case TableClosed():
                    self._on_closed()
        self._alarm.set(self.table.deadline())

    def _pump_session(self, session: int) -> None:
        if (accepted := self.table.get(session)) is not None:
            self._pump(accepted.carrier)

    def _pump(self, number: int) -> None:
        if (end := self._ends.get(number)) is None:
            return
        while (message := self.table.next_to_send(number)) is not None:
            end.down.put(end.client.link.arrive, end, _posted(self._process, message))

    @property
    def _now(self) -> float:
        return self._process.world.clock.now


def _posted(sender: Process, message: Message | SessionMessage) -> Letter:
    """Return what arrives; the few messages of sessions themselves cost nothing."""
    if isinstance(message, SessionMessage):
        return Letter(message, 0)
    letter, seconds = sender.world.wire.mail.encode(message)
    sender.work(seconds)
    return letter
