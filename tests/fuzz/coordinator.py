"""Random messages, whole and spoilt, of strangers and of members, to a coordinator behind a real gRPC server."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, get_args

import grpc

from bringup.runtime.drivers.coordinator import CoordinatorDriver
from bringup.runtime.machines.coordinator.config import CoordinatorConfig
from bringup.runtime.machines.coordinator.machine import CoordinatorMachine
from bringup.transport.addresses import Address
from bringup.transport.credentials import INSECURE, Credentials
from bringup.transport.grpc.connection import GrpcServer
from bringup.transport.ports import Connection
from bringup.transport.tcp.interfaces import free_ports
from bringup.transport.wire.control import decode, encode
from bringup.transport.wire.messages import (
    PROTOCOL_VERSION,
    ClientMessage,
    Message,
    Register,
    TopologyQuery,
    TopologyReply,
)
from bringup.transport.wire.session_messages import OpenSession

from .messages import message_of, spoilt

PATH = "/bringup.Coordinator/Session"
MEMBERS = 3
STREAMS = 8
"""At once."""
MESSAGES_PER_COORDINATOR = 2_000
"""A job that has failed says the same to all: another one takes its place."""

KINDS = get_args(Message)
CLIENT_KINDS = get_args(ClientMessage)
REPLY = TopologyReply((1, 1, 1), bytes(48), "")


def registration(chance: random.Random) -> Register:
    client_id = chance.randrange(1, MEMBERS)
    address = f"127.0.0.1:{client_id + 1}"
    return Register(
        client_id, MEMBERS, "worker", PROTOCOL_VERSION, "0", client_id, address, "host", 1, address, "CPU", 1.0
    )


def script(chance: random.Random) -> tuple[list[bytes], int]:
    """Return the messages of one stream, and how many of them are random."""
    begin: list[bytes] = []
    if chance.random() < 0.8:
        begin.append(encode(OpenSession(chance.getrandbits(63), 0, is_new=chance.random() < 0.9)))
        if chance.random() < 0.8:
            begin.append(encode(registration(chance)))
    inputs = [one_message(chance) for _ in range(chance.choice([1, 1, 2, 4, 8]))]
    return begin + inputs, len(inputs)


def one_message(chance: random.Random) -> bytes:
    match chance.randrange(4):
        case 0:
            return chance.randbytes(chance.choice([0, 1, 50, 500]))
        case 1:
            return spoilt(encode(message_of(chance.choice(KINDS), chance)), chance)
        case 2:
            return encode(message_of(chance.choice(KINDS), chance))
        case _:
            return encode(message_of(chance.choice(CLIENT_KINDS), chance))


class FuzzedCoordinator:
    """A server, and one coordinator after another behind it.

    Attributes:
        address: where it listens.
        crashes: what was raised that nobody expected.
    """

    def __init__(self) -> None:
        self.address = Address("127.0.0.1", free_ports(1)[0])
        self.crashes: list[Exception] = []
        self._server = GrpcServer(self._serve, MEMBERS)
        self._driver: CoordinatorDriver
        self._running: asyncio.Task[None]

    async def listen(self, credentials: Credentials = INSECURE) -> None:
        await self._server.listen([self.address.host], self.address.port, credentials)
        self._begin()

    async def _serve(self, connection: Connection) -> None:
        await self._driver.serve(connection)

    def _begin(self) -> None:
        config = CoordinatorConfig(
            num_clients=MEMBERS, job_name="worker", job_id="ab" * 16, heartbeat_interval=1.0, heartbeat_timeout=60.0
        )
        driver = CoordinatorDriver(CoordinatorMachine(config), None, time.monotonic, lambda: REPLY)
        driver.on_crash = self.crashes.append
        self._driver, self._running = driver, asyncio.create_task(driver.run())

    async def begin_anew(self) -> None:
        """Put another coordinator in the place of this one."""
        running = self._running
        running.cancel()
        await asyncio.wait([running])
        if not running.cancelled() and (error := running.exception()) is not None:
            raise error
        self._begin()

    async def close(self) -> None:
        await self._server.close()
        self._running.cancel()
        await asyncio.wait([self._running])


@contextlib.asynccontextmanager
async def fuzzed_coordinator(credentials: Credentials = INSECURE) -> AsyncIterator[FuzzedCoordinator]:
    coordinator = FuzzedCoordinator()
    await coordinator.listen(credentials)
    try:
        yield coordinator
    finally:
        await coordinator.close()


async def say(channel: grpc.aio.Channel, messages: list[bytes]) -> str:
    """Say messages on a stream of their own; returns how the server took them."""
    call: Any = channel.stream_stream(PATH)()
    try:
        async with asyncio.timeout(20):
            for message in messages:
                await call.write(message)
            await call.done_writing()
            while (heard := await call.read()) is not grpc.aio.EOF:
                decode(heard)
            code = await call.code()
    except (grpc.RpcError, asyncio.InvalidStateError):
        # The server had ended the stream before all was written.
        code = await call.code()
    details = await call.details()
    assert details != "internal error of the coordinator"
    return "ended in order" if code is grpc.StatusCode.OK else "ended before all was written"


async def end_forgotten_calls() -> None:
    """End the tasks of calls of this side that gRPC gave up as their streams ended in the middle of a write."""
    forgotten = [task for task in asyncio.all_tasks() if "_handle_status_once_received" in repr(task)]
    for task in forgotten:
        task.cancel()
    if forgotten:
        await asyncio.wait(forgotten)


async def is_serving(channel: grpc.aio.Channel) -> bool:
    call: Any = channel.stream_stream(PATH)()
    await call.write(encode(TopologyQuery(PROTOCOL_VERSION)))
    heard = await call.read()
    is_answer = heard is not grpc.aio.EOF and decode(heard) == REPLY
    return is_answer and await call.code() is grpc.StatusCode.OK


async def fuzz_coordinator(count: int, seed: int) -> Counter[str]:
    """Say `count` random messages; returns how many streams ended how."""
    chance = random.Random(seed)
    found: Counter[str] = Counter()
    async with fuzzed_coordinator() as coordinator, grpc.aio.insecure_channel(str(coordinator.address)) as channel:
        said = 0
        while said < count:
            until = min(count, said + MESSAGES_PER_COORDINATOR)
            while said < until:
                scripts = [script(chance) for _ in range(STREAMS)]
                said += sum(inputs for _, inputs in scripts)
                found.update(await asyncio.gather(*(say(channel, messages) for messages, _ in scripts)))
                assert not coordinator.crashes, coordinator.crashes[0]
            assert await is_serving(channel)
            await coordinator.begin_anew()
            await end_forgotten_calls()
    return found
