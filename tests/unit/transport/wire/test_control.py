"""The messages of a session on the wire: nothing is lost, and nothing that a stranger sends hurts."""

from __future__ import annotations

import random
import tracemalloc
import typing
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bringup.errors import BringupError
from bringup.transport.texts import printable
from bringup.transport.wire.control import decode, encode
from bringup.transport.wire.form import Body, MalformedMessageError
from bringup.transport.wire.messages import (
    Behind,
    Commit,
    Formed,
    Goodbye,
    GroupPlace,
    HeartbeatAck,
    Leaver,
    Leaving,
    MemberInfo,
    MemberUpdate,
    Message,
    Overdue,
    PreemptionNotice,
    Refused,
    Register,
    Shared,
    Span,
    Step,
    SyncPoint,
    TopologyQuery,
)

from ....fuzz.messages import check, fuzz_messages
from .strategies import messages_of

TYPES: tuple[Any, ...] = typing.get_args(Message)
PLACE = GroupPlace(0, 1, 0, 1)
REGISTER = Register(1, 2, "worker", 5, "0.1", 2**64 - 1, "a:1", "a", 77, "a:2", "CPU", 1.0)


def declared(base: Any) -> set[Any]:
    """Return all messages that are declared, in whatever union they stand."""
    subclasses = base.__subclasses__()
    return {*subclasses, *(inner for each in subclasses for inner in declared(each))}


def test_every_message_is_in_the_union_and_no_two_have_the_same_tag() -> None:
    tagged = {kind for kind in declared(Body) if kind.__struct_config__.tag is not None}
    assert {kind for kind in tagged if kind.__module__ == REGISTER.__class__.__module__} <= set(TYPES)
    tags = Counter(kind.__struct_config__.tag for kind in tagged if kind.__module__.startswith("bringup."))
    assert max(tags.values()) == 1
    assert all(0 < tag < 128 for tag in tags)


@settings(max_examples=400)
@given(st.one_of(*map(messages_of, TYPES)))
def test_what_is_encoded_decodes_to_the_same_with_texts_that_can_be_shown(message: Message) -> None:
    assert decode(encode(message)) == shown(message)


def shown(value: Any) -> Any:
    """Return a message with its texts as they may be printed; UTF-8 has no form for a lone surrogate."""
    if isinstance(value, str):
        return printable(value.encode("utf-8", "replace").decode())
    if isinstance(value, tuple):
        return tuple(map(shown, value))
    if isinstance(value, msgspec.Struct):
        return type(value)(*[shown(getattr(value, name)) for name in value.__struct_fields__])
    return value


@pytest.mark.parametrize("text", ["\udc80", "a\ud800b", "\x1b[31m", "\u2028", "größer"])
def test_texts_of_parts_arrive_as_they_may_be_shown(text: str) -> None:
    for message in (
        Goodbye("ready", text, text),
        Formed("job", 1, PLACE, (MemberInfo(0, "a", "b", 1, 1, "c"), MemberInfo(1, "a", text, 1, 1, text))),
        Commit((Span("ring", 0.0, 1.0, 0), Span(text, 0.0, 1.0, 0))),
    ):
        assert decode(encode(message)) == shown(message)


def test_what_a_member_says_of_itself_drives_no_terminal_and_forges_no_line() -> None:
    evil = "pwned\n\x1b[31mred\r\x07\x9b2J\u2028\u202eend"
    arrived = decode(encode(Goodbye("ready", "ValueError", evil)))
    assert isinstance(arrived, Goodbye)
    assert arrived.cause == r"pwned\n\x1b[31mred\r\x07\x9b2J\u2028\u202eend"


def test_what_is_too_large_for_the_other_side_is_not_sent() -> None:
    with pytest.raises(BringupError, match="PreemptionNotice message of 2000"):
        encode(PreemptionNotice(1, 0.0, "x" * 2_000_000))
    assert len(encode(SyncPoint(1, 7, "x" * 2_000_000))) > 2_000_000


@pytest.mark.parametrize("kind", TYPES)
def test_a_message_of_nothing_but_defaults_survives(kind: Any) -> None:
    empty = {"str": "", "bytes": b"", "bool": False, "float": 0.0}
    hints = kind.__annotations__
    message = kind(*[empty.get(getattr(hints[name], "__name__", ""), 0) for name in kind.__struct_fields__])
    others = {name: () for name in kind.__struct_fields__ if "tuple" in str(hints[name])}
    others |= {name: GroupPlace(0, 0, 0, 0) for name, hint in hints.items() if hint is GroupPlace}
    message = msgspec.structs.replace(message, **others)
    assert decode(encode(message)) == message


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff", b"\x93\x21abc", b"GET / HTTP/1.1\r\n\r\n", bytes(100), b"\x0a\x02\x1a\x7f"],
    ids=["nothing", "half an array", "cut short", "HTTP", "zeros", "protobuf"],
)
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedMessageError, match=r"\d+ bytes"):
        decode(data)


@settings(max_examples=500)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    check("control", data)


def test_spoilt_messages_are_refused_or_survive() -> None:
    assert fuzz_messages("control", 10_000, seed=random.randrange(2**32)).total() == 10_000


@pytest.mark.parametrize(
    ("message", "index", "value", "reason"),
    [
        (REGISTER, 1, "one", r"Register\.client_id is 'one': Expected `int`, got `str`"),
        (REGISTER, 6, -1, r"Register\.incarnation is -1: Expected `int` >= 0"),
        (REGISTER, 1, 2**63, r"Register\.client_id is 9223372036854775808: Expected `int` <="),
        (REGISTER, 3, None, r"Register\.job_name is None"),
        (Goodbye("", "", ""), 3, b"\x1b", r"Goodbye\.cause is b'\\x1b'"),
        (HeartbeatAck(1, (), (), ()), 2, [1, "x"], r"HeartbeatAck\.missing is \[1, 'x'\]: .*\$\[1\]"),
        (HeartbeatAck(1, (), (), ()), 3, [[1, 0.5], [1, "late"]], r"HeartbeatAck\.overdue\[1\]\.age is 'late'"),
        (HeartbeatAck(1, (), (), ()), 3, {}, r"HeartbeatAck\.overdue is \{\}"),
        (Formed("", 1, PLACE, ()), 6, 1, r"Formed\.has_services is 1"),
    ],
)
def test_a_wrong_message_is_refused_with_its_field_and_the_value(
    message: Message, index: int, value: Any, reason: str
) -> None:
    fields = msgspec.msgpack.decode(encode(message))
    fields[index] = value
    with pytest.raises(MalformedMessageError, match=reason):
        decode(msgspec.msgpack.encode(fields))


@pytest.mark.parametrize("claim", [b"\xff\xff\xff\xff", b"\x00\x0f\x42\x40", b"\x00\x0f\x42\x41" + bytes(1000)])
def test_a_list_is_bounded_before_anything_is_made_of_it(claim: bytes) -> None:
    tracemalloc.start()
    with pytest.raises(MalformedMessageError, match=r"length <= 1000000|truncated"):
        decode(b"\x92\x2f\xdd" + claim)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


def test_what_is_said_to_all_is_encoded_once() -> None:
    leaving = Leaving(tuple(Leaver(2 * n, 2 * n, n) for n in range(100)))
    assert encode(leaving) is encode(leaving)
    assert decode(encode(leaving)) == leaving


@pytest.mark.parametrize("kind", [kind for kind in TYPES if issubclass(kind, Shared)])
def test_a_message_that_is_kept_encoded_is_not_changed_by_that(kind: Any) -> None:
    assert kind.__struct_config__.dict
    message = decode(encode(Leaving(())))
    assert message == Leaving(())
    assert repr(message) == repr(Leaving(()))


def test_an_answer_to_a_heartbeat_survives_with_all_its_parts() -> None:
    updates = tuple(MemberUpdate(n, n % 2 == 0, "") for n in range(100))
    steps = tuple(Step(n, 7, 1.5) for n in range(16))
    ack = HeartbeatAck(2, (0, 5), (Overdue(3, 1.0),), updates, steps, (), 6, (Behind("ring", (0, 5), 6),), 7)
    assert decode(encode(ack)) == ack


def test_text_that_is_not_utf8_is_refused() -> None:
    data = encode(Goodbye("", "", "xyz")).replace(b"xyz", b"\xff\xfe\xfd")
    with pytest.raises(MalformedMessageError, match=r"Goodbye\.cause is a3 ff fe fd: .*utf-8"):
        decode(data)


def test_a_message_of_a_later_version_is_refused_with_a_reason() -> None:
    with pytest.raises(MalformedMessageError, match=r"no message of this version: Invalid value 127"):
        decode(msgspec.msgpack.encode([127]))
    with pytest.raises(MalformedMessageError, match="Goodbye: Expected `array` of at most length 3, got 4"):
        decode(msgspec.msgpack.encode([*msgspec.msgpack.decode(encode(Goodbye("", "", ""))), 1]))


@pytest.mark.parametrize("message", [REGISTER, TopologyQuery(6), Refused("a", "b", "c", "d")])
def test_versions_can_tell_that_they_differ(message: Message) -> None:
    """What a later version adds to the first messages of a connection is not in the way of saying so."""
    fields = msgspec.msgpack.decode(encode(message))
    assert decode(msgspec.msgpack.encode([*fields, "more", [[1], {"a": b""}]])) == message
    with pytest.raises(MalformedMessageError, match="recursion"):
        decode(bytes([0xDC, 0, len(fields) + 1]) + encode(message)[1:] + b"\x91" * 100_000)


def test_numbers_and_texts_of_other_libraries_are_sent_as_their_own_kind() -> None:
    class Text(str):
        __slots__ = ()

        def __str__(self) -> str:
            return "another"

    class Number(int):
        pass

    message = Goodbye(Text("ready"), "", "")
    assert decode(encode(message)) == Goodbye("ready", "", "")
    assert decode(encode(SyncPoint(Number(3), 7, ""))) == SyncPoint(3, 7, "")
