"""A client of `bringup bench failure`: it waits in the phase that it is told, and says when and what it hears."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from ....errors import BringupError
from ....runtime.client.client import ACTIVE
from ....runtime.initialize import initialize
from ..libraries import BRINGUP
from .faults import describe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ....runtime.system import System
    from ..worker import Place, Station

FAULT_TEXT = "the fault that is measured"
EXIT_STATUS = 3
_BEFORE_UP = ("connect", "rendezvous", "devices")
_POLL_INTERVAL = 0.005
_ARRAY = np.ones(1 << 18, np.float32)


class FailureClient:
    """The harness's `Library`: bringup, with clients that wait for a fault.

    The orders of a client are `part` (`survivor`, `waits`, `raises` or `exits`), `phase`, `options` and `environment`.
    """

    def load(self) -> None:
        """Import all that the clients need."""
        BRINGUP.load()

    def work(self, place: Place, station: Station) -> None:
        """Say `placed` once in position; a survivor then says `told`, with the time and the error."""
        os.environ.update(place.orders["environment"])
        with suppress(BringupError):
            asyncio.run(_take_part(place, station))


LIBRARY = FailureClient()


async def _take_part(place: Place, station: Station) -> None:
    phase, part = place.orders["phase"], place.orders["part"]
    watch = asyncio.create_task(_say_when_in(phase, station)) if phase in _BEFORE_UP else None
    with _telling(station):
        system = await initialize("SIM", jobs=place.jobs, client_id=place.client_id, **place.orders["options"])
    assert watch is None, f"the job came up, which was to stay in phase {phase}"
    if part == "exits":
        await _wait_for_order(station)
        sys.exit(EXIT_STATUS)
    async with system:
        if part == "raises":
            await _wait_for_order(station)
            raise RuntimeError(FAULT_TEXT)
        is_late = part == "waits" and phase == "barrier"
        with _telling(station):
            await _call("idle" if is_late else phase, system, station)


async def _say_when_in(phase: str, station: Station) -> None:
    while (client := ACTIVE.get()) is None or client.phase != phase:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(_POLL_INTERVAL)
    station.say("placed", None)


async def _wait_for_order(station: Station) -> None:
    station.say("placed", None)
    await asyncio.to_thread(station.wait_until_told)
    station.say("struck", time.monotonic())


async def _call(phase: str, system: System, station: Station) -> NoReturn:
    """Make the call that the fault is to find pending, or, for collectives, one after the other."""
    if phase == "collective":
        await system.all_reduce(_ARRAY)
        station.say("placed", None)
        while True:
            await system.all_reduce(_ARRAY)
    call = asyncio.ensure_future(system.barrier("bench") if phase == "barrier" else system.wait_failed())
    await asyncio.sleep(0)
    station.say("placed", None)
    error = await call
    assert error is not None, "a barrier was released that one client never came to"
    raise error


@contextmanager
def _telling(station: Station) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        station.say("told", {"at": time.monotonic(), **describe(error)})
        raise
