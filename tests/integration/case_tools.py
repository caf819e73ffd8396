"""Facts for cases that a program cannot ask for: who waits in a barrier, and whether an agreement was begun."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import bringup

TICK = 0.005
"""Seconds by which a timer may be early: event loops count in milliseconds."""

_POLL_INTERVAL = 0.002
_PATIENCE = 30.0


class Seconds:
    """The duration of a body."""

    def __enter__(self) -> Self:
        self._start = time.monotonic()
        return self

    def __exit__(self, *unused: object) -> None:
        self.taken = time.monotonic() - self._start


def until(is_so: Callable[[], bool]) -> None:
    """Poll a condition that sets no event, with a time-out."""
    deadline = time.monotonic() + _PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, "it is not so yet"
        time.sleep(_POLL_INTERVAL)


def until_come(system: bringup.System, barrier: str, client_ids: Iterable[int]) -> None:
    """Block until clients wait in a barrier; only on client 0, which hosts the services."""
    peer = system._client.peer
    assert peer is not None
    assert peer.services is not None
    machine, wanted = peer.services.machine, set(client_ids)
    until(lambda: wanted <= {each for r in machine.open_rounds() if r.name == barrier for each in _ids(r.came)})


def notice_when_asked(system: bringup.System) -> threading.Event:
    """Return an event that is set once this client takes part in the agreement on a preemption point."""
    asked = threading.Event()
    peer = system._client.peer
    assert peer is not None
    take = peer.preemption.take

    def taken(message: Any) -> None:
        take(message)
        asked.set()

    peer.preemption.take = taken  # type: ignore[method-assign]
    return asked


def _ids(pairs: Sequence[int]) -> set[int]:
    return {each for first, last in zip(pairs[::2], pairs[1::2], strict=True) for each in range(first, last + 1)}
