"""The messages of the coordination services in frames: nothing is lost, and nothing that a stranger sends hurts."""

from __future__ import annotations

import random
import struct
import tracemalloc
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bringup.errors import ConfigurationError
from bringup.transport.wire import services as sm
from bringup.transport.wire.form import MalformedMessageError
from bringup.transport.wire.framing import FRAME_BYTES_MAX, Deframer, decode, encode, encode_parts

from ....fuzz.messages import check, fuzz_messages
from .strategies import messages_of

BYTES_MAX = 2**20

TYPES: tuple[Any, ...] = typing.get_args(sm.ServiceMessage)
any_message = st.one_of(*map(messages_of, TYPES))


def body(message: sm.ServiceMessage) -> bytes:
    """Return a message's frame without its length."""
    return encode(message)[4:]


def test_no_two_messages_have_the_same_tag() -> None:
    tags = [kind.__struct_config__.tag for kind in TYPES]
    assert len(set(tags)) == len(tags)


@settings(max_examples=600)
@given(any_message)
def test_a_message_survives(message: sm.ServiceMessage) -> None:
    parts = encode_parts(message)
    whole = b"".join(parts)
    assert encode(message) == whole
    assert struct.unpack_from("!I", whole) == (len(whole) - 4,)
    assert whole[4:] == msgspec.msgpack.encode(message)
    for frame in (whole[4:], memoryview(whole)[4:], memoryview(bytearray(whole))[4:]):
        decoded = decode(frame)
        assert type(decoded) is type(message)
        assert decoded == message


def test_values_come_back_as_bytes_of_their_own() -> None:
    frame = bytearray(body(sm.SetKey(1, "a", b"value", True)))
    message = decode(memoryview(frame))
    frame[-5:] = b"other"
    assert isinstance(message, sm.SetKey)
    assert type(message.value) is bytes
    assert message.value == b"value"


@pytest.mark.parametrize(
    "message",
    [
        sm.SetKey(1, "a", bytes(BYTES_MAX), True),
        sm.Value(1, bytes(BYTES_MAX)),
        sm.CompareAndSet(1, "a", None, bytes(BYTES_MAX)),
        sm.Items(1, (sm.KeyValue("a", b"1"), sm.KeyValue("b", bytes(BYTES_MAX)), sm.KeyValue("c", b"3"))),
        sm.Changes(1, (sm.KeyChange("a", bytes(BYTES_MAX), 1),)),
    ],
    ids=lambda message: type(message).__name__,
)
def test_large_values_are_not_copied(message: sm.ServiceMessage) -> None:
    tracemalloc.start()
    parts = encode_parts(message)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < BYTES_MAX // 2
    assert decode(b"".join(parts)[4:]) == message


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (sm.GetKey(1, "\ud800", False), r"GetKey of '\\ud800' .*surrogates"),
        (sm.GetKey(1, "k" * 70_000, False), r"GetKey of 'kkk.*70000 characters"),
        (sm.SetKey(1, "k" * 70_000, b"", False), "70000 characters"),
        (sm.IncrementKey(1, "a", 2**63), "IncrementKey of 'a' .*64 bits"),
        (sm.EnterBarrier(1, "b", (2**32,), 1.0), "EnterBarrier of 'b'"),
        (sm.EnterBarrier(1, "b", (1,) * (sm.ENTRIES_MAX + 1), 1.0), r"EnterBarrier of 'b'.*length <= 65536"),
        (sm.Items(1, (sm.KeyValue("a", b""),) * (sm.ENTRIES_MAX + 1)), r"Items of ''.*length <= 65536"),
    ],
)
def test_what_no_frame_can_carry_is_refused_by_name(message: sm.ServiceMessage, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        encode_parts(message)


def test_a_frame_that_would_be_too_long_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"SetKey cannot be sent: it takes \d+ bytes.*split the value"):
        encode_parts(sm.SetKey(1, "a", bytes(FRAME_BYTES_MAX), False))


def test_two_values_of_the_largest_size_go_into_one_frame() -> None:
    value = bytes(sm.VALUE_BYTES_MAX)
    assert sum(map(len, encode_parts(sm.CompareAndSet(1, "k" * sm.KEY_BYTES_MAX, value, value)))) <= FRAME_BYTES_MAX


def test_the_text_of_a_refusal_is_cut_and_what_has_no_form_is_replaced() -> None:
    message = decode(body(sm.Refusal(1, "ConfigurationError", "\ud800" + "ä" * 20_000)))
    assert isinstance(message, sm.Refusal)
    assert message.text == "?" + "ä" * 15_999


def test_spoilt_messages_are_refused_or_survive() -> None:
    assert fuzz_messages("services", 10_000, seed=random.randrange(2**32)).total() == 10_000


@settings(max_examples=500)
@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_refused(frame: bytes) -> None:
    check("services", frame)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ([1, 1, 3, b"", True], r"SetKey\.key is 3: Expected `str`, got `int`"),
        ([1, -1, "a", b"", True], r"SetKey\.ticket is -1: Expected `int` >= 0"),
        ([1, 1, "a", b""], "SetKey: Expected `array` of at least length 5, got 4"),
        ([2, 1, "a", 1], r"GetKey\.wait is 1: Expected `bool`"),
        ([6, 1, "a", "b", b"c"], r"CompareAndSet\.expected is 'b'"),
        ([11, 2**63, None], "Done: Expected `array` of at most length"),
        ([12, 1, "x\n\x1b[31m"], r"Value\.value is 'x\\n\\x1b\[31m'"),
        ([13, 1, [["a", b""], ["b", 7]], True], r"Items\.items\[1\]\.value is 7"),
        ([13, 1, [["a", b""], ["b"]], True], r"Items\.items is .*at least length 2, got 1"),
        ([16, 1, "KeyExistsError", "x" * 17_000, []], r"Refusal\.text is 'xxx.*length <= 16000"),
        ([10, 1, "b", [0, 2**32], 1.0], r"EnterBarrier\.client_ids is \[0, 4294967296\]"),
        ([10, 1, "b", [], float("nan")], r"EnterBarrier\.timeout is nan"),
        ([2, 1, "k" * 65_536, True], r"GetKey\.key is 'kkk.*length <= 65535"),
        ([99, 1], "Invalid value 99"),
        (["SetKey", 1], "Expected `int`, got `str`"),
        ({"key": 1}, "Expected `array`, got `object`"),
    ],
)
def test_a_wrong_message_is_refused_with_its_field_and_the_value(fields: Any, reason: str) -> None:
    with pytest.raises(MalformedMessageError, match=reason):
        decode(msgspec.msgpack.encode(fields))


def test_a_text_that_is_not_utf8_is_refused_with_its_field() -> None:
    with pytest.raises(MalformedMessageError, match=r"GetKey\.key is a2 ff fe: .*utf-8"):
        decode(b"\x94\x02\x01\xa2\xff\xfe\xc3")


def test_a_frame_cannot_claim_more_than_it_holds() -> None:
    """Nor be nested without end, nor take much memory to be refused."""
    items, ids = b"\x94\x0d\x01", b"\x93\x16\x01"
    claims = [
        items + b"\xdd\xff\xff\xff\xff" + bytes(6 * 1000),
        items + b"\xdd\x00\x01\x00\x00",
        items + b"\x91\x92\xdb\xff\xff\xff\xf0",
        items + b"\x91\x92\xa1a\xc6\xff\xff\xff\xf0",
        items + b"\x91" * 100_000,
        ids + b"\xdd\xff\xff\xff\xff",
        ids + b"\xdd\x00\x01\x00\x01",
        b"\xdd\xff\xff\xff\xff\x01",
        b"\x95\x01\x01\xda\xff\xff",
        b"\x91" * 100_000,
    ]
    tracemalloc.start()
    for claim in claims:
        with pytest.raises(MalformedMessageError):
            decode(claim)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 300_000


def chunks(data: bytes, sizes: Iterator[int]) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = next(sizes)
        yield data[at : at + size]
        at += size


@settings(max_examples=300)
@given(st.lists(any_message, max_size=12), st.randoms(use_true_random=False))
def test_a_stream_is_cut_into_its_frames_whatever_its_chunks(
    messages: list[sm.ServiceMessage], chance: random.Random
) -> None:
    largest = chance.choice([1, 3, 20, 300, 100_000])
    stream = b"".join(map(encode, messages))
    deframer = Deframer()
    decoded = []
    for chunk in chunks(stream, iter(lambda: chance.randint(1, largest), 0)):
        reused = bytearray(chunk)
        data = memoryview(reused) if chance.random() < 0.5 else chunk
        decoded += [decode(frame) for frame in deframer.feed(data)]
        reused[:] = bytes(len(reused))
    assert decoded == messages


@pytest.mark.parametrize("announced", [0, FRAME_BYTES_MAX + 1, 0xFFFFFFFF])
@pytest.mark.parametrize("before", [b"", encode(sm.Done(1))])
def test_frames_that_are_empty_or_too_long_end_the_stream(announced: int, before: bytes) -> None:
    with pytest.raises(MalformedMessageError, match=f"a frame of {announced} bytes"):
        Deframer().feed(before + struct.pack("!I", announced) + b"x")


def test_a_frame_that_is_announced_takes_no_memory_before_it_comes() -> None:
    deframer = Deframer()
    tracemalloc.start()
    assert deframer.feed(struct.pack("!IB", FRAME_BYTES_MAX, 1)) == []
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000


def test_a_frame_of_the_largest_value_comes_through_piece_by_piece() -> None:
    message = sm.SetKey(1, "a/b", bytes(sm.VALUE_BYTES_MAX), True)
    stream = encode(message) + encode(sm.Done(2)) + encode(sm.Done(3))[:5]
    deframer = Deframer()
    frames = [frame for chunk in chunks(stream, iter(lambda: 65_536, 0)) for frame in deframer.feed(chunk)]
    assert [decode(frame) for frame in frames] == [message, sm.Done(2)]
    (last,) = deframer.feed(encode(sm.Done(3))[5:])
    assert decode(last) == sm.Done(3)
