"""Replies that many get at once are encoded once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.transport.wire import shared_replies
from bringup.transport.wire.framing import encode
from bringup.transport.wire.services import (
    Changes,
    ClientIds,
    Done,
    Items,
    KeyChange,
    KeyValue,
    Number,
    Refusal,
    ServiceReply,
    Value,
)
from bringup.transport.wire.shared_replies import SHARED_BYTES_MIN, ReplyEncoder

SIZES = [0, 1, SHARED_BYTES_MIN, 20_000]
TICKETS = [0, 1, 127, 128, 255, 256, 65_535, 65_536, 2**32, 2**63]


def answers(size: int, ticket: int) -> list[ServiceReply]:
    data = b"v" * size
    return [
        Done(ticket),
        Number(ticket, 7),
        Value(ticket, data),
        Items(ticket, (KeyValue("k", data), KeyValue("l", data)), False),
        Changes(ticket, (KeyChange("k", data, 4), KeyChange("l", None, 5)), True),
        ClientIds(ticket, (0, 4, 6, 6)),
        Refusal(ticket, "PeerFailedError", "t" * min(size, 16_000), tuple(range(size // 10))),
    ]


@pytest.mark.parametrize("size", SIZES)
def test_every_frame_is_that_of_its_reply(size: int) -> None:
    encoder = ReplyEncoder()
    for ticket in [*TICKETS, *TICKETS]:
        for reply in answers(size, ticket):
            assert b"".join(encoder.encode(reply)) == encode(reply)


@given(st.lists(st.tuples(st.integers(0, 300), st.sampled_from([None, b"", b"a", b"b" * 5000, b"c" * 20_000]))))
def test_frames_are_right_in_any_order(calls: list[tuple[int, bytes | None]]) -> None:
    encoder = ReplyEncoder()
    for ticket, value in calls:
        reply = Value(ticket, value)
        assert b"".join(encoder.encode(reply)) == encode(reply)


def test_what_all_are_told_is_encoded_once_and_kept_once(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[ServiceReply] = []
    encode_parts = shared_replies.encode_parts

    def counted(reply: ServiceReply) -> list[bytes]:
        encoded.append(reply)
        return encode_parts(reply)

    monkeypatch.setattr(shared_replies, "encode_parts", counted)
    encoder = ReplyEncoder()
    frames = [encoder.encode(Value(ticket, b"v" * 10_000)) for ticket in range(1000)]
    assert len(encoded) == 1
    assert len({id(frame[-1]) for frame in frames[1:]}) == 1
