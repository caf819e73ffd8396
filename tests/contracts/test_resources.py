"""A network that was used and closed leaves nothing open in its process."""

from __future__ import annotations

import asyncio
import os
import threading
import time

import numpy as np

from bringup.transport.ports import Connection
from bringup.transport.wire.messages import Heartbeat

from .places import Place, ring_of_links, run
from .rings import served_rings
from .test_connections import connect, drain, served


async def use_all_of_it(place: Place) -> None:
    async def on_connection(connection: Connection) -> None:
        await drain(connection)

    async with served(place.peer(0), place.coordinator, on_connection):
        connections = [await connect(place, client_id) for client_id in range(1, 5)]
        for connection in connections:
            await connection.send(Heartbeat(1, "ready", True, ""))
        async with ring_of_links(place, 4) as links, served_rings(links, range(4), 4) as group:
            await asyncio.gather(*(ring.all_reduce(np.ones(4)) for ring in group))
        for connection in connections:
            await connection.close()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_no_thread_and_no_descriptor_stays() -> None:
    for place in ("sockets", "sockets-uvloop", "memory"):
        run(place, use_all_of_it)  # gRPC keeps what it opens on first use
        threads, files = threading.active_count(), open_files()
        for _ in range(20):
            run(place, use_all_of_it)
        assert threading.active_count() <= threads
        # gRPC's own threads close what they are done with, and tell nobody when.
        patience = time.monotonic() + 5.0
        while open_files() > files and time.monotonic() < patience:
            time.sleep(0.01)
        assert open_files() <= files
