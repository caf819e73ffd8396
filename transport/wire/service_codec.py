"""The wire form of the messages of the coordination services, and how a stream of bytes is cut into them.

A frame is the length of what follows (4 bytes), the type of the message (1 byte) and its body; whole numbers are
big-endian. One message has one form only: whatever can be decoded encodes to the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ...errors import ConfigurationError
from .service_forms import FORMS
from .service_messages import KEY_BYTES_MAX, VALUE_BYTES_MAX, ServiceMessage

FRAME_BYTES_MAX = 2 * VALUE_BYTES_MAX + 1024 * 1024
"""Of what follows a length: compare-and-set carries two values."""

_LENGTH = struct.Struct("!I")
_LENGTH_BYTES = _LENGTH.size
_VIEW_BYTES_MIN = 16 * 1024
"""Shorter frames are copied: that is cheaper than a view."""

_ENCODERS: dict[type, Callable[[Any], list[bytes]]] = {form.type: form.encode for form in FORMS}
_DECODERS: dict[int, Callable[[Any], ServiceMessage]] = {form.code: form.decode for form in FORMS}
_unpack_length = _LENGTH.unpack_from


class MalformedServiceError(Exception):
    """What came is no message of the coordination services; the text says what it is."""


def encode_parts(message: ServiceMessage) -> list[bytes]:
    """Return a message's frame, its length included, in parts to be sent one after the other; large values not copied.

    Raises:
        ConfigurationError: it has a field that no frame can carry: what, and how large it is.
    """
    try:
        parts = _ENCODERS[type(message)](message)
    except (struct.error, UnicodeEncodeError) as error:
        named = next((getattr(message, name) for name in ("key", "prefix", "name") if hasattr(message, name)), "")
        raise ConfigurationError(
            f"{type(message).__name__} of {named[:80]!a} ({len(named)} characters) cannot be sent: {error}; "
            f"keys and names are UTF-8 text of at most {KEY_BYTES_MAX} bytes, numbers have 64 bits"
        ) from None
    if len(parts) > 1 and (size := sum(map(len, parts))) > FRAME_BYTES_MAX:
        raise ConfigurationError(
            f"{type(message).__name__} cannot be sent: it takes {size} bytes, at most {FRAME_BYTES_MAX} are allowed, "
            f"and {VALUE_BYTES_MAX} for one value; split the value over several keys"
        )
    return parts


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
        MalformedServiceError: there is none.
    """
    try:
        return _DECODERS[frame[0]](frame)
    except (struct.error, LookupError, ValueError) as error:
        raise MalformedServiceError(f"a frame of {len(frame)} bytes, {_shown(frame)}, is no message: {error}") from None


def _shown(frame: bytes | memoryview) -> str:
    return f"{bytes(frame[:12]).hex(' ')}{' ...' if len(frame) > 12 else ''}"


class Deframer:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._partial = bytearray()
        self._missing = 0

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes | memoryview]:
        """Return the frames that `data` completes, each without its length; to be decoded before `data` is changed.

        Raises:
            MalformedServiceError: a frame is longer than any message, or empty; nothing can follow.
        """
        if self._partial:
            self._partial += data
            if len(self._partial) < self._missing:
                return []
            data, self._partial = self._partial, bytearray()
        elif len(data) > _LENGTH_BYTES and _unpack_length(data)[0] == len(data) - _LENGTH_BYTES < _VIEW_BYTES_MIN:
            return [bytes(data[_LENGTH_BYTES:])]
        return self._cut(data)

    def _cut(self, data: bytes | bytearray | memoryview) -> list[bytes | memoryview]:
        frames: list[bytes | memoryview] = []
        view = memoryview(data)
        start, end = 0, len(data)
        self._missing = _LENGTH_BYTES
        while end - start >= _LENGTH_BYTES:
            (length,) = _unpack_length(data, start)
            if not 0 < length <= FRAME_BYTES_MAX:
                raise MalformedServiceError(f"a frame of {length} bytes was announced: 1 to {FRAME_BYTES_MAX} may be")
            stop = start + _LENGTH_BYTES + length
            if stop > end:
                self._missing = _LENGTH_BYTES + length
                break
            frame = view[start + _LENGTH_BYTES : stop]
            frames.append(bytes(frame) if length < _VIEW_BYTES_MIN else frame)
            start = stop
        if start < end:
            self._partial += view[start:]
        return frames
