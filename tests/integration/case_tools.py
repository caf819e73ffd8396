"""What cases need to know that a program has no call for."""

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
    """How long a body has taken."""

    def __enter__(self) -> Self:
        self._start = time.monotonic()
        return self

    def __exit__(self, *unused: object) -> None:
        self.taken = time.monotonic() - self._start


def until(is_so: Callable[[], bool]) -> None:
    """Block until something is so of which no event tells."""
    deadline = time.monotonic() + _PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, "it is not so yet"
        time.sleep(_POLL_INTERVAL)


def until_come(system: bringup.System, barrier: str, client_ids: Iterable[int]) -> None:
    """Block, on client 0, until others wait in a barrier; it hosts the services, and looks into them."""
    peer = system._client.peer
    assert peer is not None
    assert peer._services is not None
    rounds = peer._services._machine._barriers
    wanted = set(client_ids)
    until(lambda: wanted <= {each for r in rounds.status() if r.name == barrier for each in _ids(r.came)})


def notice_when_asked(system: bringup.System) -> threading.Event:
    """Return what is set once this client knows that a step to save at is being agreed on."""
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
