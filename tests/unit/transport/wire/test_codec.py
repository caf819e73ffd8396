"""The wire form of messages: `messages` and `bringup.proto` say the same, and nothing is lost on the way."""

from __future__ import annotations

import dataclasses
import re
import typing
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import given, settings
from hypothesis import strategies as st

from bringup.errors import BringupError
from bringup.transport.protos import bringup_pb2
from bringup.transport.texts import printable
from bringup.transport.wire import codec, messages
from bringup.transport.wire.codec import MalformedMessageError, decode, encode
from bringup.transport.wire.messages import (
    ClientMessage,
    CoordinatorMessage,
    Formed,
    Goodbye,
    HeartbeatAck,
    MemberInfo,
    MemberUpdate,
    Message,
    Overdue,
    PointSet,
    PreemptionNotice,
    SessionMessage,
    Step,
    VisitorMessage,
)

BODIES: tuple[type, ...] = typing.get_args(Message)
RECORDS = [
    value
    for value in vars(messages).values()
    if dataclasses.is_dataclass(value) and isinstance(value, type) and value.__module__ == messages.__name__
]
SCALARS = {
    str: {FieldDescriptor.TYPE_STRING},
    bytes: {FieldDescriptor.TYPE_BYTES},
    bool: {FieldDescriptor.TYPE_BOOL},
    float: {FieldDescriptor.TYPE_DOUBLE},
    int: {FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT64},
}


def hints_of(record: type) -> dict[str, Any]:
    return typing.get_type_hints(record, vars(messages))


def fields_in_proto(record: type) -> dict[str, FieldDescriptor]:
    return dict(getattr(bringup_pb2, record.__name__).DESCRIPTOR.fields_by_name)


def is_repeated(field: Any) -> bool:
    # Older runtimes know only the label, which newer ones call deprecated.
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == FieldDescriptor.LABEL_REPEATED)


def name_of_message(field: Any) -> str:
    return str(field.message_type.name)


def is_unsigned(record: type, name: str) -> bool:
    return bool(fields_in_proto(record)[name].type == FieldDescriptor.TYPE_UINT64)


def values(record: type, name: str, hint: Any) -> st.SearchStrategy[Any]:
    if typing.get_origin(hint) is tuple:
        return st.lists(values(record, name, typing.get_args(hint)[0]), max_size=4).map(tuple)
    if dataclasses.is_dataclass(hint):
        return records(typing.cast(type, hint))
    if hint is int:
        return st.integers(0, 2**64 - 1) if is_unsigned(record, name) else st.integers(-(2**63), 2**63 - 1)
    simple: dict[Any, st.SearchStrategy[Any]] = {
        str: st.text(),
        bytes: st.binary(),
        bool: st.booleans(),
        float: st.floats(allow_nan=False),
    }
    return simple[hint]


def records(record: type) -> st.SearchStrategy[Any]:
    return st.builds(record, **{name: values(record, name, hint) for name, hint in hints_of(record).items()})


@pytest.mark.parametrize("record", RECORDS)
def test_every_field_is_in_the_proto_with_its_type_and_no_other(record: type) -> None:
    in_proto = fields_in_proto(record)
    hints = hints_of(record)
    assert set(hints) == set(in_proto)
    for name, hint in hints.items():
        repeated = typing.get_origin(hint) is tuple
        item = typing.get_args(hint)[0] if repeated else hint
        assert is_repeated(in_proto[name]) == repeated, name
        if dataclasses.is_dataclass(item):
            assert name_of_message(in_proto[name]) == typing.cast(type, item).__name__
        else:
            assert in_proto[name].type in SCALARS[item], name


def test_the_envelope_carries_every_message_and_no_other() -> None:
    carried = {*map(name_of_message, bringup_pb2.Envelope.DESCRIPTOR.oneofs_by_name["body"].fields)}
    assert carried == {body.__name__ for body in BODIES}
    assert set(BODIES) == {
        *typing.get_args(ClientMessage),
        *typing.get_args(CoordinatorMessage),
        *typing.get_args(SessionMessage),
        *typing.get_args(VisitorMessage),
    }


def test_field_numbers_are_never_used_twice() -> None:
    for record in RECORDS:
        numbers = [field.number for field in fields_in_proto(record).values()]
        assert len(set(numbers)) == len(numbers)


@settings(deadline=None)
@given(st.one_of(*map(records, BODIES)))
def test_what_is_encoded_decodes_to_the_same_with_texts_that_can_be_shown(message: Message) -> None:
    assert decode(encode(message)) == shown(message)


def shown(value: Any) -> Any:
    """Return a message with its texts as they may be printed; UTF-8 has no form for a lone surrogate."""
    if isinstance(value, str):
        return printable(value.encode("utf-8", "replace").decode())
    if isinstance(value, tuple):
        return tuple(map(shown, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: shown(getattr(value, field.name)) for field in dataclasses.fields(value) if field.init}
        return dataclasses.replace(value, **fields)
    return value


def test_what_a_member_says_of_itself_drives_no_terminal_and_forges_no_line() -> None:
    evil = "pwned\n\x1b[31mred\r\x07\x9b2J\u2028\u202eend"
    arrived = decode(encode(Goodbye("ready", "ValueError", evil)))
    assert isinstance(arrived, Goodbye)
    assert arrived.cause == r"pwned\n\x1b[31mred\r\x07\x9b2J\u2028\u202eend"


def test_what_is_too_large_for_the_other_side_is_not_sent() -> None:
    with pytest.raises(BringupError, match="PreemptionNotice message of 2000"):
        encode(PreemptionNotice(1, 0.0, "x" * 2_000_000))
    assert len(encode(PointSet(1, 7, "x" * 2_000_000))) > 2_000_000


@pytest.mark.parametrize("body", BODIES)
def test_a_message_of_nothing_but_defaults_survives(body: type) -> None:
    empty: dict[Any, Any] = {str: "", bytes: b"", bool: False, float: 0.0, int: 0}
    message = body(**{name: empty.get(hint, ()) for name, hint in hints_of(body).items()})
    assert decode(encode(message)) == message


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff", b"\x0a\x05abc", b"GET / HTTP/1.1\r\n\r\n", bytes(100), b"\x0a\x02\x1a\x7f"],
    ids=["nothing", "half a tag", "cut short", "HTTP", "zeros", "cut short inside"],
)
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedMessageError, match=r"\d+ bytes"):
        decode(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    try:
        assert isinstance(decode(data), Message)
    except MalformedMessageError:
        pass


def test_what_is_said_to_all_is_encoded_once() -> None:
    members = tuple(MemberInfo(n, f"host-{n}:1", f"host-{n}", n, n, f"host-{n}:2") for n in range(100))
    formed = Formed("job", 1, members)
    assert encode(formed) is encode(formed)
    assert decode(encode(formed)) == formed


def test_what_heartbeat_answers_have_in_common_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    updates = tuple(MemberUpdate(n, "ring", n % 2 == 0, "") for n in range(100))
    steps = tuple(Step(n, 7, 1.5) for n in range(16))
    encode(HeartbeatAck(1, (), (), updates, steps))
    made: list[Any] = []
    shipped = codec._to_proto
    monkeypatch.setattr(codec, "_to_proto", lambda value: made.append(value) or shipped(value))
    ack = HeartbeatAck(2, (0, 5), (Overdue(3, 1.0),), updates, steps)
    assert decode(encode(ack)) == ack
    assert [type(value) for value in made] == [HeartbeatAck, Overdue]


def test_text_that_is_not_utf8_is_refused() -> None:
    data = (
        bringup_pb2.Envelope(goodbye=bringup_pb2.Goodbye(cause="xyz"))
        .SerializeToString()
        .replace(b"xyz", b"\xff\xfe\xfd")
    )
    with pytest.raises(MalformedMessageError):
        decode(data)


def test_a_message_of_a_later_version_is_refused_with_a_reason() -> None:
    unknown = b"\xfa\x7f\x00"  # field 2047, empty
    with pytest.raises(MalformedMessageError, match=re.escape("no body that this version knows")):
        decode(unknown)
