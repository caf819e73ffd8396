"""Frames of the coordination services on a stream of bytes. Pure.

A frame is the length of what follows (4 bytes, big-endian) and one message. Values that are large are parts of their
own, which are sent from where they are: the bytes are those that encoding the message at once would give.
"""

import struct
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from ...errors import ConfigurationError
from .form import REFUSALS, MalformedMessageError, decoder_of, malformed
from .form import encode as _encode
from .services import (
    KEY_BYTES_MAX,
    TEXT_CHARS_MAX,
    VALUE_BYTES_MAX,
    Changes,
    CompareAndSet,
    EnterBarrier,
    IncrementKey,
    Items,
    KeyChange,
    KeyValue,
    Refusal,
    ServiceMessage,
    SetKey,
    Value,
)

FRAME_BYTES_MAX = 2 * VALUE_BYTES_MAX + 1024 * 1024
"""Of what follows a length: compare-and-set carries two values."""

_LENGTH = struct.Struct("!I")
LENGTH_BYTES = _LENGTH.size
_VIEW_BYTES_MIN = 16 * 1024
"""Shorter frames are copied: that is cheaper than a view."""
_APART_BYTES_MIN = 16 * 1024
"""Shorter values are copied: that is cheaper than one more part to send."""
_WITHIN_BOUNDS = TEXT_CHARS_MAX
"""Bytes of a message that are too few for any text or list in it to be too long."""

_EMPTY_BYTES = len(_encode(b""))

frame_length = _LENGTH.pack
"""Returns the first bytes of a frame, given how many follow."""
_unpack_length = _LENGTH.unpack_from
_decode = decoder_of(ServiceMessage)


def _is_apart(value: bytes | None) -> bool:
    return value is not None and len(value) >= _APART_BYTES_MIN


def _is_any_apart(entries: tuple[KeyValue, ...] | tuple[KeyChange, ...]) -> bool:
    for entry in entries:
        value = entry.value
        if value is not None and len(value) >= _APART_BYTES_MIN:
            return True
    return False


_HAS_LARGE: dict[type, Callable[[Any], bool]] = {
    SetKey: lambda message: len(message.value) >= _APART_BYTES_MIN,
    Value: lambda message: _is_apart(message.value),
    CompareAndSet: lambda message: _is_apart(message.expected) or _is_apart(message.value),
    Items: lambda message: _is_any_apart(message.items),
    Changes: lambda message: _is_any_apart(message.changes),
}
_UNSENDABLE = (*REFUSALS, OverflowError, TypeError, UnicodeEncodeError)
_CHECKED = {IncrementKey, EnterBarrier}
"""Messages with numbers whose bounds are narrower than those of msgpack."""


def encode_parts(message: ServiceMessage) -> list[bytes]:
    """Return a message's frame, its length included, in parts to be sent one after the other; large values not copied.

    Raises:
        ConfigurationError: it has a field that no frame can carry: what, and how large it is.
    """
    has_large = _HAS_LARGE.get(type(message))
    if has_large is not None and has_large(message):
        return _in_parts(message)
    try:
        body = _encode(message)
        if len(body) > _WITHIN_BOUNDS or type(message) in _CHECKED:
            _decode(body)
    except _UNSENDABLE as error:
        if type(message) is Refusal and (sendable := _sendable(message)) != message:
            return encode_parts(sendable)
        raise _unsendable(message, error) from None
    return [frame_length(len(body)) + body]


def encode(message: ServiceMessage) -> bytes:
    """Return a message's frame, its length included, in one piece.

    Raises:
        ConfigurationError: see `encode_parts`.
    """
    parts = encode_parts(message)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def decode(frame: bytes | memoryview) -> ServiceMessage:
    """Return the message in a frame, which begins after its length. What is returned shares no memory with the frame.

    Raises:
        MalformedMessageError: there is none.
    """
    try:
        message: ServiceMessage = _decode(frame)
    except REFUSALS as error:
        raise malformed(frame, ServiceMessage, error) from None
    return message


def _in_parts(message: ServiceMessage) -> list[bytes]:
    """Return the parts of a frame, of which some are large values."""
    try:
        checked = _encode(_without_values(message))
        _decode(checked)
    except _UNSENDABLE as error:
        raise _unsendable(message, error) from None
    # Calls of 100 KB take 40 us, and the writer 3: for these two, the large value takes the place of an empty one.
    if isinstance(message, SetKey):
        before, after = checked[: -_EMPTY_BYTES - 1], checked[-1:]
        parts = [before + _bytes_header(len(message.value)), message.value, after]
    elif isinstance(message, Value) and message.value is not None:
        parts = [checked[:-_EMPTY_BYTES] + _bytes_header(len(message.value)), message.value]
    else:
        writer = _PartsWriter()
        writer.put_message(message)
        parts = writer.parts()
    size = sum(map(len, parts))
    if size > FRAME_BYTES_MAX:
        raise ConfigurationError(
            f"{type(message).__name__} cannot be sent: it takes {size} bytes, at most {FRAME_BYTES_MAX} are allowed, "
            f"and {VALUE_BYTES_MAX} for one value; split the value over several keys"
        )
    parts[0] = frame_length(size) + parts[0]
    return parts


def _without_values(node: Any) -> Any:
    """Return a message, or a part of one, whose bounds can be checked without copying its values."""
    if isinstance(node, SetKey):
        return SetKey(node.ticket, node.key, b"", node.overwrite)
    if isinstance(node, Value):
        return Value(node.ticket, b"")
    if isinstance(node, bytes):
        return b""
    if isinstance(node, tuple):
        return tuple(map(_without_values, node))
    if isinstance(node, Struct):
        return type(node)(*[_without_values(getattr(node, name)) for name in node.__struct_fields__])
    return node


class _PartsWriter:
    """Writes msgpack as an encoder does, and keeps large values apart."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._small: list[bytes] = []

    def parts(self) -> list[bytes]:
        """Return what was written."""
        self._end_small()
        return self._parts

    def put_message(self, message: Any) -> None:
        """Write a message, or a part of one."""
        tag = type(message).__struct_config__.tag
        values = [getattr(message, name) for name in message.__struct_fields__]
        self._put_all(values if tag is None else [tag, *values])

    def _put_all(self, values: Any) -> None:
        self._small.append(_array_header(len(values)))
        for value in values:
            self._put(value)

    def _put(self, value: Any) -> None:
        if isinstance(value, bytes) and _is_apart(value):
            self._small.append(_bytes_header(len(value)))
            self._end_small()
            self._parts.append(value)
        elif isinstance(value, tuple):
            self._put_all(value)
        elif isinstance(value, Struct):
            self.put_message(value)
        else:
            self._small.append(_encode(value))

    def _end_small(self) -> None:
        if self._small:
            self._parts.append(b"".join(self._small))
            self._small.clear()


def _bytes_header(size: int) -> bytes:
    return b"\xc5" + size.to_bytes(2, "big") if size < 2**16 else b"\xc6" + size.to_bytes(4, "big")


def _array_header(count: int) -> bytes:
    if count < 16:
        return bytes([0x90 | count])
    return b"\xdc" + count.to_bytes(2, "big") if count < 2**16 else b"\xdd" + count.to_bytes(4, "big")


def _sendable(refusal: Refusal) -> Refusal:
    # A text may quote what UTF-8 has no form for, and what is long: it is for people.
    text = refusal.text[:TEXT_CHARS_MAX].encode("utf-8", "replace").decode()
    return Refusal(refusal.ticket, refusal.error, text, refusal.missing)


def _unsendable(message: ServiceMessage, error: Exception) -> ConfigurationError:
    named = next((getattr(message, name) for name in ("key", "prefix", "name") if hasattr(message, name)), "")
    return ConfigurationError(
        f"{type(message).__name__} of {named[:80]!a} ({len(named)} characters) cannot be sent: {error}; "
        f"keys and names are UTF-8 text of at most {KEY_BYTES_MAX} bytes, numbers have 64 bits"
    )


def framed(message: bytes) -> bytes:
    """Return the frame of a message that is encoded already, its length included."""
    return frame_length(len(message)) + message


class Deframer:
    """Cuts a stream of bytes into frames of up to `limit` bytes."""

    def __init__(self, limit: int = FRAME_BYTES_MAX) -> None:
        self._limit = limit
        self._partial = bytearray()
        self._missing = 0

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes | memoryview]:
        """Return the frames that `data` completes, each without its length; to be decoded before `data` is changed.

        Raises:
            MalformedMessageError: a frame is longer than any message, or empty; nothing can follow.
        """
        if self._partial:
            self._partial += data
            if len(self._partial) < self._missing:
                return []
            data, self._partial = self._partial, bytearray()
        elif len(data) > LENGTH_BYTES and _unpack_length(data)[0] == len(data) - LENGTH_BYTES < _VIEW_BYTES_MIN:
            return [bytes(data[LENGTH_BYTES:])]
        return self._cut(data)

    def _cut(self, data: bytes | bytearray | memoryview) -> list[bytes | memoryview]:
        frames: list[bytes | memoryview] = []
        view = memoryview(data)
        start, end = 0, len(data)
        self._missing = LENGTH_BYTES
        while end - start >= LENGTH_BYTES:
            (length,) = _unpack_length(data, start)
            if not 0 < length <= self._limit:
                raise MalformedMessageError(f"a frame of {length} bytes was announced: 1 to {self._limit} may be")
            stop = start + LENGTH_BYTES + length
            if stop > end:
                self._missing = LENGTH_BYTES + length
                break
            frame = view[start + LENGTH_BYTES : stop]
            frames.append(bytes(frame) if length < _VIEW_BYTES_MIN else frame)
            start = stop
        if start < end:
            self._partial += view[start:]
        return frames
