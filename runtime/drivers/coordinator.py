"""Runs the coordinator: one task per connection, and one that owns the machine."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, get_args

from ...transport.addresses import Address
from ...transport.ports import ChannelClosedError, Connection, Network, ProbeOutcome, ProbeResult
from ...transport.wire.messages import (
    AskTopology,
    ClientMessage,
    Formed,
    Message,
    Refused,
    Register,
    Resume,
    Resumed,
    TopologyTold,
    Verdict,
)
from ..machines import events as ev
from ..machines.coordinator.machine import CoordinatorMachine
from ..machines.coordinator.members import welcome
from .crash import OnCrash, let_crash
from .loop import INBOX_MAX, drive
from .session import Session

_log = logging.getLogger("bringup")

REGISTRATION_TIMEOUT = 5.0
"""Seconds that a new connection has to say whose session it carries."""

PROBE_TIMEOUT = 1.0
"""Seconds that a suspect has to answer."""

LATECOMERS_TIMEOUT = 1.0
"""Seconds that a client 0 which failed stays to tell those who were not there to hear of it."""

SURVIVORS_TIMEOUT = 0.1
"""The same where another client failed: the user of this one is to hear of that at once, too."""

FLUSH_TIMEOUT = 1.0
"""Seconds that all have to hear why the job has failed, and the machine to take in what has come."""

TOLD_AT_ONCE = 32
"""Clients that are told at once what is large."""

_TELL_TIMEOUT = 1.0
"""Seconds that some clients may take to accept what is large before others are told."""
_BROKEN = "the connection broke"


class CoordinatorDriver:
    """The coordinator, as client 0's peer hosts it.

    Args:
        machine: decides.
        network: to probe suspects over; `None` for a job of one client.
        clock: the time, monotonic, in seconds.
        tell_topology: answers who asks for the topology of the job.
        on_departure: called where a client has begun to leave.

    Attributes:
        on_crash: told what a handler or the machine has raised that nobody expected; who runs this sets it.
    """

    def __init__(
        self,
        machine: CoordinatorMachine,
        network: Network | None,
        clock: Callable[[], float],
        tell_topology: Callable[[], TopologyTold],
        on_departure: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._on_departure = on_departure
        self._tell_topology = tell_topology
        self.on_crash: OnCrash = let_crash
        self._machine = machine
        self._network = network
        self._clock = clock
        self._inbox: asyncio.Queue[ev.CoordinatorEvent | None] = asyncio.Queue(INBOX_MAX)
        self._sessions: dict[int, Session] = {}
        self._keys: dict[int, tuple[int, int]] = {}
        self._number_of: dict[tuple[int, int], int] = {}
        self._numbers = itertools.count(1)
        self._acted = asyncio.Event()
        self._carriers: set[asyncio.Task[None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_ended = asyncio.Event()

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
        await drive(self._machine, self._inbox, self._perform, self._clock, lambda: False)

    def introduce(self, host: Register) -> None:
        """Let every client know where client 0 is. To be called before the first is served."""
        self._machine.welcome = welcome(host)

    def end(self, verdict: Verdict) -> None:
        """Tell all clients, whatever else works here."""
        for effect in self._machine.end(verdict):
            self._perform(effect)

    async def close(self, flush_timeout: float, latecomers_timeout: float) -> None:
        """Let the machine take in what has come so far, then everybody hear what it has to say. Bounded.

        Clients that are not dismissed within `flush_timeout` take the coordinator for dead. A job that failed has
        clients that are about to come, or to come back: with a `latecomers_timeout` of 0 they find nobody there, and
        wait for the whole of their patience, or take the coordinator for dead.
        """
        await self._take_in()
        for session in self._sessions.values():
            session.finish(flush_timeout)
        if self._carriers:
            await asyncio.wait(self._carriers, timeout=flush_timeout)
        if latecomers_timeout > 0:
            await self._tell_latecomers(latecomers_timeout)
        if not self._has_ended.is_set():
            await self._inbox.put(None)

    async def _take_in(self) -> None:
        """Wait until the machine has taken in what has come so far, or takes nothing in any more."""
        waiting = [asyncio.ensure_future(self._inbox.join()), asyncio.ensure_future(self._has_ended.wait())]
        try:
            await asyncio.wait(waiting, timeout=FLUSH_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()

    async def _tell_latecomers(self, timeout: float) -> None:
        await self._take_in()
        try:
            async with asyncio.timeout(timeout):
                while not self._machine.has_told_all:
                    self._acted.clear()
                    await self._acted.wait()
        except TimeoutError:
            return

    async def serve(self, connection: Connection) -> None:
        """Serve one connection until it ends; called once for each."""
        try:
            await self._serve(connection)
        except (ChannelClosedError, TimeoutError):
            pass  # a stranger: it went, or said nothing
        except Exception as error:  # noqa: BLE001 - a network would drop it, and the client would wait
            self.on_crash(error)
        finally:
            await connection.close()

    async def _serve(self, connection: Connection) -> None:
        async with asyncio.timeout(REGISTRATION_TIMEOUT):
            first = await connection.receive()
        if isinstance(first, AskTopology):
            return await connection.send(self._tell_topology())
        if isinstance(first, Resume):
            return await self._resume(first, connection)
        if not isinstance(first, Register):
            return None
        number = next(self._numbers)
        session = self._sessions[number] = Session(
            get_args(ClientMessage), partial(self._deliver, number), ends_first=False
        )
        key = self._keys[number] = (first.client_id, first.incarnation)
        self._number_of[key] = number
        turn = await session.take_over()
        return await self._carry(number, session, connection, turn, session.take(first))

    def _log_refusal(self, sessions: tuple[int, ...], refusal: Refused) -> None:
        """Say on client 0, too, what the one refused raises: the others wait for it, and time out without a reason."""
        # Of its list only a digest is known here.
        what = (
            " differ between the two"
            if refusal.field == "jobs"
            else f" is {refusal.yours} there and {refusal.ours} here"
        )
        for number in sessions:
            client_id, _ = self._keys.get(number, (-1, 0))
            _log.warning(
                "client 0 refused client %d: %s%s. %s",
                client_id,
                refusal.field,
                what,
                refusal.detail,
            )

    async def _resume(self, resume: Resume, connection: Connection) -> None:
        number = self._number_of.get((resume.client_id, resume.incarnation), 0)
        session = self._sessions.get(number)
        if session is None:
            advice = "This is not the coordinator that the client has registered with."
            yours = f"{resume.incarnation:016x}"
            return await connection.send(Refused("incarnation", yours, "not known here", advice))
        turn = await session.take_over()
        welcome = self._welcome_back(number, session, connection, turn, resume)
        return await self._carry(number, session, connection, turn, welcome)

    async def _welcome_back(
        self, number: int, session: Session, connection: Connection, turn: int, resume: Resume
    ) -> None:
        await connection.send(Resumed(session.received))
        if session.rewind(resume.received, turn):
            await self._inbox.put(ev.SessionResumed(number))

    async def _carry(
        self,
        number: int,
        session: Session,
        connection: Connection,
        turn: int,
        beginning: Coroutine[Any, Any, None],
    ) -> None:
        """Carry a session over a connection; the machine hears of its end, also where gRPC cancels this."""
        reason: str | None = _BROKEN
        task = asyncio.current_task()
        assert task is not None
        self._carriers.add(task)
        task.add_done_callback(self._carriers.discard)
        try:
            await beginning
            reason = await session.carry(connection, turn)
        except (ChannelClosedError, ValueError) as error:
            reason = str(error)
        finally:
            if reason is not None:
                await self._inbox.put(ev.SessionEnded(number, reason, session.is_settled))

    def _forget(self, number: int) -> None:
        """Let nobody take a session up any more; the connection that carries it ends with what was said."""
        self._sessions.pop(number, None)
        key = self._keys.pop(number, None)
        if key is not None and self._number_of.get(key) == number:
            del self._number_of[key]

    async def _deliver(self, number: int, message: Message) -> None:
        assert isinstance(message, ClientMessage)
        await self._inbox.put(ev.SessionMessage(number, message))

    def _perform(self, effect: ev.CoordinatorEffect) -> None:
        self._acted.set()
        match effect:
            case ev.Answer(sessions, Formed() as formed):
                self._begin(self._tell_in_turn(sessions, formed))
            case ev.Answer(sessions, message):
                if isinstance(message, Refused):
                    self._log_refusal(sessions, message)
                for number in sessions:
                    if (session := self._sessions.get(number)) is not None:
                        session.put(message)
            case ev.CloseSession(number):
                if (session := self._sessions.get(number)) is not None:
                    session.finish()
                    self._forget(number)
            case ev.Departed(client_id):
                self._on_departure(client_id)
            case ev.Probe():
                self._begin(self._probe(effect))

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

    async def _tell_in_turn(self, sessions: tuple[int, ...], formed: Formed) -> None:
        """Tell a few clients at a time what grows with their number; heartbeats are answered in between.

        All at once it would take the loop for seconds, and memory for the square of the number of clients. Whoever is
        not told yet still hears all else: no client depends on which comes first.
        """
        for first in range(0, len(sessions), TOLD_AT_ONCE):
            told = [s for n in sessions[first : first + TOLD_AT_ONCE] if (s := self._sessions.get(n)) is not None]
            for session in told:
                session.put(formed)
            try:
                async with asyncio.timeout(_TELL_TIMEOUT):
                    for session in told:
                        await session.idle()
            except TimeoutError:
                pass  # somebody is stopped, or cut off: the others need not wait for that
            await asyncio.sleep(0)

    async def _probe(self, probe: ev.Probe) -> None:
        if self._network is None:
            result = ProbeResult(ProbeOutcome.SILENT, "there is no network to ask over")
        else:
            address = Address.parse(probe.link_address)
            result = await self._network.probe(address, probe.incarnation, PROBE_TIMEOUT)
        await self._inbox.put(ev.ProbeAnswered(probe.tag, result.outcome, result.detail))
