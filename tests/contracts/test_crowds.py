"""Thousands of connections come to client 0 at once: none is dropped for another, and each is served."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import AsyncIterator, Iterator

import pytest

from bringup.transport.addresses import Address
from bringup.transport.network import GrpcNetwork
from bringup.transport.ports import Connection, LinkIdentity, ServiceLink
from bringup.transport.tcp.handshake import REPLY_BYTES, Hello, Purpose, Status, decode_reply
from bringup.transport.tcp.interfaces import free_ports
from bringup.transport.wire.session_messages import OpenSession, SessionOpened

from .places import identity, quietly

CROWD = 1500
"""More than the connections that a small job's client 0 keeps."""
FILES = 3 * CROWD


@pytest.fixture(autouse=True)
def files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FILES:
        pytest.skip(f"{FILES} open files are needed, and the limit (ulimit -Hn) is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, FILES), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.asynccontextmanager
async def crowd_at(port: int) -> AsyncIterator[list[socket.socket]]:
    """Yield connections that say nothing."""
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(socket.socket()) for _ in range(CROWD)]
        for sock in socks:
            sock.setblocking(False)
        await asyncio.gather(*(loop.sock_connect(sock, ("127.0.0.1", port)) for sock in socks))
        yield socks


async def reply_to(sock: socket.socket) -> bytes:
    reply = b""
    while len(reply) < REPLY_BYTES:
        data = await asyncio.get_running_loop().sock_recv(sock, REPLY_BYTES - len(reply))
        assert data, "it was dropped"
        reply += data
    return reply


class Nobody:
    """Takes nothing in."""

    def received(self, frame: object) -> None:
        raise AssertionError("nothing is sent")

    def lost(self, reason: str) -> None:
        return


def welcome(link: ServiceLink, sender: LinkIdentity) -> Nobody:
    return Nobody()


async def ask_all(socks: list[socket.socket], purpose: Purpose, expected: Status) -> None:
    """Say a hello over all connections, and then read the answer to each."""
    loop = asyncio.get_running_loop()
    for client_id, sock in enumerate(socks, 1):
        await loop.sock_sendall(sock, Hello(purpose, identity(client_id), identity(0)).encode())
    for sock in socks:
        reply = decode_reply(await reply_to(sock))
        assert reply is not None
        assert reply.status is expected


@pytest.mark.every_loop
async def test_all_clients_come_for_the_services_at_once() -> None:
    host = GrpcNetwork(own=None, loopback=True, num_clients=CROWD + 1)
    listener = await host.serve_links(identity(0).incarnation, welcome, is_host=True)
    accepting = asyncio.create_task(listener.accept(identity(0), identity(CROWD)))
    async with crowd_at(listener.port) as socks:
        await ask_all(socks, Purpose.SERVICES, Status.ACCEPTED)
    await listener.close()
    await asyncio.gather(accepting, return_exceptions=True)


async def test_all_clients_probe_client_0_at_once_where_it_has_no_services() -> None:
    host = GrpcNetwork(own=None, loopback=True, num_clients=CROWD + 1)
    listener = await host.serve_links(identity(0).incarnation, is_host=True)
    async with crowd_at(listener.port) as socks:
        await ask_all(socks, Purpose.PROBE, Status.ALIVE)
    await listener.close()


async def test_a_client_gets_through_to_the_coordinator_in_a_silent_crowd() -> None:
    host = GrpcNetwork(own=None, loopback=True, num_clients=CROWD + 1)
    address = Address("127.0.0.1", free_ports(1)[0])

    async def answer(connection: Connection) -> None:
        await connection.receive()
        await connection.send(SessionOpened(7))

    server = await host.serve_coordinator(address, answer)
    async with crowd_at(address.port):
        connection, _ = await host.connect_coordinator(address, quietly)
        await connection.send(OpenSession(1, 0))
        assert await connection.receive() == SessionOpened(7)
        await connection.close()
    await server.close()
