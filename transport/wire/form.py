"""The form of every message on the wire, whichever connection carries it. Pure.

A message is a msgpack array: the tag of its type, then its fields, in the order in which its class declares them. The
class is the only declaration: its annotations hold the types and bounds that decoding checks.
"""

from collections.abc import Callable
from typing import Annotated, Any, TypeVar, get_args, get_origin

import msgspec
from msgspec import Meta, Raw, Struct

SHOWN_BYTES_MAX = 128 * 1024
"""A larger message is refused without naming the field: to look for it takes many times the message's memory, and some
seconds for each MiB of short entries, in which the loop would serve nobody."""

_VALUE_CHARS_MAX = 80
_BYTES_SHOWN = 12

Signed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Unsigned = Annotated[int, Meta(ge=0)]
"""At most 64 bits: msgpack has no larger number."""

T = TypeVar("T")


class MalformedMessageError(ValueError):
    """The bytes are not a message of this protocol. The text names the message, the field and its value."""


class Part(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A part of a message, which may occur in it many times."""


class Body(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A message. A subclass gives its `tag`, a whole number that is never used again."""


def _plain(value: object) -> object:
    # Subclasses of the built-in types, such as those of numpy, are the same on the wire.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int | float):
        return int(value) if isinstance(value, int) else float(value)
    raise TypeError(f"{type(value).__name__} has no form on the wire")


encode = msgspec.msgpack.Encoder(enc_hook=_plain).encode
"""Returns the wire form of a message, or of a part of one. Bounds are the receiver's to check."""

REFUSALS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The exceptions of decoding, for any bytes."""


def decoder_of(messages: Any) -> Callable[[Any], Any]:
    """Return the function that decodes any of a union of messages, and raises one of `REFUSALS`."""
    return msgspec.msgpack.Decoder(messages).decode


def malformed(data: bytes | memoryview, messages: Any, error: Exception) -> MalformedMessageError:
    """Return the exception for bytes that decoding refused with `error`."""
    beginning = f"{bytes(data[:_BYTES_SHOWN]).hex(' ')}{' ...' if len(data) > _BYTES_SHOWN else ''}"
    reason = (_fault_of(data, messages, error) if len(data) <= SHOWN_BYTES_MAX else "") or str(error)
    return MalformedMessageError(f"{len(data)} bytes ({beginning}) are no message of this version: {reason}")


def _fault_of(data: bytes | memoryview, messages: Any, error: Exception) -> str:
    """Return which field of which message is wrong, and how; empty where the bytes are not even a list of fields."""
    parts = _array_of(data)
    kind = {each.__struct_config__.tag: each for each in get_args(messages)}.get(_tag_of(parts))
    if kind is None:
        return ""
    return _fault_in(kind, parts[1:], kind.__name__) or f"{kind.__name__}: {error}"


def _array_of(data: Any) -> list[Raw]:
    try:
        return msgspec.msgpack.decode(data, type=list[Raw])
    except REFUSALS:
        return []


def _tag_of(parts: list[Raw]) -> int | None:
    try:
        return msgspec.msgpack.decode(parts[0], type=int) if parts else None
    except REFUSALS:
        return None


def _fault_in(kind: type[Struct], parts: list[Raw], place: str) -> str:
    # In order, as the decoder takes them: the first that cannot be decoded by itself is the one.
    for name, part in zip(kind.__struct_fields__, parts, strict=False):
        hint = kind.__annotations__[name]
        try:
            msgspec.msgpack.decode(part, type=hint)
        except REFUSALS as error:
            return _fault_of_field(hint, part, f"{place}.{name}", error)
    return ""


def _fault_of_field(hint: Any, part: Raw, place: str, error: Exception) -> str:
    item = _part_of(hint)
    if item is not None:
        for index, each in enumerate(_array_of(part)):
            if inner := _fault_in(item, _array_of(each), f"{place}[{index}]"):
                return inner
    return f"{place} is {_shown(part)}: {error}"


def _part_of(hint: Any) -> type[Part] | None:
    """Return the parts that a field is a tuple of, where it is one."""
    inner = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    item = get_args(inner)[0] if get_origin(inner) is tuple else None
    return item if isinstance(item, type) and issubclass(item, Part) else None


def _shown(part: Raw) -> str:
    try:
        text = ascii(msgspec.msgpack.decode(part))
    except REFUSALS:
        text = bytes(part).hex(" ")
    return text if len(text) <= _VALUE_CHARS_MAX else text[: _VALUE_CHARS_MAX - 3] + "..."
