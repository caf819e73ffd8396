"""The messages of the coordination services on the wire: nothing is lost, and nothing that a stranger sends hurts."""

from __future__ import annotations

import random
import struct
import tracemalloc
import typing
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bringup.errors import ConfigurationError
from bringup.transport.wire import service_messages as sm
from bringup.transport.wire.service_codec import (
    FRAME_BYTES_MAX,
    Deframer,
    MalformedServiceError,
    decode,
    encode,
    encode_parts,
)
from bringup.transport.wire.service_forms import ENTRIES_MAX, FORMS

BYTES_MAX = 2**20

unsigned = st.integers(0, 2**64 - 1)
counts = st.integers(0, 2**32 - 1)
integers = st.integers(-(2**63), 2**63 - 1)
keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
values = st.binary(max_size=50) | st.integers(0, 40_000).map(lambda size: b"v" * size)
ids = st.lists(counts, max_size=5).map(tuple)

MESSAGES: dict[type[sm.ServiceMessage], st.SearchStrategy[sm.ServiceMessage]] = {
    sm.SetKey: st.builds(sm.SetKey, unsigned, keys, values, st.booleans()),
    sm.GetKey: st.builds(sm.GetKey, unsigned, keys, st.booleans()),
    sm.ListKeys: st.builds(sm.ListKeys, unsigned, keys),
    sm.DeleteKeys: st.builds(sm.DeleteKeys, unsigned, keys),
    sm.IncrementKey: st.builds(sm.IncrementKey, unsigned, keys, integers),
    sm.CompareAndSet: st.builds(sm.CompareAndSet, unsigned, keys, st.none() | values, values),
    sm.WatchKeys: st.builds(sm.WatchKeys, unsigned, keys),
    sm.MoreChanges: st.builds(sm.MoreChanges, unsigned, counts),
    sm.EndChannel: st.builds(sm.EndChannel, unsigned, unsigned),
    sm.CancelCall: st.builds(sm.CancelCall, unsigned),
    sm.EnterBarrier: st.builds(sm.EnterBarrier, unsigned, keys, ids, st.floats(allow_nan=False)),
    sm.Done: st.builds(sm.Done, unsigned),
    sm.Value: st.builds(sm.Value, unsigned, st.none() | values),
    sm.Items: st.builds(
        sm.Items, unsigned, st.lists(st.builds(sm.KeyValue, keys, values), max_size=5).map(tuple), st.booleans()
    ),
    sm.Number: st.builds(sm.Number, unsigned, integers),
    sm.Changes: st.builds(
        sm.Changes,
        unsigned,
        st.lists(st.builds(sm.KeyChange, keys, st.none() | values, unsigned), max_size=5).map(tuple),
        st.booleans(),
    ),
    sm.Refusal: st.builds(sm.Refusal, unsigned, st.sampled_from(["KeyExistsError", ""]), keys, ids),
    sm.OpenChannel: st.builds(sm.OpenChannel, unsigned, unsigned),
    sm.ChannelOpened: st.builds(sm.ChannelOpened, unsigned),
    sm.MessagesReceived: st.builds(sm.MessagesReceived, unsigned),
    sm.CloseChannel: st.builds(sm.CloseChannel),
    sm.ListLive: st.builds(sm.ListLive, unsigned),
    sm.ClientIds: st.builds(sm.ClientIds, unsigned, ids),
}
any_message = st.one_of(list(MESSAGES.values()))


def body(message: sm.ServiceMessage) -> bytes:
    """Return a message's frame without its length."""
    return encode(message)[4:]


def check_hostile(frame: bytes) -> None:
    """See that a frame is refused in the one way there is, or is the very form of what it decodes to."""
    for form in (frame, memoryview(frame)):
        try:
            message = decode(form)
        except MalformedServiceError:
            continue
        assert body(message) == frame


def test_every_message_has_a_form_and_no_two_the_same_code() -> None:
    types = set(typing.get_args(sm.ServiceMessage))
    assert types == {form.type for form in FORMS} == set(MESSAGES)
    assert len({form.code for form in FORMS}) == len(FORMS) == len(types)


@settings(max_examples=600, deadline=None)
@given(any_message)
def test_a_message_survives(message: sm.ServiceMessage) -> None:
    parts = encode_parts(message)
    whole = b"".join(parts)
    assert encode(message) == whole
    assert struct.unpack_from("!I", whole) == (len(whole) - 4,)
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
        (sm.EnterBarrier(1, "b", (1,) * (ENTRIES_MAX + 1), 1.0), "65537 bounds of client ids"),
        (sm.Items(1, (sm.KeyValue("a", b""),) * (ENTRIES_MAX + 1)), "65537 entries"),
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


@settings(max_examples=2000, deadline=None)
@given(st.binary(max_size=60))
def test_random_bytes_are_refused(frame: bytes) -> None:
    check_hostile(frame)


@settings(max_examples=1000, deadline=None)
@given(any_message, st.data())
def test_spoilt_frames_are_refused(message: sm.ServiceMessage, data: st.DataObject) -> None:
    frame = bytearray(body(message))
    at = data.draw(st.integers(0, min(len(frame) - 1, 40)))
    match data.draw(st.sampled_from(["change", "cut", "insert", "extend"])):
        case "change":
            frame[at] = data.draw(st.integers(0, 255))
        case "cut":
            del frame[at:]
        case "insert":
            frame.insert(at, data.draw(st.integers(0, 255)))
        case _:
            frame += data.draw(st.binary(min_size=1, max_size=9))
    check_hostile(bytes(frame))


def test_every_beginning_of_a_frame_is_refused() -> None:
    chance = random.Random(1)
    for form in FORMS:
        for _ in range(2000):
            check_hostile(bytes([form.code]) + chance.randbytes(chance.randrange(40)))


def test_a_frame_cannot_claim_more_than_it_holds() -> None:
    many = struct.pack("!BQBI", 13, 1, 1, 0xFFFFFFFF)
    claims = [
        many + bytes(6 * 1000),
        struct.pack("!BQBI", 15, 1, 0, ENTRIES_MAX),
        struct.pack("!BQBIHI", 13, 1, 1, 1, 1, 0xFFFFFFF0),
        struct.pack("!BQdHI", 10, 1, 1.0, 0, 0xFFFFFFFF),
        struct.pack("!BQBHI", 16, 1, 0, 0, 0x3FFFFFFF),
        struct.pack("!BQHI", 6, 1, 0, 0xFFFFFFFE),
        struct.pack("!BQBH", 1, 1, 1, 0xFFFF),
        struct.pack("!BQdHI", 10, 1, float("nan"), 0, 0),
    ]
    tracemalloc.start()
    for claim in claims:
        with pytest.raises(MalformedServiceError):
            decode(claim)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


def chunks(data: bytes, sizes: Iterator[int]) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = next(sizes)
        yield data[at : at + size]
        at += size


@settings(max_examples=300, deadline=None)
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
    with pytest.raises(MalformedServiceError, match=f"a frame of {announced} bytes"):
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
