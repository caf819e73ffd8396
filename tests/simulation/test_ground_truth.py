"""The simulator's own parts: what its network does, and how it knows what really went on."""

from __future__ import annotations

import random

import pytest

from .clock import Clock
from .ground_truth import clear_stretches
from .network import EVER, Latency, Network, Stream
from .world import World


class Receiver:
    """Stands where a process stands."""

    client_id = 1

    def __init__(self) -> None:
        self.received: list[object] = []

    def bring(self, action: object, *arguments: object) -> None:
        assert callable(action)
        action(*arguments)


def stream(*, loss: float = 0.0) -> tuple[Clock, Network, Receiver, Stream]:
    clock = Clock()
    network = Network(clock, random.Random(1), Latency(0.001, 0.1, loss))
    receiver = Receiver()
    return clock, network, receiver, Stream(network, 0, receiver)  # type: ignore[arg-type]


def test_a_stream_keeps_its_order_whatever_the_delays() -> None:
    clock, _, receiver, there = stream(loss=0.3)
    for number in range(50):
        there.put(receiver.received.append, number)
    clock.drain()
    assert receiver.received == list(range(50))


def test_a_cut_delays_what_is_sent_and_loses_nothing() -> None:
    clock, network, receiver, there = stream()
    there.put(receiver.received.append, 1)
    network.cut({0}, {1}, 5.0)
    there.put(receiver.received.append, 2)
    there.end(receiver.received.append, 3)
    clock.step(1.0)
    assert receiver.received == [1]
    clock.drain()
    assert receiver.received == [1, 2, 3]
    # The sender tries again after ever longer pauses, the last of which is no longer than the cut was.
    assert 5.0 < clock.now <= 10.0 + 0.1


def test_a_cut_is_one_way() -> None:
    _, network, _, _ = stream()
    network.cut({0}, {1}, EVER)
    assert network.is_cut(0, 1)
    assert not network.is_cut(1, 0)
    assert not network.is_cut(0, 2)
    assert network.is_cut_between(1, 0)


def test_a_reset_loses_what_is_on_its_way() -> None:
    clock, _, receiver, there = stream()
    there.put(receiver.received.append, 1)
    there.reset(receiver.received.append, "reset")
    there.put(receiver.received.append, 2)
    clock.drain()
    assert receiver.received == ["reset"]


@pytest.mark.parametrize(
    ("impairments", "clear"),
    [
        ([], [(2.0, 9.0)]),
        ([(0.0, 3.0)], [(3.0, 9.0)]),
        ([(4.0, EVER)], [(2.0, 4.0)]),
        ([(6.0, 7.0), (3.0, 4.0), (3.5, 5.0)], [(2.0, 3.0), (5.0, 6.0), (7.0, 9.0)]),
        ([(0.0, EVER)], []),
    ],
)
def test_what_is_left_of_a_stretch_of_time(impairments: list[tuple[float, float]], clear: list[object]) -> None:
    assert list(clear_stretches(impairments, 2.0, 9.0)) == clear


def test_a_stopped_process_does_later_what_came_meanwhile() -> None:
    with World(1, 2) as world:
        process = world.bring_up()[1]
        seen: list[float] = []
        process.stop()
        process.later(1.0, lambda: seen.append(world.clock.now))
        world.clock.after(3.0, process.resume)
        world.run(until=world.clock.now + 2.0)
        assert seen == []
        world.run(until=world.clock.now + 2.0)
        continued_at = process.stops[0][1]
        assert len(seen) == 1
        assert continued_at <= seen[0] <= continued_at + world.patience
