"""The wire form of messages: one protobuf `Envelope` each.

Fields map by name, so a message gets its wire form by being declared twice: in `messages` and in the `.proto`. Texts
come out as they may be shown: see `texts.printable`.

What is `Shared` is encoded once. Parts of a message that are shared follow the rest, each as an envelope of its own
that holds nothing else: envelopes that follow one another are one, by the rules of protobuf.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Callable
from functools import cache
from typing import Any

from google.protobuf.message import DecodeError

from ...errors import BringupError
from ..protos import bringup_pb2
from ..texts import printable
from . import messages
from .messages import ClientMessage, Message, Shared

MESSAGE_BYTES_MAX = 64 * 1024 * 1024
"""The largest message a session carries: the member list of a job of some 500,000 clients."""

CLIENT_MESSAGE_BYTES_MAX = 1024 * 1024
"""The largest message that a client may send the coordinator."""

_BODY_TYPES: tuple[type, ...] = typing.get_args(Message)
_SNAKE = re.compile(r"(?<!^)(?=[A-Z])")
_NAME_OF_TYPE = {body: _SNAKE.sub("_", body.__name__).lower() for body in _BODY_TYPES}
_TYPE_OF_NAME = {name: body for body, name in _NAME_OF_TYPE.items()}


class MalformedMessageError(ValueError):
    """The bytes are not a message of this protocol."""


def encode(message: Message) -> bytes:
    """Return the wire form of `message`.

    Raises:
        BringupError: it is larger than the other side takes. To send it all the same would break the connection, and
            every one after it.
    """
    data = _encode(message)
    limit = CLIENT_MESSAGE_BYTES_MAX if isinstance(message, ClientMessage) else MESSAGE_BYTES_MAX
    if len(data) > limit:
        raise BringupError(
            f"a {type(message).__name__} message of {len(data)} bytes cannot be sent: it may have {limit} at most. "
            "A text in it is too long."
        )
    return data


def _encode(message: Message) -> bytes:
    if isinstance(message, Shared):
        return _once(message, _whole)
    parts = [_whole(message)]
    for name in _SHARED_FIELDS[type(message)]:
        parts += [_once(item, _PART_OF_FIELD[type(message), name]) for item in getattr(message, name)]
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _once(shared: Any, make: Callable[[Any], bytes]) -> bytes:
    wire: bytes | None = getattr(shared, "wire", None)
    if wire is None:
        wire = make(shared)
        object.__setattr__(shared, "wire", wire)
    return wire


def _whole(message: Any) -> bytes:
    data: bytes = bringup_pb2.Envelope(**{_NAME_OF_TYPE[type(message)]: _to_proto(message)}).SerializeToString()
    return data


def _part_of(body: type, field: str) -> Callable[[Any], bytes]:
    """Return what encodes an item of a field of `body` as an envelope that holds nothing else."""
    make = getattr(bringup_pb2, body.__name__)

    def part(item: Any) -> bytes:
        inner = make(**{field: [_to_proto(item)]})
        data: bytes = bringup_pb2.Envelope(**{_NAME_OF_TYPE[body]: inner}).SerializeToString()
        return data

    return part


def decode(data: bytes) -> Message:
    """Return the message that `data` is the wire form of.

    Raises:
        MalformedMessageError: it is none, or one this version does not know.
    """
    try:
        envelope = bringup_pb2.Envelope.FromString(data)
    except DecodeError as error:
        raise MalformedMessageError(f"{len(data)} bytes are not an Envelope: {error}") from None
    name = envelope.WhichOneof("body")
    if name is None:
        raise MalformedMessageError(f"an Envelope of {len(data)} bytes has no body that this version knows")
    message: Message = _from_proto(getattr(envelope, name), _TYPE_OF_NAME[name])
    return message


def _to_proto(value: Any) -> Any:
    fields, make = _plan(type(value))  # type: ignore[arg-type]
    return make(**{name: to_wire(getattr(value, name)) for name, to_wire, _ in fields})


def _from_proto(proto: Any, target: type) -> Any:
    fields, _ = _plan(target)
    return target(**{name: from_wire(getattr(proto, name)) for name, _, from_wire in fields})


def _encodable(text: str) -> str:
    # File names and foreign exceptions may hold lone surrogates, which UTF-8 has no form for.
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _same(value: Any) -> Any:
    return value


@cache
def _plan(body: Any) -> tuple[list[tuple[str, Callable[[Any], Any], Callable[[Any], Any]]], Any]:
    """For each field of `body`: its name, and how it goes to the wire and back."""
    hints = typing.get_type_hints(body, vars(messages))
    fields: list[tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = []
    for field in dataclasses.fields(body):
        hint = hints[field.name]
        if hint is str:
            fields.append((field.name, _encodable, printable))
            continue
        if typing.get_origin(hint) is not tuple:
            fields.append((field.name, _same, _same))
            continue
        item = typing.get_args(hint)[0]
        if _is_shared(item):
            fields.append((field.name, _apart, _many_from_proto(item)))
        elif dataclasses.is_dataclass(item):
            fields.append((field.name, _many_to_proto, _many_from_proto(item)))
        else:
            fields.append((field.name, _same, tuple))
    return fields, getattr(bringup_pb2, body.__name__)


def _many_to_proto(values: tuple[Any, ...]) -> list[Any]:
    return [_to_proto(value) for value in values]


def _many_from_proto(item: Any) -> Callable[[Any], tuple[Any, ...]]:
    return lambda protos: tuple(_from_proto(proto, item) for proto in protos)


def _is_shared(item: Any) -> bool:
    return isinstance(item, type) and issubclass(item, Shared)


def _apart(values: tuple[Any, ...]) -> list[Any]:
    return []


def _shared_fields(body: type) -> list[str]:
    hints = typing.get_type_hints(body, vars(messages))
    return [name for name, hint in hints.items() if any(map(_is_shared, typing.get_args(hint)))]


# Ready before the first message is due.
for _body in _BODY_TYPES:
    _plan(_body)
_SHARED_FIELDS = {_body: _shared_fields(_body) for _body in _BODY_TYPES}
_PART_OF_FIELD = {(_body, name): _part_of(_body, name) for _body, names in _SHARED_FIELDS.items() for name in names}
