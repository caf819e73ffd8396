"""The watch of a group, over every network: messages go around it, against the way of the collectives' bytes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from bringup.errors import PeerFailedError
from bringup.runtime.drivers.watch import WatchDriver
from bringup.runtime.machines.peer import events as ev
from bringup.transport.ports import LINK_MESSAGE_BYTES_MAX, Link
from bringup.transport.wire.control import encode
from bringup.transport.wire.messages import (
    Beat,
    CoordinatorMessage,
    HeartbeatAck,
    Leaver,
    Leaving,
    StepMark,
    Verdict,
    WatchMessage,
)

from .peers import job_of_peers
from .places import Place, ring_of_links

N = 3
LEADERS, VICTIM = (0, 3), 4
"""Of seven clients in two groups; the victim is the last that a wave comes to."""

Receive = Callable[[CoordinatorMessage, float], list[ev.PeerEffect]]
BEAT = Beat(1, 0.25, 1.0, (StepMark(1, 7, 2.5, 0.0),))
LEAVING = Leaving((Leaver(1, 2, 5),))


def verdict(cause: str) -> Verdict:
    return Verdict("PeerFailedError", 1, "a:1", "host-1", "ready", cause, (), ())


class Watcher:
    """One client's watch.

    Attributes:
        inbox: of its machine.
        links: from its left and to its right neighbour.
    """

    def __init__(self, links: tuple[Link, Link], room: int, tasks: set[asyncio.Task[Any]]) -> None:
        self.inbox: asyncio.Queue[ev.PeerEvent | None] = asyncio.Queue(room)
        self.links = links
        self._tasks = tasks
        self._driver = WatchDriver(self.inbox, self._spawn)
        self.send = self._driver.send

    def begin(self) -> None:
        self._driver.begin(*self.links)

    async def watched(self) -> WatchMessage:
        event = await self.inbox.get()
        assert isinstance(event, ev.Watched)
        return event.message

    def _spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        self._tasks.add(task := asyncio.get_running_loop().create_task(coroutine))
        return task


@contextlib.asynccontextmanager
async def group(place: Place, room: int = 0) -> AsyncIterator[list[Watcher]]:
    tasks: set[asyncio.Task[Any]] = set()
    async with ring_of_links(place, N) as links:
        watchers = [Watcher(pair, room, tasks) for pair in links]
        for watcher in watchers:
            watcher.begin()
        yield watchers
    for task in tasks:
        await task


async def test_what_the_leader_sends_comes_around_to_it(place: Place) -> None:
    async with group(place) as watchers:
        for message in (BEAT, verdict("it died"), LEAVING):
            watchers[0].send(message)
            for client_id in (2, 1, 0):
                assert await watchers[client_id].watched() == message
                if client_id:
                    watchers[client_id].send(message)
        assert all(watcher.inbox.empty() for watcher in watchers)


async def test_a_client_that_begins_late_gets_what_came_before(place: Place) -> None:
    async with ring_of_links(place, N) as links:
        early, late = (Watcher(links[client_id], 0, set()) for client_id in (1, 0))
        early.begin()
        early.send(BEAT)
        early.send(LEAVING)
        late.begin()
        assert await late.watched() == BEAT
        assert await late.watched() == LEAVING


async def test_a_full_inbox_takes_no_more_beats_but_every_verdict(place: Place) -> None:
    async with group(place, room=2) as watchers:
        for number in range(2, 40):
            watchers[1].send(Beat(number, 0.0, 0.0))
        watchers[1].send(verdict("it died"))
        watchers[1].send(LEAVING)
        heard = [await watchers[0].watched()]
        while heard[-1] != LEAVING:
            heard.append(await watchers[0].watched())
        assert heard.count(verdict("it died")) == 1
        beats = [message.number for message in heard if isinstance(message, Beat)]
        assert beats == sorted(set(beats))


async def test_the_last_word_of_a_client_that_ends_is_heard_before_its_end(place: Place) -> None:
    async with group(place) as watchers:
        watchers[1].send(verdict("it died"))
        for link in watchers[1].links:
            link.close()
        assert await watchers[0].links[1].wait_closed()
        event = watchers[0].inbox.get_nowait()
        assert event == ev.Watched(verdict("it died"))


async def test_a_report_that_is_too_long_for_a_link_stays_behind(place: Place) -> None:
    async with group(place) as watchers:
        watchers[1].send(verdict("x" * LINK_MESSAGE_BYTES_MAX))
        watchers[1].send(BEAT)
        assert await watchers[0].watched() == BEAT


async def test_waves_make_most_heartbeats_of_members_unnecessary(place: Place) -> None:
    async with job_of_peers(place, 7, group_size=3, heartbeat_interval=0.05) as job:
        job.start()
        await job.ups()
        machines = [job.peers[client_id].machine for client_id in range(7)]
        before = [machine._heartbeats.sent for machine in machines]
        while any(machines[leader]._heartbeats.sent < before[leader] + 10 for leader in LEADERS):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        sent = [machine._heartbeats.sent - former for machine, former in zip(machines, before, strict=True)]
        assert all(count < 5 for client_id, count in enumerate(sent) if client_id not in LEADERS), sent


async def test_members_hear_of_the_end_from_their_neighbours(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they do where the leaders are told first, and client 0 is busy with that."""
    async with job_of_peers(place, 7, group_size=3) as job:
        job.start()
        await job.ups()
        for client_id, peer in job.peers.items():
            if client_id not in LEADERS:
                monkeypatch.setattr(peer.machine, "_receive", all_but_verdicts(peer.machine._receive))
        job.peers[VICTIM].abort(ValueError("a bug"))
        for error in await job.failures(but=(VICTIM,)):
            assert isinstance(error, PeerFailedError)
            assert error.client_id == VICTIM
            assert "a bug" in str(error)


def all_but_verdicts(receive: Receive) -> Receive:
    return lambda message, now: [] if isinstance(message, Verdict) else receive(message, now)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xc1 random bytes", "are no message of this version"),
        (encode(HeartbeatAck(1, (), (), ())), "HeartbeatAck is not for a neighbour to send"),
    ],
    ids=["garbage", "another message"],
)
async def test_a_neighbour_that_sends_something_else_is_given_up(place: Place, data: bytes, reason: str) -> None:
    async with group(place) as watchers:
        watchers[1].links[0].post(data)
        assert reason in await watchers[0].links[1].wait_closed()
        assert await watchers[1].links[0].wait_closed()
        watchers[1].send(BEAT)
        assert watchers[0].inbox.empty()
