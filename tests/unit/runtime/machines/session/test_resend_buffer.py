"""Unacknowledged messages are kept, and sent again over another connection."""

from __future__ import annotations

import pytest

from bringup.runtime.machines.session.resend_buffer import ResendBuffer
from bringup.transport.wire.messages import Leave


def filled(count: int) -> ResendBuffer[Leave]:
    buffer: ResendBuffer[Leave] = ResendBuffer()
    for number in range(count):
        buffer.append(Leave(float(number)))
    return buffer


def hand_out(buffer: ResendBuffer[Leave]) -> list[float]:
    out = []
    while buffer.has_unsent:
        out.append(buffer.next_unsent().timeout)
    return out


def test_messages_are_handed_out_once_in_order() -> None:
    buffer = filled(3)
    assert hand_out(buffer) == [0.0, 1.0, 2.0]
    assert not buffer.has_unsent


def test_what_is_acknowledged_is_not_kept() -> None:
    buffer = filled(3)
    hand_out(buffer)
    buffer.acknowledge(2)
    assert len(buffer) == 1
    buffer.rewind(2)
    assert hand_out(buffer) == [2.0]


def test_another_connection_begins_after_what_was_received() -> None:
    buffer = filled(3)
    hand_out(buffer)
    buffer.append(Leave(3.0))
    buffer.rewind(1)
    assert hand_out(buffer) == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("received", [1, 4])
def test_nonsense_is_refused(received: int) -> None:
    buffer = filled(3)
    hand_out(buffer)
    buffer.acknowledge(2)
    with pytest.raises(ValueError, match=f"received {received} messages"):
        buffer.rewind(received)
