"""`python -m tests.simulation.calibrate`: measures the constants of `costs` on this machine, with the shipped code."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Callable
from typing import Any

from bringup.runtime.drivers.coordinator import CoordinatorDriver
from bringup.runtime.machines.coordinator.config import CoordinatorConfig
from bringup.runtime.machines.coordinator.machine import CoordinatorMachine
from bringup.transport.addresses import Address
from bringup.transport.credentials import INSECURE
from bringup.transport.grpc.connection import GrpcServer, open_connection
from bringup.transport.names import Names
from bringup.transport.wire import framing
from bringup.transport.wire.control import decode, encode
from bringup.transport.wire.messages import (
    PROTOCOL_VERSION,
    Formed,
    GroupPlace,
    Heartbeat,
    HeartbeatAck,
    MemberInfo,
    Register,
    TopologyReply,
)
from bringup.transport.wire.services import Items, KeyValue

_PORT = 29_871
_CLIENTS = 100
_BEATS = 50


def main() -> None:
    """Print the figures."""
    beat = Heartbeat(5, "ready", True, "", 5, 1.0)
    formed, again = _formed(1000), _formed(1000)
    items = Items(1, tuple(KeyValue(f"directory/key-{n}", b"value") for n in range(4000)))
    size = len(encode(formed))
    print(f"encode a heartbeat        {_micros(lambda: encode(beat), 20_000):8.2f} us")
    print(f"decode a heartbeat        {_micros(lambda: decode(encode(beat)), 20_000):8.2f} us, encoding included")
    print(f"encode a byte of Formed   {_micros(lambda: encode(again), 1) / size:8.4f} us")
    print(f"decode a byte of Formed   {_micros(lambda: decode(encode(formed)), 20) / size:8.4f} us")
    parts = framing.encode(items)
    print(f"encode a byte of Items    {_micros(lambda: framing.encode(items), 20) / len(parts):8.4f} us")
    print(f"a call of Python          {_micros(_calls, 20) / 100_000:8.4f} us")
    print(f"a beat and its answer     {asyncio.run(_heartbeats()):8.2f} us at the coordinator, all included")


def _formed(num_clients: int) -> Formed:
    members = (
        MemberInfo(n, f"host-{n}:10000", f"host-{n}", 1000 + n, 2**63 + n, f"host-{n}:20000")
        for n in range(num_clients)
    )
    return Formed("0" * 32, 1, GroupPlace(0, 1, 0, num_clients - 1), (), tuple(members))


def _micros(action: Callable[[], Any], times: int) -> float:
    began = time.process_time()
    for _ in range(times):
        action()
    return 1e6 * (time.process_time() - began) / times


def _calls() -> None:
    seen: dict[int, int] = {}
    for n in range(50_000):
        seen.setdefault(n & 1023, n)
        _called(n)


def _called(number: int) -> int:
    return number


async def _heartbeats() -> float:
    config = CoordinatorConfig(
        num_clients=_CLIENTS, job_name="worker", job_id="0", heartbeat_interval=1.0, heartbeat_timeout=60.0
    )
    driver = CoordinatorDriver(CoordinatorMachine(config), None, time.monotonic, lambda: TopologyReply((), b"", ""))
    server = GrpcServer(driver.serve)
    await server.listen(["127.0.0.1"], _PORT, INSECURE)
    running = asyncio.create_task(driver.run())
    pipe, other = multiprocessing.Pipe()
    child = multiprocessing.get_context("spawn").Process(target=_crowd, args=(other,))
    child.start()
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, pipe.recv)
    began = time.process_time()
    pipe.send(None)
    await loop.run_in_executor(None, pipe.recv)
    micros = 1e6 * (time.process_time() - began) / (_CLIENTS * _BEATS)
    child.join()
    running.cancel()
    await asyncio.wait([running])
    await server.close()
    return micros


def _crowd(pipe: Any) -> None:
    asyncio.run(_be_a_crowd(pipe))


async def _be_a_crowd(pipe: Any) -> None:
    address = Address.parse(f"127.0.0.1:{_PORT}")
    connections = []
    for client_id in range(_CLIENTS):
        connection, _ = await open_connection(Names(), address, INSECURE, lambda text: None, expected=True)
        link = f"host-{client_id}:1"
        await connection.send(
            Register(client_id, _CLIENTS, "worker", PROTOCOL_VERSION, "0", client_id, link, "host", 1, link, "CPU", 1.0)
        )
        connections.append(connection)
    for connection in connections:
        while not isinstance(await connection.receive(), Formed):
            pass
    pipe.send(None)
    pipe.recv()
    await asyncio.gather(*map(_beat, connections))
    pipe.send(None)
    await asyncio.gather(*(connection.close() for connection in connections))


async def _beat(connection: Any) -> None:
    for number in range(_BEATS):
        await connection.send(Heartbeat(number, "ring", True, "", number, 0.1))
        while not isinstance(await connection.receive(), HeartbeatAck):
            pass


if __name__ == "__main__":
    main()
