"""Runs the coordinator: one task per session, and one that owns the machine."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from ...transport.addresses import Address
from ...transport.messages import ClientMessage
from ...transport.ports import ChannelClosedError, Network, ProbeOutcome, ProbeResult, Session
from ..machines import events as ev
from ..machines.coordinator import CoordinatorMachine
from .drive import INBOX_MAX, Outbox, drive

__all__ = ["CoordinatorDriver"]

REGISTRATION_TIMEOUT = 5.0
"""Seconds that a new session has to register."""

PROBE_TIMEOUT = 1.0
"""Seconds that a suspect has to answer."""

LATECOMERS_TIMEOUT = 1.0
"""Seconds that a job which failed while it was forming stays to tell those who come late."""

_FLUSH_TIMEOUT = 1.0
_BROKEN = "the connection broke"
_ENDED_HERE = "the coordinator ended it"


class CoordinatorDriver:
    """The coordinator, as client 0's peer hosts it."""

    def __init__(self, machine: CoordinatorMachine, network: Network | None, clock: Callable[[], float]) -> None:
        self._machine = machine
        self._network = network
        self._clock = clock
        self._inbox: asyncio.Queue[ev.CoordinatorEvent | None] = asyncio.Queue(INBOX_MAX)
        self._outboxes: dict[int, Outbox] = {}
        self._numbers = itertools.count(1)
        self._acted = asyncio.Event()
        self._sessions: set[asyncio.Task[None]] = set()
        self._probes: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Run the machine until `close`."""
        try:
            await drive(self._machine, self._inbox, self._perform, self._clock, lambda: False)
        finally:
            for probe in self._probes:
                probe.cancel()
            await asyncio.gather(*self._probes, return_exceptions=True)

    async def close(self, *, wait_for_latecomers: bool) -> None:
        """Let the machine take in what has come so far, then everybody hear what it has to say. Bounded.

        A job that failed while it was forming has clients that are about to come: without `wait_for_latecomers` they
        find nobody there, and wait for the whole of their patience.
        """
        if wait_for_latecomers:
            await self._tell_latecomers()
        await self._inbox.put(None)
        for outbox in self._outboxes.values():
            outbox.finish()
        if self._sessions:
            await asyncio.wait(self._sessions, timeout=_FLUSH_TIMEOUT)

    async def _tell_latecomers(self) -> None:
        try:
            async with asyncio.timeout(LATECOMERS_TIMEOUT):
                while not self._machine.has_told_all:
                    self._acted.clear()
                    await self._acted.wait()
        except TimeoutError:
            return

    async def serve(self, session: Session) -> None:
        """Serve one session until it ends; called once for each."""
        task = asyncio.current_task()
        assert task is not None
        self._sessions.add(task)
        number = next(self._numbers)
        outbox = self._outboxes[number] = Outbox(session)
        pump = asyncio.create_task(outbox.pump())
        reader = asyncio.create_task(self._read(number, session))
        try:
            await asyncio.wait((pump, reader), return_when=asyncio.FIRST_COMPLETED)
        finally:
            reason = _ENDED_HERE if pump.done() and not reader.done() else _BROKEN
            if reader.done() and not reader.cancelled() and reader.exception() is None:
                reason = reader.result()
            del self._outboxes[number]
            self._sessions.discard(task)
            for part in (pump, reader):
                part.cancel()
            await asyncio.wait((pump, reader))
            await self._inbox.put(ev.SessionEnded(number, reason))
            await session.close()

    async def _read(self, number: int, session: Session) -> str:
        """Bring what the client sends to the machine; returns why it ended."""
        try:
            async with asyncio.timeout(REGISTRATION_TIMEOUT):
                message = await session.receive()
            while isinstance(message, ClientMessage):
                await self._inbox.put(ev.SessionMessage(number, message))
                message = await session.receive()
        except ChannelClosedError as error:
            return str(error)
        except TimeoutError:
            return f"it did not register within {REGISTRATION_TIMEOUT:g} s"
        return f"it sent a {type(message).__name__}, which is not for clients to send"

    def _perform(self, effect: ev.CoordinatorEffect) -> None:
        self._acted.set()
        match effect:
            case ev.Answer(sessions, message):
                for number in sessions:
                    if (outbox := self._outboxes.get(number)) is not None:
                        outbox.put(message)
            case ev.CloseSession(number):
                if (outbox := self._outboxes.get(number)) is not None:
                    outbox.finish()
            case ev.Probe():
                probe = asyncio.create_task(self._probe(effect))
                self._probes.add(probe)
                probe.add_done_callback(self._probes.discard)

    async def _probe(self, probe: ev.Probe) -> None:
        if self._network is None:
            result = ProbeResult(ProbeOutcome.SILENT, "there is no network to ask over")
        else:
            address = Address.parse(probe.link_address)
            result = await self._network.probe(address, probe.incarnation, PROBE_TIMEOUT)
        await self._inbox.put(ev.ProbeAnswered(probe.tag, result.outcome, result.detail))
