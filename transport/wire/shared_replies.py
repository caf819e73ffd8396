"""Frames of replies of which thousands of clients get the same at once: encoded once, and kept once. Pure."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from .form import encode
from .framing import LENGTH_BYTES, encode_parts, frame_length
from .services import Changes, ClientIds, Items, Refusal, ServiceReply, Value

SHARED_BYTES_MIN = 4 * 1024
"""Of what follows the ticket: a shorter one is copied into each frame, which is cheaper than one more part to send."""

_HEAD_BYTES = 2
"""Of a message before its ticket: its size as an array, and its tag."""

_ANSWERS: dict[type, Callable[[Any], Any]] = {
    Value: attrgetter("value"),
    Items: attrgetter("items", "is_last"),
    Changes: attrgetter("changes", "ends_snapshot"),
    ClientIds: attrgetter("client_ids"),
    Refusal: attrgetter("error", "text", "missing"),
}
"""All but the ticket, for the replies that may be large."""


class _Answer:
    """The last reply of a type, and its frame without the ticket once it is given a second time."""

    __slots__ = ("content", "head", "parts", "size", "ticket_bytes")

    def __init__(self, content: Any, ticket: int, parts: list[bytes]) -> None:
        self.content = content
        self.parts = parts
        self.ticket_bytes = len(encode(ticket))
        self.head = b""
        self.size = 0

    def frame(self, ticket: int) -> list[bytes]:
        if not self.head:
            start = LENGTH_BYTES + _HEAD_BYTES
            first, *others = self.parts
            self.head = first[LENGTH_BYTES:start]
            self.parts = [first[start + self.ticket_bytes :], *others]
            self.size = sum(map(len, self.parts))
        number = encode(ticket)
        before = frame_length(_HEAD_BYTES + len(number) + self.size) + self.head + number
        first = self.parts[0]
        if len(first) < SHARED_BYTES_MIN:
            return [before + first, *self.parts[1:]]
        return [before, *self.parts]


class ReplyEncoder:
    """Encodes replies; one that differs from the last of its type by its ticket only shares the memory of that one.

    What is the same comes in a row: the replies to a barrier that has failed, to gets of one key, to a change that all
    watch.
    """

    def __init__(self) -> None:
        self._last: dict[type, _Answer] = {}

    def encode(self, reply: ServiceReply) -> list[bytes]:
        """Return a reply's frame in parts; see `framing.encode_parts`, also for what it raises."""
        content_of = _ANSWERS.get(type(reply))
        if content_of is None:
            return encode_parts(reply)
        content, last = content_of(reply), self._last.get(type(reply))
        if last is not None and last.content == content:
            return last.frame(reply.ticket)
        parts = encode_parts(reply)
        self._last[type(reply)] = _Answer(content, reply.ticket, parts)
        return parts
