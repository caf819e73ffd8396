"""A peer's session with the coordinator: dials, and pumps its messages over one connection after another."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from ...errors import AuthenticationError
from ...transport.addresses import Address
from ...transport.in_process import local_connections
from ...transport.ports import Connection, ConnectionClosedError, DialReport, Network
from ...transport.wire.messages import CoordinatorMessage, Message
from ...transport.wire.session_messages import SessionMessage
from ..machines.peer import events as ev
from ..machines.peer.config import PeerConfig
from ..machines.peer.heartbeats import revised
from ..machines.session.effects import Dial, Drop, Effects, Finished, GivenUp, Gone, Lost, Opened, Resumed
from ..machines.session.limits import CONTROL_KEPT_MAX, END_TIMEOUT
from ..machines.session.machine import SessionMachine
from .alarm import Alarm
from .crash import OnCrash
from .session_pump import SessionPump


class CoordinatorLink:
    """Lives as long as its peer, whose tasks it uses.

    Args:
        config: who this peer is, and where the coordinator.
        network: how to get there.
        serve_locally: on client 0, gives the coordinator one end of a connection.
        spawn: starts a task of the peer's.
        inbox: of the peer's machine.
        on_dial_report: told why the coordinator cannot be reached yet.
        clock: the time, monotonic, in seconds.
        on_crash: told what was raised that nobody expected.
    """

    def __init__(
        self,
        config: PeerConfig,
        network: Network | None,
        *,
        serve_locally: Callable[[Connection], Coroutine[Any, Any, None]] | None,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        inbox: asyncio.Queue[ev.PeerEvent | None],
        on_dial_report: DialReport,
        clock: Callable[[], float],
        on_crash: OnCrash,
    ) -> None:
        self._config = config
        self._network = network
        self._serve_locally = serve_locally
        self._spawn = spawn
        self._inbox = inbox
        self._on_dial_report = on_dial_report
        self._clock = clock
        self._session: SessionMachine[Message] = SessionMachine(CONTROL_KEPT_MAX, begins_anew=True, revised=revised)
        self._alarm = Alarm(self._wake, clock, on_crash)
        self._tag: ev.Tag = 0
        self._link_address: Callable[[str], str] = str
        self._seen_from = ""
        self._carriers: dict[int, asyncio.Task[None]] = {}
        self._pumps: dict[int, SessionPump] = {}
        self._has_finished = asyncio.Event()

    def send(self, message: Message) -> None:
        """Queue a message for the coordinator."""
        self._perform(self._session.put(message))

    def connect(self, tag: ev.Tag, link_address: Callable[[str], str]) -> None:
        """Begin a session; `link_address` says where this peer's links are, given the host it is seen at."""
        self._tag, self._link_address = tag, link_address
        self._perform(self._session.begin(secrets.randbits(63), self._clock()))

    def redial(self, patience: float | None) -> None:
        """Dial again; the present connection is used until the session is open on another, for `patience` seconds."""
        self._perform(self._session.redial() if patience is None else self._session.redial(patience))

    def probe(self, probe: ev.Probe) -> None:
        """Ask whether the coordinator's process lives; an overloaded one may take long to say so."""
        self._spawn(self._probe(probe))

    async def _probe(self, probe: ev.Probe) -> None:
        assert self._network is not None
        address, timeout = Address.parse(probe.link_address), self._config.heartbeat_timeout
        result = await self._network.probe(address, probe.incarnation, timeout)
        await self._inbox.put(ev.ProbeAnswered(probe.tag, result.outcome, result.detail))

    async def finish(self) -> bool:
        """Send what is left to say, and end the session; returns whether there was a connection. Bounded."""
        self._perform(self._session.finish(self._clock()))
        if not self._session.is_closed:
            with contextlib.suppress(TimeoutError):  # it may be an exception here that ends this client
                async with asyncio.timeout(2 * END_TIMEOUT):
                    await self._has_finished.wait()
        self._perform(self._session.abandon())
        self._alarm.cancel()
        if self._carriers:
            await asyncio.wait(self._carriers.values(), timeout=END_TIMEOUT)
        # gRPC's threads live as long as anybody holds a channel; a system that was shut down may be held for long.
        self._carriers.clear()
        self._pumps.clear()
        return self._session.was_opened

    def cut(self) -> None:
        """End all connections, whatever the session is in the middle of: an exception has left it half-way."""
        self._alarm.cancel()
        for carrier in self._carriers.values():
            carrier.cancel()

    def _perform(self, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case Dial(number, is_expected):
                    self._carriers[number] = self._spawn(self._carry(number, is_expected=is_expected))
                case Drop(number):
                    self._drop(number)
                case Opened():
                    self._tell(ev.Connected(self._tag, self._link_address(self._seen_from)))
                case Resumed():
                    self._tell(ev.Reconnected())
                case Lost(reason):
                    self._tell(ev.SessionLost(reason))
                case Gone(reason):
                    self._tell(ev.CoordinatorGone(reason))
                case GivenUp(reason):
                    self._tell(ev.SessionGivenUp(reason))
                case Finished():
                    self._has_finished.set()
        for pump in self._pumps.values():
            pump.go_on()
        self._alarm.set(self._session.deadline())

    def _tell(self, event: ev.PeerEvent) -> None:
        self._inbox.put_nowait(event)

    def _wake(self) -> None:
        self._perform(self._session.wake(self._clock()))

    def _drop(self, connection: int) -> None:
        if (pump := self._pumps.get(connection)) is not None:
            pump.drop()
        elif (carrier := self._carriers.get(connection)) is not None:
            carrier.cancel()

    async def _carry(self, number: int, *, is_expected: bool) -> None:
        """Dial, and pump messages until the connection ends."""
        try:
            connection, self._seen_from = await self._dial(is_expected=is_expected)
        except AuthenticationError as error:
            self._forget(number)
            if not is_expected:
                self._tell(ev.Unauthenticated(str(error)))
            return self._perform(self._session.unreachable(number, str(error)))
        except ConnectionClosedError as error:
            self._forget(number)
            return self._perform(self._session.unreachable(number, str(error)))
        except BaseException:  # it was given up for another: over hours there are many
            self._forget(number)
            raise
        pump = self._pumps[number] = SessionPump(
            connection, partial(self._session.next_to_send, number), partial(self._take, number)
        )
        try:
            self._perform(self._session.opened(number, self._clock()))
            reason = await pump.run()
        except AuthenticationError as error:  # the handshake was well, and the coordinator asks for more
            self._forget(number)
            if not is_expected:
                self._tell(ev.Unauthenticated(str(error)))
            return self._perform(self._session.lost(number, str(error), self._clock()))
        except Exception as error:
            # Over another connection the others can still be told of it.
            self._forget(number)
            self._perform(self._session.lost(number, str(error), self._clock()))
            raise
        finally:
            self._forget(number)
        return self._perform(self._session.lost(number, reason, self._clock()))

    def _forget(self, connection: int) -> None:
        self._pumps.pop(connection, None)
        self._carriers.pop(connection, None)

    async def _dial(self, *, is_expected: bool) -> tuple[Connection, str]:
        address = self._config.coordinator_address
        if self._serve_locally is None:
            assert self._network is not None
            return await self._network.connect_coordinator(
                Address.parse(address), self._on_dial_report, expected=is_expected
            )
        connection, far_end = local_connections()
        self._spawn(self._serve_locally(far_end))
        return connection, "" if self._network is None else Address.parse(address).host

    async def _take(self, connection: int, message: Message) -> None:
        if isinstance(message, SessionMessage):
            self._perform(self._session.receive(connection, message, self._clock()))
        elif isinstance(message, CoordinatorMessage):
            if self._session.is_repeated(connection):
                self._pumps[connection].go_on()
                return
            await self._inbox.put(ev.Received(message))
            # Not before: a reader that is cancelled as it waits has delivered nothing.
            self._session.take(connection)
            if self._session.owes_acknowledgement:
                self._pumps[connection].go_on()
        else:
            raise ConnectionClosedError(f"it sent a {type(message).__name__}, which is not for it to send")
