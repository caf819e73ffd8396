"""Many clients in one process: what they found, and threads for libraries whose calls block."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .figures import meeting_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_FILES_EACH = 4
_FILES_APART = 256

Meet = Callable[[int], None]
"""Comes to a round of the barrier, by its number, and blocks until all have."""

_KEPT: list[Meet] = []
"""The clients of this process, until it is killed: one that is let go may wait for the others to go, too."""


def allow_files(clients: int) -> None:
    """Let this process open as many files as its clients need, as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = clients * _FILES_EACH + _FILES_APART
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


def crowd_result(began: float, stamps: Sequence[Sequence[tuple[float, float]]]) -> dict[str, Any]:
    """Return what `evaluate` wants to hear.

    Args:
        began: When the first client set about connecting.
        stamps: When each client came to each round, and was let go, `[clients][rounds]`; the first is that in which
            they connected.
    """
    entered, left = ([[stamp[side] for stamp in one[1:]] for one in stamps] for side in (0, 1))
    barrier, wrong = meeting_of(entered, left)
    connect = max(one[0][1] for one in stamps) - began
    return {"samples": {"barrier of tasks": barrier, "connect": connect}, "wrong": wrong}


def meet_in_threads(clients: int, rounds: int, connect: Callable[[int], Meet]) -> dict[str, Any]:
    """Let each client live in a thread, connect, and meet the others over and over.

    Args:
        clients: How many.
        rounds: How often they meet.
        connect: Connects a client, meets the others for the first time, and returns how to meet them again.
    """
    gate = threading.Barrier(clients + 1)
    stamps: list[list[tuple[float, float]]] = [[] for _ in range(clients)]
    errors: list[BaseException] = []

    def live(client_id: int) -> None:
        gate.wait()
        try:
            came = time.monotonic()
            meet = connect(client_id)
            stamps[client_id].append((came, time.monotonic()))
            _KEPT.append(meet)
            for number in range(rounds):
                came = time.monotonic()
                meet(number)
                stamps[client_id].append((came, time.monotonic()))
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is awaited
            errors.append(error)

    threads = [threading.Thread(target=live, args=(client_id,), daemon=True) for client_id in range(clients)]
    for thread in threads:
        thread.start()
    gate.wait()
    began = time.monotonic()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return crowd_result(began, stamps)
