"""Simulated sessions with the coordinator, each carried by one connection after another, as their drivers do it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bringup.runtime.machines import events as ev
from bringup.runtime.machines.resend_buffer import Ledger
from bringup.transport.wire.messages import ClientMessage, CoordinatorMessage, Leave, Register

from .costs import Letter, seconds_to_read
from .network import Network, Stream

if TYPE_CHECKING:
    from .process import Process
    from .wire import Wire

_END_TIMEOUT = 1.0
_RESET = "the connection broke: Connection reset"

Reaction = Callable[[str], None]


class Connection:
    """Between a client's process and the one that hosts the coordinator.

    Attributes:
        on_lost_at_client: told at the client when it ends there, unless the client ended it; likewise at the host.
    """

    def __init__(self, network: Network, client: Process, host: Process) -> None:
        self.client = client
        self.host = host
        self.up = Stream(network, client.client_id, host, is_local=client is host, sender=client)
        self.down = Stream(network, host.client_id, client, is_local=client is host, sender=host)
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
        self.host.connection_ended()

    def client_died(self, *, with_reset: bool) -> None:
        """The client's kernel ends it; where something lay unread there, with a reset, and what was sent is lost."""
        self.on_lost_at_client = None
        (self.up.reset if with_reset else self.up.end)(self.lost_at_host, "the stream broke")

    def host_died(self, *, with_reset: bool) -> None:
        """The coordinator's kernel ends it."""
        self.on_lost_at_host = None
        (self.down.reset if with_reset else self.down.end)(
            self.lost_at_client, "the connection broke: Connection reset"
        )

    def break_off(self) -> None:
        """Something between the two ends it, and what is on its way is lost."""
        self.up.drop()
        self.down.drop()
        self.client.later(self._network.delay(), self.lost_at_client, _RESET)
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
        self.host.connection_ended()


class Session:
    """Both sides of one session. The ledgers, which see to it that nothing is lost or doubled, are those that ship.

    Attributes:
        number: the coordinator's, 0 before it knows of it.
        sent_all: called once the client has said its last words, and the coordinator has heard them.
    """

    def __init__(self, wire: Wire, client: Process, connection: Connection) -> None:
        self.number = 0
        self.client = client
        self.host = connection.host
        self.client_ledger = Ledger()
        self.host_ledger = Ledger()
        self.sent_all: Callable[[], None] | None = None
        self._wire = wire
        self._mail = wire.mail
        self._client_carrier: Connection | None = connection
        self._host_carrier: Connection | None = None
        self._is_finished_at_client = False
        self._is_finished_at_host = False
        self._end_timeout = _END_TIMEOUT
        connection.on_lost_at_client = self._on_lost_at_client

    @property
    def is_whole(self) -> bool:
        """Whether both sides use the same connection."""
        return self._client_carrier is not None and self._client_carrier is self._host_carrier

    @property
    def is_carried_at_client(self) -> bool:
        """Whether the client uses a connection."""
        return self._client_carrier is not None

    # The client's side.

    def send_up(self, message: ClientMessage) -> None:
        """Bring a message of the client to the coordinator."""
        if not self._is_finished_at_client:
            self.client_ledger.append(message)
            self._pump_up()

    def finish_at_client(self, then: Callable[[], None]) -> None:
        """The client has said all; `then` happens at its side once it has been heard."""
        self._is_finished_at_client = True
        self.sent_all = then
        self._pump_up()

    def leave_client_carrier(self) -> None:
        """The client stops using its present connection, for another."""
        connection, self._client_carrier = self._client_carrier, None
        if connection is not None:
            connection.close_at_client()

    def go_on_at_client(self, connection: Connection, received: int) -> None:
        """The client goes on over another connection; `received` of its messages have arrived."""
        self.client_ledger.rewind(received)
        self._client_carrier = connection
        connection.on_lost_at_client = self._on_lost_at_client
        self._pump_up()

    def _pump_up(self) -> None:
        connection, ledger = self._client_carrier, self.client_ledger
        if connection is None:
            return
        while ledger.has_unsent:
            letter, seconds = self._mail.encode(ledger.next_unsent())
            self.client.work(seconds)
            connection.up.put(self._arrive_up, connection, letter)
        if self._is_finished_at_client:
            connection.up.put(self._acknowledged_by_client, connection, self.client_ledger.received)
            # The answer to the end of a stream is its end from the other side.
            connection.on_lost_at_client = lambda _: self._on_heard()
            connection.up.end(connection.lost_at_host, "the client closed its connection")

    def _on_heard(self) -> None:
        self._client_carrier = None
        if self.sent_all is not None:
            self.sent_all()

    def _on_lost_at_client(self, reason: str) -> None:
        self._client_carrier = None
        if not self._is_finished_at_client:
            self.client.tell_peer(ev.SessionLost(reason))

    def _arrive_down(self, connection: Connection, letter: Letter) -> None:
        if connection is self._client_carrier:
            self.client.work(seconds_to_read(letter))
            message: Any = letter.message
            self.client.heard_host_at = self._wire.network.clock.now
            if self.client_ledger.note_received():
                connection.up.put(self._acknowledged_by_client, connection, self.client_ledger.received)
            self.client.tell_peer(ev.Received(message))

    def _acknowledged_by_host(self, connection: Connection, received: int) -> None:
        if connection is self._client_carrier:
            self.client_ledger.acknowledge(received)

    # The coordinator's side.

    def send_down(self, message: CoordinatorMessage) -> None:
        """Bring a message of the coordinator to the client."""
        if not self._is_finished_at_host:
            self.host_ledger.append(message)
            self._pump_down()

    def finish_at_host(self, end_timeout: float) -> None:
        """The coordinator has said all; the client has so long to say that it has heard, and to end the connection."""
        if not self._is_finished_at_host:
            self._is_finished_at_host = True
            self._end_timeout = end_timeout
            self._pump_down()

    def go_on_at_host(self, connection: Connection, received: int) -> None:
        """The coordinator goes on over another connection; `received` of its messages have arrived."""
        former, self._host_carrier = self._host_carrier, connection
        if former is not None:
            former.close_at_host()
        connection.on_lost_at_host = self._on_lost_at_host
        self.client.heard_at = self._wire.network.clock.now
        self.host_ledger.rewind(received)
        self._pump_down()

    def _pump_down(self) -> None:
        connection, ledger = self._host_carrier, self.host_ledger
        if connection is None:
            return
        while ledger.has_unsent:
            letter, seconds = self._mail.encode(ledger.next_unsent())
            self.host.work(seconds)
            connection.down.put(self._arrive_down, connection, letter)
        if self._is_finished_at_host:
            connection.down.put(self._acknowledged_by_host, connection, self.host_ledger.received)
            self.host.later(self._end_timeout, self._end_at_host, connection)

    def _end_at_host(self, connection: Connection) -> None:
        if connection in self.host.served:
            connection.close_at_host()
            self._on_lost_at_host("it was ended here")

    def _on_lost_at_host(self, reason: str) -> None:
        self._host_carrier = None
        is_settled = len(self.host_ledger) == 0
        self.host.tell_coordinator(ev.SessionEnded(self.number, reason, is_settled))

    def _arrive_up(self, connection: Connection, letter: Letter) -> None:
        self.host.work(seconds_to_read(letter))
        message: Any = letter.message
        if self.number == 0 and isinstance(message, Register) and connection in self.host.served:
            self._wire.register(self)
            self._host_carrier = connection
            connection.on_lost_at_host = self._on_lost_at_host
        if connection is self._host_carrier:
            self.client.heard_at = self._wire.network.clock.now
            if type(message) is Leave:
                self.client.is_let_go = True
            if self.host_ledger.note_received():
                connection.down.put(self._acknowledged_by_host, connection, self.host_ledger.received)
            self.host.tell_coordinator(ev.SessionMessage(self.number, message))

    def _acknowledged_by_client(self, connection: Connection, received: int) -> None:
        if connection is self._host_carrier:
            self.host_ledger.acknowledge(received)
