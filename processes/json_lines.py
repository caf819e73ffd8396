"""Messages between a process and its children: one JSON value a line. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def json_line(value: object) -> bytes:
    """Return a value as a line."""
    return json.dumps(value).encode() + b"\n"


class JsonLines:
    """Splits a stream of bytes into values."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Any]:
        """Yield the values whose lines end in `data`.

        Raises:
            ValueError: a line is no JSON.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        yield from map(json.loads, lines)
