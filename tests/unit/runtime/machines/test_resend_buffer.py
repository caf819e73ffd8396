"""A session's ledger: whatever connections break, each side receives what the other sent, once, in order."""

from __future__ import annotations

import random

import pytest

from bringup.runtime.machines.resend_buffer import ACKNOWLEDGE_EVERY, Ledger
from bringup.transport.wire.messages import Leave


def filled(count: int) -> Ledger[Leave]:
    ledger: Ledger[Leave] = Ledger()
    for number in range(count):
        ledger.append(Leave(float(number)))
    return ledger


def hand_out(ledger: Ledger[Leave]) -> list[float]:
    out = []
    while ledger.has_unsent:
        out.append(ledger.next_unsent().timeout)
    return out


def test_messages_are_handed_out_once_in_order() -> None:
    ledger = filled(3)
    assert hand_out(ledger) == [0.0, 1.0, 2.0]
    assert not ledger.has_unsent


def test_what_is_acknowledged_is_not_kept() -> None:
    ledger = filled(3)
    hand_out(ledger)
    ledger.acknowledge(2)
    assert len(ledger) == 1
    ledger.rewind(2)
    assert hand_out(ledger) == [2.0]


def test_another_connection_begins_after_what_was_received() -> None:
    ledger = filled(3)
    hand_out(ledger)
    ledger.append(Leave(3.0))
    ledger.rewind(1)
    assert hand_out(ledger) == [1.0, 2.0, 3.0]


def test_acknowledgements_are_due_now_and_then() -> None:
    ledger: Ledger[Leave] = Ledger()
    due = [ledger.note_received() for _ in range(2 * ACKNOWLEDGE_EVERY)]
    assert [number for number, is_due in enumerate(due, start=1) if is_due] == [
        ACKNOWLEDGE_EVERY,
        2 * ACKNOWLEDGE_EVERY,
    ]


@pytest.mark.parametrize("received", [1, 4])
def test_nonsense_is_refused(received: int) -> None:
    ledger = filled(3)
    hand_out(ledger)
    ledger.acknowledge(2)
    with pytest.raises(ValueError, match=f"received {received} messages"):
        ledger.rewind(received)


@pytest.mark.parametrize("seed", range(50))
def test_nothing_is_lost_or_doubled_over_connections_that_break_anywhere(seed: int) -> None:
    rng = random.Random(seed)
    sender, receiver = filled(200), filled(0)
    received: list[float] = []
    while len(received) < 200:
        sender.rewind(receiver.received)
        on_the_way = [sender.next_unsent() for _ in range(rng.randint(0, 40)) if sender.has_unsent]
        for message in on_the_way[: rng.randint(0, len(on_the_way))]:
            received.append(message.timeout)
            if receiver.note_received() and rng.random() < 0.5:
                sender.acknowledge(receiver.received)
    assert received == [float(number) for number in range(200)]
