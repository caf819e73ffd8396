"""A peer's way to the coordinator: it dials, carries the session, and dials again when a connection breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, get_args

from ...transport.addresses import Address
from ...transport.in_process import local_connections
from ...transport.ports import ChannelClosedError, Connection, DialReport, Network
from ...transport.wire.messages import CoordinatorMessage, Message, Refused, Resume, Resumed
from ..machines import events as ev
from ..machines.peer.config import PeerConfig
from .session import Session

FLUSH_TIMEOUT = 1.0
"""Seconds that the last words of a peer may take."""

_REDIAL_DELAY = 0.05
_RESUME_TIMEOUT = 2.0


class Dialler:
    """Lives as long as its peer, whose tasks it uses.

    Args:
        config: who this peer is, and where the coordinator.
        network: how to get there.
        serve_locally: on client 0, gives the coordinator one end of a connection.
        spawn: starts a task of the peer's.
        put: gives the peer's machine an event.
        on_dial_report: told why the coordinator cannot be reached yet.
    """

    def __init__(
        self,
        config: PeerConfig,
        network: Network | None,
        serve_locally: Callable[[Connection], Coroutine[Any, Any, None]] | None,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        put: Callable[[ev.PeerEvent], Awaitable[None]],
        on_dial_report: DialReport,
    ) -> None:
        self._config = config
        self._network = network
        self._serve_locally = serve_locally
        self._spawn = spawn
        self._put = put
        self._on_dial_report = on_dial_report
        self._session: Session | None = None
        self._carrier: asyncio.Task[None] | None = None
        self._redial: asyncio.Task[None] | None = None

    def send(self, message: Message) -> None:
        """Queue a message for the coordinator."""
        if self._session is not None:
            self._session.put(message)

    def connect(self, tag: ev.Tag, link_address: Callable[[str], str]) -> None:
        """Begin a session; `link_address` says where this peer's links are, given the host it is seen at."""
        if self._carrier is not None:
            self._carrier.cancel()
        self._carrier = self._spawn(self._connect(tag, link_address))

    def reconnect(self, tag: ev.Tag) -> None:
        """Carry the session on over another connection; the present one is used until that one stands."""
        if self._redial is not None:
            self._redial.cancel()
        self._redial = self._spawn(self._reconnect(tag))

    def probe(self, probe: ev.Probe) -> None:
        """Ask whether the coordinator's process lives; an overloaded one may take long to say so."""
        self._spawn(self._probe(probe))

    async def _probe(self, probe: ev.Probe) -> None:
        assert self._network is not None
        address, timeout = Address.parse(probe.link_address), self._config.heartbeat_timeout
        result = await self._network.probe(address, probe.incarnation, timeout)
        await self._put(ev.ProbeAnswered(probe.tag, result.outcome, result.detail))

    async def say_last_words(self) -> bool:
        """Send what is left to say, and end the session; returns whether there was one."""
        if self._session is None:
            return False
        self._session.finish()
        await asyncio.wait([task for task in (self._carrier, self._redial) if task is not None], timeout=FLUSH_TIMEOUT)
        # gRPC's threads live as long as anybody holds a channel; a system that was shut down may be held for long.
        self._session = self._carrier = self._redial = None
        return True

    async def _connect(self, tag: ev.Tag, link_address: Callable[[str], str]) -> None:
        if self._session is not None:
            # Whoever answered before was not our coordinator: an old one that is ending, or a stranger.
            await asyncio.sleep(_REDIAL_DELAY)
        connection, seen_from = await self._dial()
        session = self._session = Session(get_args(CoordinatorMessage), self._deliver, ends_first=True)
        turn = await session.take_over()
        await self._put(ev.Connected(tag, link_address(seen_from)))
        await self._carry(session, connection, turn)

    async def _dial(self) -> tuple[Connection, str]:
        address = self._config.coordinator_address
        if self._serve_locally is None:
            assert self._network is not None
            return await self._network.connect_coordinator(Address.parse(address), self._on_dial_report)
        connection, far_end = local_connections()
        self._spawn(self._serve_locally(far_end))
        return connection, "" if self._network is None else Address.parse(address).host

    async def _reconnect(self, tag: ev.Tag) -> None:
        """Dial until the session is taken up again, or there is nobody any more who knows it."""
        session, network = self._session, self._network
        assert session is not None
        assert network is not None
        address = Address.parse(self._config.coordinator_address)
        is_cut = False
        while True:
            try:
                connection, _ = await network.connect_coordinator(address, self._on_dial_report, expected=True)
            except ChannelClosedError as error:
                return await self._put(ev.CoordinatorGone(tag, str(error), is_cut))
            try:
                turn, is_cut = await session.take_over(), True
                answer = await self._ask_to_resume(session, connection)
                if isinstance(answer, Refused):
                    return await self._put(ev.CoordinatorGone(tag, f"{address} does not know this session", is_cut))
                if isinstance(answer, Resumed):
                    session.rewind(answer.received, turn)
                    await self._put(ev.Reconnected(tag))
                    self._carrier, self._redial = asyncio.current_task(), None
                    return await self._carry(session, connection, turn)
            except ValueError as error:
                return await self._put(
                    ev.CoordinatorGone(tag, f"it does not know this session any more: {error}", is_cut)
                )
            finally:
                await connection.close()
            await asyncio.sleep(_REDIAL_DELAY)

    async def _ask_to_resume(self, session: Session, connection: Connection) -> Message | None:
        resume = Resume(self._config.client_id, self._config.incarnation, session.received)
        try:
            async with asyncio.timeout(_RESUME_TIMEOUT):
                await connection.send(resume)
                return await connection.receive()
        except (ChannelClosedError, TimeoutError):
            return None

    async def _carry(self, session: Session, connection: Connection, turn: int) -> None:
        reason = await session.carry(connection, turn)
        if reason is not None and not session.is_finished:
            await self._put(ev.SessionLost(reason))

    async def _deliver(self, message: Message) -> None:
        assert isinstance(message, CoordinatorMessage)
        await self._put(ev.Received(message))
