"""Probes of a process, an effect of both machines, and the tags of effects.

An effect that takes time carries a tag, and its result comes back as an event with the same tag; a result whose tag is
not the current one is dropped. That is the answer to threads that cannot be cancelled and to packets that come late.
"""

from __future__ import annotations

from msgspec import Struct

from ...transport.ports import ProbeOutcome

Tag = int
"""Sequence number of an effect of one machine."""


class Tags:
    """The tags of one machine's effects: of each kind of result the current one."""

    def __init__(self) -> None:
        self._sequence = 0
        self._awaited: dict[type, Tag] = {}

    def next(self, *results: type) -> Tag:
        """Return the tag for an effect, results of which are awaited from now on, each once."""
        self._sequence += 1
        self._awaited |= dict.fromkeys(results, self._sequence)
        return self._sequence

    def takes(self, result: type, tag: Tag) -> bool:
        """Return whether a result is the awaited one, and await it no longer."""
        if self._awaited.get(result) != tag:
            return False
        del self._awaited[result]
        return True

    def awaits(self, result: type) -> bool:
        """Return whether such a result is awaited."""
        return result in self._awaited


class Probe(Struct, frozen=True):
    """Ask whether the process at `link_address` is still `incarnation`: answered by `ProbeAnswered`."""

    tag: Tag
    link_address: str
    incarnation: int


class ProbeAnswered(Struct, frozen=True):
    """The result of a probe."""

    tag: Tag
    outcome: ProbeOutcome
    detail: str
