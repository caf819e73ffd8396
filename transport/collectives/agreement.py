"""The agreement of the clients on the call that they make, as it travels around with a collective. Pure."""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta

from ..texts import printable
from ..wire.form import REFUSALS, Part, Unsigned, decoder_of, encode

TEXT_BYTES_MAX = 4096
"""Of calls that differ, for an error text; two of them always fit."""

AGREEMENT_BYTES_MAX = 2 * TEXT_BYTES_MAX
"""Of an agreement on the wire: two calls of the longest."""

_BYTES_BESIDE = 24
"""Of the words around each call in a text. The same for all clients: where calls do not fit is then no matter of how
they were brought together."""

_BETWEEN = {", ", "]", ")", "}"}
# A key of a dict, an array, what lies between two children, anything else.
_TOKEN = re.compile(r"""'(?:[^'\\]|\\.)*': |"(?:[^"\\]|\\.)*": |-?\d+: |\w+\[[\d, ]*\]|, |.""")


class MalformedFrameError(Exception):
    """The bytes are not the frame that is due; the text says what they are."""


class Run(Part, frozen=True):
    """Clients in a row that called the same; `first` is the first of them."""

    first: Unsigned
    call: str
    takes_part: bool = True


class Agreement(Part, frozen=True):
    """The calls of clients in a row.

    Attributes:
        runs: in the order of the clients; calls of equal neighbours are one run.
        is_cut: whether further runs did not fit.
    """

    runs: Annotated[tuple[Run, ...], Meta(min_length=1)]
    is_cut: bool = False

    @classmethod
    def of(cls, client_id: int, call: str, *, takes_part: bool = True) -> Agreement:
        """Return the agreement of one client with itself."""
        return cls((Run(client_id, printable(call), takes_part),))

    def __add__(self, later: Agreement) -> Agreement:
        """Return the agreement of these clients and of those that follow them; it is the same however they join."""
        if self.is_cut:
            return self
        before, after = self.runs[-1], later.runs[0]
        is_same = (before.call, before.takes_part) == (after.call, after.takes_part)
        runs = self.runs + later.runs[is_same:]
        fitting = _fitting(runs)
        return Agreement(runs[:fitting], later.is_cut or fitting < len(runs))

    @property
    def agreed(self) -> bool:
        """Whether all of them called the same, and take part in it."""
        return len(self.runs) == 1 and self.runs[0].takes_part

    @property
    def text(self) -> str:
        """The call, or, where they differ or do not take part, who called what."""
        if self.agreed:
            return self.runs[0].call
        where = first_difference(self.runs[0].call, self.runs[1].call) if len(self.runs) > 1 else ""
        return (f"{where}: " if where else "") + "; ".join(f"client {run.first} called {run.call}" for run in self.runs)

    def encode(self) -> bytes:
        """Return the wire form."""
        return encode(self)


_decode = decoder_of(Agreement)


def decode_agreement(data: bytes | bytearray) -> Agreement:
    """Return the agreement in `data`, with texts that are safe to show.

    Raises:
        MalformedFrameError: there is none in it.
    """
    try:
        agreement: Agreement = _decode(data)
    except REFUSALS as error:
        raise MalformedFrameError(f"expected what the clients called, got something else: {error}") from None
    if all(run.call.isprintable() for run in agreement.runs):
        return agreement
    runs = tuple(Run(run.first, printable(run.call), run.takes_part) for run in agreement.runs)
    return Agreement(runs, agreement.is_cut)


def _fitting(runs: tuple[Run, ...]) -> int:
    """Return how many of the runs fit into a text; always two, since a difference takes two."""
    size = 0
    for count, run in enumerate(runs):
        size += len(run.call.encode()) + _BYTES_BESIDE
        if size > TEXT_BYTES_MAX and count >= 2:
            return count
    return len(runs)


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
        elif token == ", " and path and isinstance(path[-1], int):  # noqa: S105 - of a text
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
