"""A client of `bringup bench failure --alarms`: it looks at the others' heartbeats for as long as the job is up."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ....errors import BringupError
from ....runtime.initialize import initialize
from ..libraries import BRINGUP

if TYPE_CHECKING:
    from ....runtime.system import System
    from ..worker import Place, Station

_SAMPLES_PER_INTERVAL = 10
_LATE_INTERVALS = 1.5


@dataclass(slots=True)
class Sighting:
    """What one client has seen of the others."""

    interval: float
    largest_age: float = 0.0
    overdue: set[int] = field(default_factory=set)

    def look(self, system: System) -> None:
        ages = {one.client_id: one.last_heartbeat_age for one in system.members if one.client_id != system.client_id}
        self.largest_age = max(self.largest_age, *ages.values())
        # News of all the others comes from the coordinator: what their ages have in common is its own silence.
        silence = min(ages.values())
        late = {client_id for client_id, age in ages.items() if age - silence > self.interval}
        self.overdue |= late | ({0} if silence > _LATE_INTERVALS * self.interval else set())


class WatchClient:
    """The harness's `Library`; a client's orders are the `heartbeat_interval` that it looks at the others in."""

    def load(self) -> None:
        """Import all that the clients need."""
        BRINGUP.load()

    def work(self, place: Place, station: Station) -> None:
        """Come up, look at the others until told to leave or until the job fails, and say what was seen."""
        asyncio.run(_watch(place, station))


LIBRARY = WatchClient()


async def _watch(place: Place, station: Station) -> None:
    sighting = Sighting(place.orders["heartbeat_interval"])
    failure = None
    try:
        async with initialize("SIM", jobs=place.jobs, client_id=place.client_id) as system:
            station.returned()
            ends = {
                asyncio.ensure_future(asyncio.to_thread(station.wait_until_told)),
                asyncio.ensure_future(_fail(system)),
            }
            ended: set[asyncio.Future[None]] = set()
            while not ended:
                sighting.look(system)
                timeout = sighting.interval / _SAMPLES_PER_INTERVAL
                ended, _ = await asyncio.wait(ends, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            for end in ended:
                end.result()
    except BringupError as error:
        failure = f"client {place.client_id} was told: {type(error).__name__}: {error}"
    station.say("watched", [sighting.largest_age, sorted(sighting.overdue), failure])


async def _fail(system: System) -> None:
    if (error := await system.wait_failed()) is not None:
        raise error
