"""The coordinator's driver serves a crowd of clients until its end."""

from __future__ import annotations

import asyncio
import time

from bringup.runtime.drivers.coordinator import CoordinatorDriver
from bringup.runtime.machines.coordinator.config import CoordinatorConfig
from bringup.runtime.machines.coordinator.machine import CoordinatorMachine
from bringup.runtime.machines.session.limits import Ending
from bringup.transport.ports import ConnectionClosedError
from bringup.transport.wire.messages import (
    PROTOCOL_VERSION,
    Formed,
    Message,
    Register,
    TopologyReply,
)
from bringup.transport.wire.session_messages import OpenSession

N = 200


class Crowd:
    """Clients that have registered."""

    def __init__(self) -> None:
        self.clients = [Client(self, client_id) for client_id in range(N)]
        self.told = 0
        self.all_are_told = asyncio.Event()


class Client:
    """One of them, and its connection as the coordinator sees it."""

    certified_id = None

    def __init__(self, crowd: Crowd, client_id: int) -> None:
        self.crowd = crowd
        self.heard: asyncio.Queue[Message] = asyncio.Queue()
        self.says: asyncio.Queue[Message | None] = asyncio.Queue()
        address = f"host-{client_id}:1"
        self.says.put_nowait(OpenSession(client_id, 0, is_new=True))
        self.says.put_nowait(
            Register(
                client_id,
                N,
                "worker",
                PROTOCOL_VERSION,
                "0",
                client_id,
                address,
                f"host-{client_id}",
                1,
                address,
                "CPU",
                1.0,
            )
        )

    async def send(self, message: Message) -> None:
        if isinstance(message, Formed):
            self.take()
        await self.heard.put(message)

    def take(self) -> None:
        crowd = self.crowd
        crowd.told += 1
        if crowd.told == N:
            crowd.all_are_told.set()

    async def receive(self) -> Message:
        message = await self.says.get()
        if message is None:
            raise ConnectionClosedError("it is closed")
        return message

    async def close(self) -> None:
        self.says.put_nowait(None)


def make_driver() -> CoordinatorDriver:
    machine = CoordinatorMachine(
        CoordinatorConfig(
            num_clients=N, job_name="worker", job_id="job", heartbeat_interval=1.0, heartbeat_timeout=60.0
        )
    )
    return CoordinatorDriver(machine, None, time.monotonic, lambda: TopologyReply((), b"", ""))


async def test_a_coordinator_stays_until_all_have_taken_in_what_it_has_said() -> None:
    crowd, driver = Crowd(), make_driver()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        running = group.create_task(driver.run())
        serving = [group.create_task(driver.serve(client)) for client in crowd.clients]
        await crowd.all_are_told.wait()
        closing = group.create_task(driver.close(Ending.IN_ORDER))
        slow, *quick = crowd.clients
        for client in quick:
            client.says.put_nowait(None)
        await asyncio.wait(serving[1:])
        await asyncio.wait(serving[:1], timeout=0.2)
        assert not serving[0].done()
        assert not closing.done()
        slow.says.put_nowait(None)
        await closing
        await running
