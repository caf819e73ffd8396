"""Frames of the collectives, with the agreement of the clients on the call that they make. Pure."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

_MAGIC = b"brng"
# magic, whether all agree, bytes of text, sequence number of the collective, bytes of payload
_HEADER = struct.Struct("!4s?IQQ")
HEADER_BYTES = _HEADER.size
TEXT_BYTES_MAX = 4096
"""Of a call's description, or of the differences between the clients' calls, for an error text."""
_BETWEEN = {", ", "]", ")", "}"}
# A key of a dict, an array, what lies between two children, anything else.
_TOKEN = re.compile(r"""'(?:[^'\\]|\\.)*': |"(?:[^"\\]|\\.)*": |-?\d+: |\w+\[[\d, ]*\]|, |.""")


class MalformedFrameError(Exception):
    """The bytes are not the frame that is due; the text says what they are."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """The call of the clients so far, as it travels along the ring.

    Attributes:
        agreed: whether all of them called the same.
        text: the call, or, where they differ, who called what.
    """

    agreed: bool
    text: str

    @classmethod
    def of(cls, call: str, *, takes_part: bool = True) -> Agreement:
        """Return the agreement of the first client; see `join`."""
        return cls(True, call) if takes_part else cls(False, _said(0, call))

    def join(self, rank: int, call: str) -> Agreement:
        """Return the agreement once client `rank`, which called `call`, has joined it.

        Where the first client did not take part there is no agreement, whatever the others called.
        """
        if self.agreed:
            if call == self.text:
                return self
            where = first_difference(self.text, call)
            return Agreement(False, f"{f'{where}: ' if where else ''}{_said(0, self.text)}; {_said(rank, call)}")
        longer = f"{self.text}; {_said(rank, call)}"
        is_news = not self.text.endswith(f"called {call}") and len(longer.encode()) <= TEXT_BYTES_MAX
        return Agreement(False, longer) if is_news else self


def first_difference(one: str, other: str) -> str:
    """Return the first leaf at which two calls on trees differ, with the difference; empty if that cannot be told."""
    path: list[str | int] = []
    (head, _, first), (other_head, _, second) = one.partition(", "), other.partition(", ")
    if head != other_head or first[:1] not in ("{", "[", "("):
        return ""
    for token, beside in zip(_TOKEN.findall(first), _TOKEN.findall(second), strict=False):
        if token != beside:
            return _difference(path, token, beside)
        if token in ("{", "[", "("):
            path.append(0)
        elif token in (")", "]", "}"):
            path.pop()
        elif token.endswith(": ") and path:
            path[-1] = token[:-2]
        elif token == ", " and path and isinstance(path[-1], int):
            path[-1] += 1
        if not path:
            return ""
    return ""


def _difference(path: list[str | int], token: str, beside: str) -> str:
    if token in _BETWEEN or beside in _BETWEEN:
        return f"they differ after {_named(path)}" if {token, beside} < _BETWEEN else ""
    if token.endswith(": ") and beside.endswith(": "):
        return f"they differ in the keys at {_named(path[:-1])}: {token[:-2]} and {beside[:-2]}"
    return f"they differ at {_named(path)}: {token} and {beside}" if len(token) > 1 < len(beside) else ""


def _named(path: list[str | int]) -> str:
    return "".join(f"[{key}]" for key in path) or "the top"


def _said(rank: int, call: str) -> str:
    return f"client {rank} called {call}"


@dataclass(frozen=True, slots=True)
class FrameHeader:
    """The header of a frame with a text and a payload; sizes in bytes."""

    agreed: bool
    text_bytes: int
    sequence: int
    payload_bytes: int

    def encode(self) -> bytes:
        """Return the `HEADER_BYTES` bytes of this header."""
        return _HEADER.pack(_MAGIC, self.agreed, self.text_bytes, self.sequence, self.payload_bytes)


def decode_header(data: bytes | bytearray, sequence: int, payload_bytes_max: int) -> FrameHeader:
    """Return the header in `data`.

    Raises:
        MalformedFrameError: it is none, is not of collective number `sequence`, or announces more than is allowed.
    """
    magic, agreed, text_bytes, found, payload_bytes = _HEADER.unpack(data)
    if magic != _MAGIC:
        raise MalformedFrameError(f"expected the frame of collective {sequence}, got bytes that are no frame")
    if found != sequence:
        raise MalformedFrameError(f"expected the frame of collective {sequence}, got that of collective {found}")
    if text_bytes > TEXT_BYTES_MAX or payload_bytes > payload_bytes_max:
        raise MalformedFrameError(
            f"the frame of collective {sequence} announces {text_bytes} + {payload_bytes} bytes; "
            f"at most {TEXT_BYTES_MAX} + {payload_bytes_max} are allowed"
        )
    return FrameHeader(agreed, text_bytes, sequence, payload_bytes)
