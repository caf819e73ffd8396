"""Both sides of a session over connections that break, hang and are late: everything arrives once, in order."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import pytest

from bringup.runtime.machines.session.effects import Began, Dial, Drop, Effects, Finish, Finished
from bringup.runtime.machines.session.machine import SessionMachine
from bringup.runtime.machines.session.table import SessionTable
from bringup.transport.wire.session_messages import OpenSession, SessionMessage

MESSAGES = 60


class Pipe:
    """One connection: what is on its way each way."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.up: deque[Any] = deque()
        self.down: deque[Any] = deque()
        self.is_open_above = self.is_open_below = True


class Network:
    """A client, a table, and the connections between them, which one random number after another decides about."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.client: SessionMachine[int] = SessionMachine(10_000)
        self.table: SessionTable[int, int] = SessionTable(10_000)
        self.session = 0
        self.dialled: list[int] = []
        self.above: dict[int, Pipe] = {}
        self.below: dict[int, Pipe] = {}
        self.heard_below: list[int] = []
        self.heard_above: list[int] = []
        self.is_finished = False

    def perform_above(self, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case Dial(number):
                    self.dialled.append(number)
                case Drop(number):
                    if (pipe := self.above.pop(number, None)) is not None:
                        pipe.is_open_above = False
                case Finished():
                    self.is_finished = True

    def perform_below(self, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case Began(session):
                    self.session = session
                case Drop(number) | Finish(number):
                    pipe = self.below.pop(number, None)
                    if pipe is not None:
                        self.pump_below(number, pipe)
                        pipe.is_open_below = False

    def pump(self) -> None:
        for number, pipe in self.above.items():
            while (message := self.client.next_to_send(number)) is not None:
                pipe.up.append(message)
        for number, pipe in self.below.items():
            self.pump_below(number, pipe)

    def pump_below(self, number: int, pipe: Pipe) -> None:
        while (message := self.table.next_to_send(number)) is not None:
            pipe.down.append(message)

    def step(self, *, is_calm: bool) -> None:
        self.now += self.rng.random() * 0.2
        self.perform_above(self.client.wake(self.now))
        self.perform_below(self.table.wake(self.now))
        self.connect()
        for pipe in list({**self.above, **self.below}.values()):
            self.move(pipe)
            if not is_calm and self.rng.random() < 0.05:
                pipe.up.clear()
                pipe.down.clear()
                pipe.is_open_above = pipe.is_open_below = False
        if not is_calm and self.rng.random() < 0.05:
            self.perform_above(self.client.redial())
        for number, pipe in list(self.above.items()):
            if not pipe.down and not pipe.is_open_below:
                del self.above[number]
                self.perform_above(self.client.lost(number, "it broke", self.now))
        for number, pipe in list(self.below.items()):
            if not pipe.up and not pipe.is_open_above:
                del self.below[number]
                self.perform_below(self.table.lost(number, "it broke"))
        self.pump()

    def connect(self) -> None:
        for number in self.dialled:
            below = self.table.connected(self.now)
            pipe = self.above[number] = self.below[below] = Pipe(below)
            self.perform_above(self.client.opened(number, self.now))
            assert pipe.number == below
        self.dialled.clear()

    def move(self, pipe: Pipe) -> None:
        above = next((number for number, each in self.above.items() if each is pipe), None)
        for _ in range(self.rng.randint(0, 4)):
            if pipe.up and pipe.number in self.below:
                self.arrive_below(pipe.number, pipe.up.popleft())
            if pipe.down and above is not None and above in self.above:
                self.arrive_above(above, pipe.down.popleft())
        if above not in self.above:
            pipe.down.clear()
        if pipe.number not in self.below:
            pipe.up.clear()

    def arrive_below(self, connection: int, message: int | SessionMessage) -> None:
        if isinstance(message, int):
            if self.table.take(connection):
                self.heard_below.append(message)
        elif isinstance(message, OpenSession):
            self.perform_below(self.table.open(connection, message.session, message))
        else:
            self.perform_below(self.table.receive(connection, message))

    def arrive_above(self, connection: int, message: int | SessionMessage) -> None:
        if isinstance(message, int):
            if self.client.take(connection):
                self.heard_above.append(message)
        else:
            self.perform_above(self.client.receive(connection, message, self.now))


@pytest.mark.parametrize("seed", range(100))
def test_everything_arrives_once_in_order_both_ways_and_the_end_too(seed: int) -> None:
    network = Network(seed)
    network.perform_above(network.client.begin(1, 0.0))
    sent_below = 0
    for number in range(MESSAGES):
        network.client.put(number)
        if network.session:
            network.table.put(network.session, sent_below)
            sent_below += 1
        network.step(is_calm=False)
    for _ in range(200):
        network.step(is_calm=True)
    assert network.heard_below == list(range(MESSAGES))
    assert network.heard_above == list(range(sent_below))
    network.perform_above(network.client.finish(network.now))
    for _ in range(20):
        network.step(is_calm=network.rng.random() < 0.8)
    assert network.is_finished
    assert network.heard_below == list(range(MESSAGES))
