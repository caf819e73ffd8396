"""Runs the coordinator: one task per connection, and one that owns the machine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from ...transport.addresses import Address
from ...transport.ports import Connection, ConnectionClosedError, Network, ProbeOutcome, ProbeResult
from ...transport.wire.messages import (
    ClientMessage,
    Message,
    Refused,
    Register,
    TopologyQuery,
    TopologyReply,
    Verdict,
)
from ...transport.wire.session_messages import OpenSession, SessionMessage
from ..machines.coordinator import events as ev
from ..machines.coordinator.machine import CoordinatorMachine
from ..machines.coordinator.members import welcome
from ..machines.session.effects import Drop, Effects, Ended, Finish, Flushed, Resumed, TableClosed
from ..machines.session.limits import CONTROL_KEPT_MAX, Ending, flush_timeout, stay_timeout
from ..machines.session.table import SessionTable, not_for_clients
from .alarm import Alarm
from .crash import OnCrash, let_crash
from .loop import INBOX_MAX, drive
from .session_pump import SessionPump

_log = logging.getLogger("bringup")

_Key = tuple[int | None, int]
"""The client id in the client's certificate, where it has one, and the number of the session: nobody resumes a session
of somebody else."""

PROBE_TIMEOUT = 1.0
"""Seconds that a suspect has to answer."""

_TAKE_IN_TIMEOUT = 1.0
"""Seconds that the machine has to take in what has come before the end: it is woken at once, unless it hangs."""

TOLD_AT_ONCE = 64
"""Clients whose messages are written in one turn of the loop, in some milliseconds. Where all of a large job are told,
what comes meanwhile would wait for all of that: client 0's own program, too, which would hear of an end as the last."""

_CLOSE_GRACE = 3.0
"""Seconds beyond the time-outs of its machines that the end may take, where one of them has failed."""


class CoordinatorDriver:
    """The coordinator, as client 0's peer hosts it.

    Args:
        machine: decides.
        network: to probe suspects over; `None` for a job of one client.
        clock: the time, monotonic, in seconds.
        topology_reply: answers who asks for the topology of the job.
        on_departure: called where a client has begun to leave.

    Attributes:
        on_crash: told what a handler or the machine has raised that nobody expected; who runs this sets it.
    """

    def __init__(
        self,
        machine: CoordinatorMachine,
        network: Network | None,
        clock: Callable[[], float],
        topology_reply: Callable[[], TopologyReply],
        on_departure: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._on_departure = on_departure
        self._topology_reply = topology_reply
        self.on_crash: OnCrash = let_crash
        self._machine = machine
        self._network = network
        self._clock = clock
        self._inbox: asyncio.Queue[ev.CoordinatorEvent | None] = asyncio.Queue(INBOX_MAX)
        self._table: SessionTable[_Key, Message] = SessionTable(
            CONTROL_KEPT_MAX, machine.config.heartbeat_timeout, machine.config.num_clients
        )
        self._alarm = Alarm(self._wake_table, clock, lambda error: self.on_crash(error))
        self._pumps: dict[int, SessionPump] = {}
        self._client_of: dict[int, int] = {}  # by session, for texts
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_ended = asyncio.Event()
        self._is_flushed = asyncio.Event()
        self._is_closed = asyncio.Event()

    async def run(self) -> None:
        """Run the machine until `close`."""
        try:
            try:
                await self._drive()
            except Exception as error:  # noqa: BLE001 - whatever it is, all are told
                self.on_crash(error)
                # What has failed goes on, as it can, to tell who comes late.
                await self._drive()
        finally:
            self._has_ended.set()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _drive(self) -> None:
        await drive(self._machine, self._inbox, self._perform, self._clock, self._is_over)

    def _is_over(self) -> bool:
        if self._machine.has_told_all:
            self._carry_out(self._table.all_told())
        return False

    def introduce(self, host: Register) -> None:
        """Announce the address of client 0 to every client. To be called before the first is served."""
        self._machine.welcome = welcome(host)

    def end(self, verdict: Verdict) -> None:
        """Tell all clients, whatever else works here."""
        for effect in self._machine.end(verdict):
            self._perform(effect)

    async def close(self, ending: Ending) -> None:
        """Feed the received messages to the machine, then flush its answers to all clients. Bounded."""
        config = self._machine.config
        flush = flush_timeout(ending, config.heartbeat_timeout, config.num_clients)
        bound = flush + stay_timeout(ending) + _CLOSE_GRACE
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(bound):
                await self._close_table(ending)
        self._alarm.cancel()
        if not self._has_ended.is_set():
            await self._inbox.put(None)

    async def _close_table(self, ending: Ending) -> None:
        await self._take_in()
        self._carry_out(self._table.close(ending, self._clock()))
        await self._is_flushed.wait()
        await self._take_in()
        self._carry_out(self._table.stay(self._clock(), is_needed=not self._machine.has_told_all))
        await self._is_closed.wait()

    async def _take_in(self) -> None:
        """Wait until the machine has taken in what has come so far, or takes nothing in any more."""
        waiting = [asyncio.ensure_future(self._inbox.join()), asyncio.ensure_future(self._has_ended.wait())]
        try:
            await asyncio.wait(waiting, timeout=_TAKE_IN_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()

    async def serve(self, connection: Connection) -> None:
        """Serve one connection until it ends; called once for each."""
        number, reason = self._table.connected(self._clock()), "the connection broke"
        pump = self._pumps[number] = SessionPump(
            connection, partial(self._table.next_to_send, number), partial(self._take, connection, number)
        )
        self._alarm.set(self._table.deadline())
        try:
            reason = await pump.run()
        except Exception as error:  # noqa: BLE001 - a network would drop it, and the client would wait
            reason = str(error)
            self.on_crash(error)
        finally:
            # Also where gRPC cancels this.
            del self._pumps[number]
            self._carry_out(self._table.lost(number, reason))

    async def _take(self, connection: Connection, number: int, message: Message) -> None:
        table = self._table
        session = table.carried_by(number)
        if isinstance(message, ClientMessage) and session is not None:
            if isinstance(message, Register):
                self._client_of[session.number] = message.client_id
            certified_id, _ = session.key
            await self._inbox.put(ev.MessageReceived(session.number, message, certified_id))
            # Not before: a reader that is cancelled as it waits has delivered nothing.
            table.take(number)
            if session.owes_acknowledgement:
                self._pumps[number].go_on()
        elif isinstance(message, OpenSession):
            self._carry_out(table.open(number, (connection.certified_id, message.session), message))
            self._pumps[number].go_on()
        elif isinstance(message, SessionMessage):
            self._carry_out(table.receive(number, message))
        elif isinstance(message, TopologyQuery) and session is None:
            table.visited(number)
            await connection.send(self._topology_reply())
            raise ConnectionClosedError("it asked for the topology")
        else:
            raise ConnectionClosedError(not_for_clients(message))

    def _carry_out(self, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case Drop(number) if number in self._pumps:
                    self._pumps[number].drop()
                case Finish(number) if number in self._pumps:
                    self._pumps[number].finish()
                case Resumed(session):
                    self._tell(ev.SessionResumed(session))
                case Ended(session, reason, is_settled, is_forgotten):
                    self._tell(ev.SessionEnded(session, reason, is_settled))
                    if is_forgotten:
                        self._client_of.pop(session, None)
                case Flushed():
                    self._is_flushed.set()
                case TableClosed():
                    self._is_closed.set()
        self._alarm.set(self._table.deadline())

    def _tell(self, event: ev.CoordinatorEvent) -> None:
        try:
            self._inbox.put_nowait(event)
        except asyncio.QueueFull:
            self._begin(self._inbox.put(event))

    def _wake_table(self) -> None:
        self._carry_out(self._table.wake(self._clock()))

    def _log_refusal(self, sessions: tuple[int, ...], refusal: Refused) -> None:
        """Say on client 0, too, what the one refused raises: the others wait for it, and time out without a reason."""
        # Of its list only a digest is known here.
        what = (
            " differ between the two"
            if refusal.field == "jobs"
            else f" is {refusal.yours} there and {refusal.ours} here"
        )
        for number in sessions:
            _log.warning(
                "client 0 refused client %d: %s%s. %s",
                self._client_of.get(number, -1),
                refusal.field,
                what,
                refusal.detail,
            )

    def _perform(self, effect: ev.CoordinatorEffect) -> None:
        match effect:
            case ev.SendTo(sessions, message):
                if isinstance(message, Refused):
                    self._log_refusal(sessions, message)
                self._send(sessions, message)
            case ev.CloseSession(number):
                self._carry_out(self._table.finish(number, self._clock()))
                self._client_of.pop(number, None)
                self._go_on(number)
            case ev.Departed(client_id):
                self._on_departure(client_id)
            case ev.Probe():
                self._begin(self._probe(effect))

    def _send(self, sessions: tuple[int, ...], message: Message) -> None:
        for number in sessions:
            if effects := self._table.put(number, message):
                self._carry_out(effects)
        for number in sessions[:TOLD_AT_ONCE]:
            self._go_on(number)
        if rest := sessions[TOLD_AT_ONCE:]:
            self._begin(self._go_on_in_turns(rest))

    async def _go_on_in_turns(self, sessions: tuple[int, ...]) -> None:
        for index, number in enumerate(sessions):
            if index % TOLD_AT_ONCE == 0:
                await asyncio.sleep(0)
            self._go_on(number)

    def _go_on(self, session: int) -> None:
        if (pump := self._pump_of(session)) is not None:
            pump.go_on()

    def _pump_of(self, session: int) -> SessionPump | None:
        carried = self._table.get(session)
        return None if carried is None else self._pumps.get(carried.carrier)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._guard(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # it may have been cancelled before it began

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - nobody awaits it
            self.on_crash(error)

    async def _probe(self, probe: ev.Probe) -> None:
        if self._network is None:
            result = ProbeResult(ProbeOutcome.SILENT, "there is no network to ask over")
        else:
            address = Address.parse(probe.link_address)
            result = await self._network.probe(address, probe.incarnation, PROBE_TIMEOUT)
        await self._inbox.put(ev.ProbeAnswered(probe.tag, result.outcome, result.detail))
