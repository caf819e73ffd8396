"""The phases of a client's bring-up, and the record of how long each took."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from ...transport.wire.messages import Span


class Phase(enum.StrEnum):
    """The phases of a client, in their order; devices start beside the first two."""

    CONNECT = "connect"
    RENDEZVOUS = "rendezvous"
    DEVICES = "devices"
    RING = "ring"
    MERGE = "merge"
    COMMIT = "commit"
    READY = "ready"
    LEAVING = "leaving"
    CLOSED = "closed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a bring-up; `missing` are the clients that are not known to have registered."""

    phase: Phase
    elapsed: float
    missing: dict[int, str]
    waiting_for: str


class Timeline:
    """Begin and duration of each phase of one client, in seconds since `initialize()` was called."""

    def __init__(self, client_id: int, began: float) -> None:
        self._client_id = client_id
        self._began = began
        self._open: dict[str, float] = {}
        self._spans: list[Span] = []

    def enter(self, name: str, now: float) -> None:
        """Begin a phase; phases may overlap."""
        assert name not in self._open, f"phase {name} has begun already"
        self._open[name] = now

    def leave(self, name: str, now: float) -> None:
        """End a phase."""
        start = self._open.pop(name)
        self._spans.append(Span(name, start - self._began, now - start, self._client_id))

    def spans(self) -> tuple[Span, ...]:
        """Return the phases that have ended, by start."""
        return tuple(sorted(self._spans, key=lambda span: span.start))

    def elapsed(self, now: float) -> float:
        """Return the seconds since the beginning."""
        return now - self._began


def phase_named(name: str) -> Phase:
    """Return the phase with a name that another client sent; `READY` for an unknown name."""
    return Phase(name) if name in Phase._value2member_map_ else Phase.READY


_ORDER = {str(phase): place for place, phase in enumerate(Phase)}


def place_of(phase: str) -> int:
    """Return the place of a phase that another client sent in their order; an unknown one comes first."""
    return _ORDER.get(phase, -1)


def furthest_behind(phase_of: Mapping[int, str]) -> dict[int, str]:
    """Return the clients in the earliest phase, with that phase."""
    earliest = min(set(phase_of.values()), key=place_of)
    return {client_id: phase for client_id, phase in phase_of.items() if phase == earliest}


def slowest(spans: list[Span]) -> tuple[Span, ...]:
    """Return the longest span of each phase."""
    worst: dict[str, Span] = {}
    for span in spans:
        if span.name not in worst or span.duration > worst[span.name].duration:
            worst[span.name] = span
    return tuple(worst.values())
