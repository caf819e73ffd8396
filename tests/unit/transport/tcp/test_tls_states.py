"""The accepting side of TLS, and the hello in it, whatever comes in whatever pieces, of whomever."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from bringup.transport.credentials import credentials_of
from bringup.transport.ports import LinkIdentity
from bringup.transport.security.terms import Terms
from bringup.transport.security.token import Token
from bringup.transport.tcp.handshake import HELLO_BYTES, AcceptancePolicy, Hello, Purpose, Status, decode_hello
from bringup.transport.tcp.tls import TlsTransport

TOKEN, OTHER = Token(bytes(32)), Token(b"x" * 32)
OWN = LinkIdentity("ab" * 16, 1, 5, 55)
LEFT = LinkIdentity("ab" * 16, 1, 4, 44)
FORMER = LinkIdentity("cd" * 16, 1, 4, 44)
HELLO = Hello(Purpose.LINK, LEFT, OWN)
STALE = Hello(Purpose.LINK, FORMER, OWN)

SPEECHES = st.sampled_from([HELLO.encode(), STALE.encode(), b"a", bytes(20_000)])

SERVER_HELLO_MAX = 8192
"""Bytes that a stranger is answered with: the certificate, and what goes before."""


def terms(token: Token, client_id: int, *, is_server: bool) -> Terms:
    found = credentials_of(token, client_id).terms(is_server=is_server)
    assert found is not None
    return found


SERVER_TERMS = terms(TOKEN, OWN.client_id, is_server=True)
CONTEXTS = {
    "member": terms(TOKEN, LEFT.client_id, is_server=False).context,
    "member of another job": terms(OTHER, LEFT.client_id, is_server=False).context,
    "nobody": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
}
CONTEXTS["nobody"].check_hostname = False
for context in CONTEXTS.values():
    context.verify_mode = ssl.CERT_NONE


class Wire(asyncio.Transport):
    """The connection itself, as an event loop provides it."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.is_closed = False

    def write(self, data: Any) -> None:
        assert not self.is_closed
        self.sent += data

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


class Listening(asyncio.Protocol):
    """What a listener makes of the bytes that it is handed: whether a hello in them is accepted."""

    def __init__(self) -> None:
        self.data = b""
        self.has_ended = False

    def data_received(self, data: bytes) -> None:
        assert not self.has_ended
        self.data += data

    def eof_received(self) -> None:
        self.has_ended = True

    @property
    def status(self) -> Status | None:
        hello = decode_hello(self.data[:HELLO_BYTES]) if len(self.data) >= HELLO_BYTES else None
        if hello is None:
            return None
        policy = AcceptancePolicy(OWN.incarnation, has_services=False)
        policy.expect(OWN, LEFT)
        return policy.judge(hello)


class Connection:
    """Both ends of one connection, and what is on its way to the accepting end."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.wire, self.listening = Wire(), Listening()
        self.server = TlsTransport(SERVER_TERMS, self.listening, is_server=True)
        self.server.connection_made(self.wire)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = CONTEXTS[kind].wrap_bio(self.incoming, self.outgoing)
        self.pending = b""
        self.said = b""
        self.is_touched = False  # by somebody on the way
        self.read = 0

    @property
    def is_open(self) -> bool:
        return not (self.wire.is_closed or self.listening.has_ended)

    def go_on(self) -> None:
        """Have the dialling side take in what has come, and shake hands."""
        self.incoming.write(self.wire.sent[self.read :])
        self.read = len(self.wire.sent)
        try:
            self.tls.do_handshake()
        except ssl.SSLError:
            pass  # not yet, or never
        self.pending += self.outgoing.read()

    def say(self, data: bytes) -> None:
        self.go_on()
        try:
            self.tls.write(data)
            self.said += data
        except ssl.SSLError:
            pass  # it has not shaken hands
        self.pending += self.outgoing.read()

    def arrive(self, data: bytes) -> None:
        """Hand bytes to the accepting side as an event loop does, while that is open."""
        while data and self.is_open:
            buffer = self.server.get_buffer(-1)
            count = min(len(data), len(buffer))
            buffer[:count] = data[:count]
            data = data[count:]
            self.server.buffer_updated(count)


class Strangers(RuleBasedStateMachine):
    """Connections of members and strangers, and somebody on the way who cuts, changes, repeats and invents."""

    connections = Bundle("connections")

    def __init__(self) -> None:
        super().__init__()
        self.all: list[Connection] = []

    @rule(target=connections, kind=st.sampled_from(sorted(CONTEXTS)), turns=st.integers(0, 4))
    def connect(self, kind: str, turns: int) -> Connection:
        self.all.append(Connection(kind))
        self.exchange(self.all[-1], turns)
        return self.all[-1]

    @rule(connection=connections)
    def go_on(self, connection: Connection) -> None:
        connection.go_on()

    @rule(connection=connections, data=SPEECHES)
    def say(self, connection: Connection, data: bytes) -> None:
        connection.say(data)

    @rule(connection=connections, data=SPEECHES)
    def talk(self, connection: Connection, data: bytes) -> None:
        self.exchange(connection, 4)
        connection.say(data)
        self.exchange(connection, 1)

    @rule(connection=connections, count=st.integers(1, 3000))
    def arrive(self, connection: Connection, count: int) -> None:
        data, connection.pending = connection.pending[:count], connection.pending[count:]
        connection.arrive(data)

    @rule(connection=connections, turns=st.integers(1, 4))
    def exchange(self, connection: Connection, turns: int) -> None:
        for _ in range(turns):
            connection.go_on()
            data, connection.pending = connection.pending, b""
            connection.arrive(data)

    @rule(connection=connections, at=st.integers(0, 2000), bits=st.integers(1, 255))
    def change(self, connection: Connection, at: int, bits: int) -> None:
        if at < len(connection.pending):
            changed = bytearray(connection.pending)
            changed[at] ^= bits
            connection.pending, connection.is_touched = bytes(changed), True

    @rule(connection=connections, data=st.binary(min_size=1, max_size=100))
    def invent(self, connection: Connection, data: bytes) -> None:
        connection.pending, connection.is_touched = data + connection.pending, True

    @rule(target=connections, connection=connections)
    def repeat(self, connection: Connection) -> Any:
        """Say to another connection what has been said, and is about to be, in this one."""
        if not connection.pending:
            return multiple()
        again = Connection("nobody")
        again.pending, again.is_touched = connection.pending, True
        self.all.append(again)
        return again

    @rule(connection=connections)
    def hang_up(self, connection: Connection) -> None:
        if connection.is_open and not connection.server.eof_received():
            connection.wire.close()

    @invariant()
    def nobody_but_a_member_is_heard(self) -> None:
        for connection in self.all:
            heard = connection.listening.data
            assert not heard or connection.kind == "member"
            assert connection.said.startswith(heard)
            if connection.listening.status is Status.ACCEPTED:
                assert connection.said.startswith(HELLO.encode())
            if connection.kind != "member":
                assert connection.server.get_extra_info("client_id") is None
            elif heard:
                assert connection.server.get_extra_info("client_id") == LEFT.client_id

    @invariant()
    def strangers_get_little_and_leave_nothing(self) -> None:
        for connection in self.all:
            assert len(connection.wire.sent) <= SERVER_HELLO_MAX
            assert connection.server._incoming.pending <= 2**15

    def teardown(self) -> None:
        """A member whose connection nobody has touched is heard in the end, whatever the others have done."""
        for connection in self.all:
            if connection.kind == "member" and not connection.is_touched and connection.is_open:
                self.exchange(connection, 4)
                connection.say(b"the end")
                self.exchange(connection, 1)
                assert connection.listening.data == connection.said
                assert connection.said.endswith(b"the end")


TestStrangers = Strangers.TestCase
TestStrangers.settings = settings(max_examples=25, stateful_step_count=20, suppress_health_check=list(HealthCheck))
