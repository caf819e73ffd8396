"""A network that was used and closed leaves nothing open in its process."""

from __future__ import annotations

import asyncio

import numpy as np

from bringup.transport.ports import Connection
from bringup.transport.wire.messages import Heartbeat

from ..lib.leftovers import Resources
from .places import Place
from .rings import rings
from .test_connections import connect, drain, served


async def use_all_of_it(place: Place) -> None:
    async def on_connection(connection: Connection) -> None:
        await drain(connection)

    async with served(place.peer(0), place.coordinator, on_connection):
        connections = [await connect(place, client_id) for client_id in range(1, 5)]
        for connection in connections:
            await connection.send(Heartbeat(1, "ready", True, ""))
        async with rings(place, 2, 2) as group:
            await asyncio.gather(*(ring.all_reduce(np.ones(4)) for ring in group))
        for connection in connections:
            await connection.close()


async def test_no_thread_and_no_descriptor_stays(place: Place) -> None:
    await use_all_of_it(place)  # gRPC keeps what it opens on first use
    before = Resources()
    for _ in range(20):
        await use_all_of_it(place)
    assert not before.left()
