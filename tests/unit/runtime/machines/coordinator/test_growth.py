"""The cost of a job to client 0: bytes and steps of its coordinator grow with the number of clients, not its square.

Every stage is measured by itself, so that one that is cheap now is not hidden behind another.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from bringup.runtime.machines.coordinator import events as ev
from bringup.runtime.machines.coordinator import machine as coordinator
from bringup.runtime.machines.coordinator.config import CoordinatorConfig
from bringup.runtime.machines.coordinator.machine import CoordinatorMachine
from bringup.runtime.machines.coordinator.members import Members, info_of
from bringup.runtime.machines.coordinator.roll_call import RollCall
from bringup.runtime.machines.id_ranges import pack_ids
from bringup.runtime.machines.roster import Roster
from bringup.transport.wire.control import encode
from bringup.transport.wire.messages import ClientMessage, Heartbeat, HeartbeatAck, Leave, Message, Ready, Span

from .test_members import register

SIZES = (300, 600)
"""Large enough that the bounds of lists are reached in the smaller, and for those the same share of clients."""

DOUBLED_MAX = 2.3
"""Growth for twice as many clients: somewhat more than twice, for what is paid once and what costs a logarithm."""

ROUNDS = 2

PAUSE = 0.0005
"""Seconds from event to event: all clients are heard within an interval, also in the largest job."""

UNCOUNTED = ""
"""A stage in which something is made that serves all answers for a while."""


class Stages:
    """A coordinator whose clients all say what they say while a job comes up, and later.

    Attributes:
        bytes: sent, by stage.
        steps: lines executed and iterations of loops, by stage.
    """

    def __init__(self, num_clients: int, group_size: int) -> None:
        self.size = num_clients
        self.bytes: Counter[str] = Counter()
        self.steps: Counter[str] = Counter()
        self.now = 0.0
        self.seen = [0] * num_clients
        self._stage = ""
        self._machine = CoordinatorMachine(
            CoordinatorConfig(
                num_clients=num_clients,
                job_name="worker",
                job_id="ab" * 16,
                heartbeat_interval=1.0,
                heartbeat_timeout=1000.0,
                group_size=group_size,
            )
        )

    def run(self) -> None:
        """Live through all stages."""
        clients = range(self.size)
        scattered = [*clients[::2], *clients[1::2]]
        roster = Roster.of(info_of(register(client_id, self.size)) for client_id in clients)
        with self.stage("forming"):
            for client_id in scattered:
                self.say(client_id, register(client_id, self.size))
                self.beat(client_id, "rendezvous")
        with self.stage("coming up"):
            for phase in ("devices", "ring", "merge"):
                for client_id in scattered:
                    self.beat(client_id, phase)
            spans = tuple(Span(phase, 0.0, 1.0, 0) for phase in ("ring", "merge"))
            for client_id in scattered:
                self.say(client_id, Ready(b"digest", spans, roster.digest))
        with self.stage("idle"):
            self.all_beat(scattered)
        with self.stage(UNCOUNTED):
            self.all_beat(scattered, step=1)
        with self.stage("at work"):
            self.all_beat(scattered, step=7)
        with self.stage("unwell"):
            self.all_beat(scattered, health="too hot")
        with self.stage("late"):
            self.now += 10.0
            self.all_beat(scattered[: self.size // 2])
        with self.stage("coming back"):
            for client_id in scattered:
                self.take(ev.SessionEnded(100 + client_id, "reset"))
                self.take(ev.SessionResumed(100 + client_id))
            self.all_beat(scattered)
        with self.stage("leaving"):
            for client_id in clients:
                self.say(client_id, Leave(1000.0))

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count for a stage."""
        self._stage = name
        yield
        self.now += 1.0

    def all_beat(self, clients: list[int], *, health: str = "", step: int = -1) -> None:
        """Have clients send some heartbeats."""
        for number in range(ROUNDS):
            for client_id in clients:
                self.beat(client_id, "ready", health=health, step=-1 if step < 0 else step + number)

    def beat(self, client_id: int, phase: str, health: str = "", step: int = -1) -> None:
        """Have a client send a heartbeat."""
        seen = self.seen[client_id]
        for message in self.say(client_id, Heartbeat(1, phase, not health, health, step, 0.0, 0.0, seen)):
            if isinstance(message, HeartbeatAck):
                self.seen[client_id] = max(seen, message.news)

    def say(self, client_id: int, message: ClientMessage) -> list[Message]:
        """Have the coordinator take in a message; returns its own."""
        return self.take(ev.MessageReceived(100 + client_id, message))

    def take(self, event: ev.CoordinatorEvent) -> list[Message]:
        """Have the coordinator take in an event, and what has fallen due."""
        self.now += PAUSE
        machine, effects = self._machine, []
        with _counted(self._add_step):
            if (due := machine.deadline()) is not None and due <= self.now:
                effects += machine.wake(self.now)
            effects += machine.handle(event, self.now)
        sent = [effect for effect in effects if isinstance(effect, ev.SendTo)]
        self.bytes[self._stage] += sum(len(encode(effect.message)) * len(effect.sessions) for effect in sent)
        self.steps[self._stage] += sum(len(effect.sessions) for effect in sent)
        return [effect.message for effect in sent]

    def _add_step(self) -> None:
        self.steps[self._stage] += 1


@contextmanager
def _counted(count: Callable[[], None]) -> Iterator[None]:
    """Call `count` for each line that is executed within, once for each iteration where it is a loop."""

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            count()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def growth(group_size: Callable[[int], int] = lambda size: 0) -> dict[str, float]:
    """Return the growth of each stage for twice as many clients, in bytes and in steps."""
    few, many = jobs = [Stages(size, group_size(size)) for size in SIZES]
    for job in jobs:
        job.run()
    stages = [stage for stage in few.steps if stage != UNCOUNTED]
    found = {f"{stage}: steps": many.steps[stage] / few.steps[stage] for stage in stages}
    # Each departure is told to all, or, in a job in groups, to their leaders.
    return found | {f"{stage}: bytes": many.bytes[stage] / few.bytes[stage] for stage in stages if stage != "leaving"}


@pytest.mark.parametrize("group_size", [lambda size: 0, math.isqrt], ids=["one group", "groups"])
def test_what_a_job_costs_client_0_grows_with_its_clients_and_not_with_their_square(
    group_size: Callable[[int], int],
) -> None:
    found = growth(group_size)
    assert len(found) == 15
    assert {stage: ratio for stage, ratio in found.items() if ratio > DOUBLED_MAX} == {}


def test_what_costs_the_square_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def name_all_that_are_missing(self: Any, now: float) -> tuple[tuple[int, ...], int]:
        missing = self._members.missing()
        return pack_ids(missing), len(missing)

    monkeypatch.setattr(RollCall, "missing", name_all_that_are_missing)
    monkeypatch.setattr(coordinator, "_OVERDUE_MAX", 10**6)
    monkeypatch.setattr(Members, "all_leave", property(lambda self: all(member.is_leaving for member in self)))
    squares = {"forming: steps", "forming: bytes", "late: steps", "late: bytes", "leaving: steps"}
    assert {stage for stage, ratio in growth().items() if ratio > DOUBLED_MAX} == squares
