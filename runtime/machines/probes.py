"""Probes of a process, an effect of both machines, and the tags of effects.

An effect that takes time carries a tag, and its result comes back as an event with the same tag; a result whose tag is
not the current one is dropped. That is the answer to threads that cannot be cancelled and to packets that come late.
"""

from __future__ import annotations

from msgspec import Struct

from ...transport.ports import ProbeOutcome

Tag = int
"""Sequence number of an effect of one machine."""


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
