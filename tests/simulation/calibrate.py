"""`python -m tests.simulation.calibrate`: measures the constants of `costs` on this machine, with the shipped code.

All figures are of processor time, so that other load changes them little. The coordinator serves a crowd of clients
over gRPC, which a second process plays; links are TCP within one process.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from bringup.runtime.drivers.coordinator import CoordinatorDriver
from bringup.runtime.machines.coordinator import events as ev
from bringup.runtime.machines.coordinator.config import CoordinatorConfig
from bringup.runtime.machines.coordinator.machine import CoordinatorMachine
from bringup.transport.addresses import Address
from bringup.transport.credentials import INSECURE
from bringup.transport.grpc.connection import GrpcServer, open_connection
from bringup.transport.names import Names
from bringup.transport.tcp.interfaces import free_ports
from bringup.transport.tcp.link import TcpLink
from bringup.transport.wire import framing
from bringup.transport.wire.control import decode, encode
from bringup.transport.wire.messages import (
    PROTOCOL_VERSION,
    Beat,
    Commit,
    Formed,
    GroupPlace,
    Heartbeat,
    HeartbeatAck,
    MemberInfo,
    Register,
    Step,
    StepMark,
    TopologyReply,
    Verdict,
)
from bringup.transport.wire.services import Items, KeyValue
from bringup.transport.wire.session_messages import Acknowledge, EndSession, OpenSession

_CLIENTS = 200
_BEATS = 50
_PAUSE = 0.005
_ACKNOWLEDGED = 16
_HOPS = 2000
_LINKS = 50
_WAVES = 100
_SEGMENT = 256 * 1024
_SEGMENTS = 200


def main() -> None:
    """Print the figures."""
    uvloop.install()
    _codecs()
    asyncio.run(_control_plane())
    asyncio.run(_links())


# Encoding and decoding.


def _codecs() -> None:
    beat = Heartbeat(5, "ready", True, "", 5, 1.0)
    wave = Beat(
        5,
        0.1,
        1.1,
        steps=tuple(StepMark(n, 100, 0.5, 0.5) for n in range(16)),
        slowest=tuple(Step(n, 100, 0.5) for n in range(16)),
    )
    formed = Formed("0" * 32, 1, GroupPlace(3, 100, 300, 399), (_info(300), _info(302)))
    items = Items(1, tuple(KeyValue(f"directory/key-{n}", b"value") for n in range(4000)))
    _print("encode a heartbeat", _micros(lambda: encode(beat), 20_000))
    _print("encode and decode a heartbeat", _micros(lambda: decode(encode(beat)), 20_000))
    _print("encode and decode a beat of 32 steps", _micros(lambda: decode(encode(wave)), 2_000))
    _print("encode and decode a Formed", _micros(lambda: decode(encode(formed)), 5_000))
    for message in (beat, wave, formed, _register(300)):
        print(f"{'bytes of a ' + type(message).__name__:58}{len(encode(message)):10}")
    parts = framing.encode(items)
    _print("encode a byte of Items", _micros(lambda: framing.encode(items), 20) / len(parts))
    _print("a call of Python", _micros(_calls, 20) / 100_000)


def _info(client_id: int) -> MemberInfo:
    host = f"host-{client_id}"
    return MemberInfo(client_id, f"{host}:10000", host, 1000 + client_id, 2**63 + client_id, f"{host}:20000")


def _register(client_id: int) -> Register:
    r = _info(client_id)
    return Register(
        client_id,
        _CLIENTS,
        "worker",
        PROTOCOL_VERSION,
        "0",
        r.incarnation,
        r.address,
        r.hostname,
        r.pid,
        r.link_address,
        "CPU",
        1.0,
    )


def _print(what: str, micros: float) -> None:
    print(f"{what:58}{micros:10.4f} us")


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


# The coordinator, and clients over gRPC.


async def _control_plane() -> None:
    """Three things that a crowd does, timed at the coordinator, and one of them at the crowd as well."""
    config = CoordinatorConfig(
        num_clients=_CLIENTS, job_name="worker", job_id="0" * 32, heartbeat_interval=1.0, heartbeat_timeout=60.0
    )
    machine = CoordinatorMachine(config)
    driver = CoordinatorDriver(machine, None, time.monotonic, lambda: TopologyReply((), b"", ""))
    server = GrpcServer(driver.serve)
    [port] = free_ports(1)
    await server.listen(["127.0.0.1"], port, INSECURE)
    running = asyncio.create_task(driver.run())
    pipe, other = multiprocessing.Pipe()
    child = multiprocessing.get_context("spawn").Process(target=_crowd, args=(other, port))
    child.start()
    loop = asyncio.get_running_loop()

    async def timed(what: str, times: int, action: Callable[[], None] = lambda: None) -> None:
        await loop.run_in_executor(None, pipe.recv)
        began = time.process_time()
        pipe.send(None)
        action()
        theirs = await loop.run_in_executor(None, pipe.recv)
        _print(f"{what}, the coordinator", 1e6 * (time.process_time() - began) / times)
        _print(f"{what}, the client", 1e6 * theirs / times)

    def tell_all(message: Verdict | Commit) -> None:
        driver._perform(ev.SendTo(tuple(member.session for member in machine._members), message))

    await timed("connect, register, hear Formed", _CLIENTS)
    await timed("a heartbeat and its answer", _CLIENTS * _BEATS)
    await timed("a heartbeat and its answer, alone", _CLIENTS)
    await timed("a Commit for all", _CLIENTS, lambda: tell_all(Commit(())))
    await timed("a Verdict for all", _CLIENTS, lambda: tell_all(Verdict("E", 1, "", "", "ready", "died", (), ())))
    await timed("the end of a session and its connection", _CLIENTS)
    child.join()
    running.cancel()
    await asyncio.wait([running])
    await server.close()


def _crowd(pipe: Any, port: int) -> None:
    uvloop.install()
    asyncio.run(_be_a_crowd(pipe, port))


async def _be_a_crowd(pipe: Any, port: int) -> None:
    clients = [_Client(client_id, port) for client_id in range(_CLIENTS)]
    acts: tuple[Callable[[_Client], Coroutine[Any, Any, None]], ...] = (
        _Client.register,
        _Client.beat,
        _Client.beat_alone,
        lambda client: client.hear(Commit),
        lambda client: client.hear(Verdict),
        _Client.end,
    )
    for act in acts:
        pipe.send(None)
        pipe.recv()
        began = time.process_time()
        await asyncio.gather(*map(act, clients))
        pipe.send(time.process_time() - began)


class _Client:
    """A client's side of a session, without its machines."""

    connection: Any

    def __init__(self, client_id: int, port: int) -> None:
        self._client_id = client_id
        self._address = Address.parse(f"127.0.0.1:{port}")
        self._heard = 0

    async def register(self) -> None:
        self.connection, _ = await open_connection(
            Names(), self._address, INSECURE, lambda text: None, expected=False, num_clients=_CLIENTS
        )
        await self.connection.send(OpenSession(self._client_id + 1, 0, is_new=True))
        await self.connection.send(_register(self._client_id))
        await self.hear(Formed)

    async def beat(self) -> None:
        for number in range(_BEATS):
            await self.connection.send(Heartbeat(number, "ring", True, "", number, 0.1))
            await self.hear(HeartbeatAck)

    async def beat_alone(self) -> None:
        """As in a job in which nothing happens: each wakes up both sides."""
        await asyncio.sleep(_PAUSE * self._client_id)
        await self.connection.send(Heartbeat(_BEATS, "ring", True, "", _BEATS, 0.1))
        await self.hear(HeartbeatAck)

    async def end(self) -> None:
        await self.connection.send(EndSession(self._heard))
        while not isinstance(await self.connection.receive(), EndSession):
            pass
        await self.connection.close()

    async def hear(self, kind: type) -> None:
        while not isinstance(message := await self.connection.receive(), kind):
            self._heard += not isinstance(message, Acknowledge)
        self._heard += 1
        if self._heard % _ACKNOWLEDGED == 0:
            await self.connection.send(Acknowledge(self._heard))


# Links.


async def _links() -> None:
    loop = asyncio.get_running_loop()
    made: asyncio.Queue[TcpLink] = asyncio.Queue()
    server = await loop.create_server(lambda: TcpLink(made.put_nowait), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    pairs = [((await loop.create_connection(TcpLink, "127.0.0.1", port))[1], await made.get()) for _ in range(_LINKS)]
    await _ring_hops(*pairs[0])
    await _watch_hops(pairs)
    for link in (link for pair in pairs for link in pair):
        link.close()
    server.close()


async def _ring_hops(out: TcpLink, into: TcpLink) -> None:
    data, buffer = bytes(64), memoryview(bytearray(64))
    began = time.process_time()
    for _ in range(_HOPS):
        await out.send(data)
        await into.receive_into(buffer)
    _print("a hop of 64 bytes along the ring", 1e6 * (time.process_time() - began) / _HOPS)
    segment, target = bytes(_SEGMENT), memoryview(bytearray(_SEGMENT))
    began = time.process_time()
    for _ in range(_SEGMENTS):
        await asyncio.gather(out.send(segment), into.receive_into(target))
    _print("a byte along the ring, both ends", 1e6 * (time.process_time() - began) / (_SEGMENTS * _SEGMENT))


async def _watch_hops(pairs: list[tuple[TcpLink, TcpLink]]) -> None:
    """A wave goes around a group of as many links, decoded and encoded at each; what a machine does is not in it."""
    is_around = asyncio.Event()

    def receiver(index: int) -> Callable[[bytes | memoryview], None]:
        def pass_on(data: bytes | memoryview) -> None:
            message = decode(data)
            if index == 0:
                is_around.set()
            else:
                pairs[index - 1][1].post(encode(message), is_latest=True)

        return pass_on

    for index, (out, _) in enumerate(pairs):
        out.receive_messages(receiver(index))
    began = time.process_time()
    for number in range(_WAVES):
        is_around.clear()
        pairs[-1][1].post(encode(Beat(number, 0.1, 1.1)), is_latest=True)
        await is_around.wait()
    _print("a hop of a beat from right to left", 1e6 * (time.process_time() - began) / (_WAVES * _LINKS))


if __name__ == "__main__":
    main()
