"""Strangers at every port of a job: what they say, how many come, and which ports there are."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import ssl
import struct
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from bringup.transport.credentials import credentials_of
from bringup.transport.ports import LinkIdentity
from bringup.transport.security.token import Token
from bringup.transport.tcp.handshake import Hello, Purpose

from .http2 import LINGER, PREFACE, frame, request_headers

PATIENCE = 30.0
"""Seconds for a port to be rid of a stranger: several times its own bound."""

ANSWER_BYTES_MAX = 4096
"""Of what a port says to a stranger: the begin of TLS, or of HTTP/2."""

_SOMEBODY = LinkIdentity("ab" * 16, 1, 1, 7)
_HELLO = Hello(Purpose.LINK, _SOMEBODY, _SOMEBODY).encode()
_PROBE = Hello(Purpose.PROBE, _SOMEBODY, _SOMEBODY).encode()
_CLIENT_HELLO = bytes.fromhex("160301020001000001fc0303")

GREETINGS: dict[str, bytes] = {
    "zeros": bytes(1000),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "HTTP/2 without TLS": PREFACE + frame(4, 0, 0, b"") + frame(1, 4, 1, request_headers()),
    "a hello without TLS": _HELLO,
    "a probe without TLS": _PROBE,
    "a frame of 4 GiB": _HELLO + struct.pack("!I", 2**32 - 1) + bytes(1000),
    "a record of TLS that is too large": b"\x16\x03\x01\xff\xff" + bytes(70_000),
    "half a hello of TLS": _CLIENT_HELLO + bytes(64),
    "a hello of TLS that is none": _CLIENT_HELLO + bytes(600),
    "an alert of TLS": b"\x15\x03\x03\x00\x02\x02\x28",
    "data before TLS": b"\x17\x03\x03\x00\x20" + bytes(32),
}


def ports_of(pid: int) -> set[int]:
    """Return the TCP ports on which a process listens."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(entry).removeprefix("socket:[").removesuffix("]"))
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and inode in inodes:
                ports.add(int(local.rpartition(":")[2], 16))
    return ports


async def say(port: int, data: bytes, *, waits: bool) -> str:
    """Say something to a port, and wait until it hangs up, or leave; returns how it ended."""
    loop = asyncio.get_running_loop()
    answer = 0
    with socket.socket() as sock:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
        try:
            await loop.sock_connect(sock, ("127.0.0.1", port))
            await loop.sock_sendall(sock, data)
            async with asyncio.timeout(PATIENCE if waits else 0.001):
                while received := await loop.sock_recv(sock, 65_536):
                    answer += len(received)
        except TimeoutError:
            assert not waits, f"port {port} keeps a stranger"
            return "left"
        except OSError:
            pass  # a reset says the same
    assert answer <= ANSWER_BYTES_MAX, f"port {port} says {answer} bytes to a stranger"
    return "hung up"


async def shake_hands(port: int, context: ssl.SSLContext) -> str:
    """Begin TLS as a stranger, and wait until the port hangs up."""
    answer = 0
    try:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="")
            try:
                writer.write(_PROBE + PREFACE + frame(4, 0, 0, b""))
                while received := await reader.read(65_536):
                    answer += len(received)
            finally:
                writer.transport.abort()
    except (OSError, ssl.SSLError):
        pass
    assert answer == 0, f"port {port} says {answer} bytes to a stranger"
    return "hung up"


def other_job() -> ssl.SSLContext:
    """Return the context of a client of another job."""
    terms = credentials_of(Token.random(), 1).terms(is_server=False)
    assert terms is not None
    context = terms.context
    context.verify_mode = ssl.CERT_NONE
    return context


def without_certificate() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def come(ports: list[int], count: int, at_once: int = 32, seed: int = 0) -> Counter[str]:
    """Come to each port `count` times, in every way; returns how the visits ended."""
    chance = random.Random(seed)
    contexts = [other_job(), without_certificate()]
    visits: list[Callable[[], Awaitable[str]]] = []
    for port in ports:
        for _ in range(count):
            if chance.random() < 0.2:
                context = chance.choice(contexts)
                visits.append(lambda port=port, context=context: shake_hands(port, context))  # type: ignore[misc]
                continue
            data = chance.choice([*GREETINGS.values(), chance.randbytes(chance.randrange(1, 400))])
            # Whoever has said half of something is hung up on only after its time: few of these wait for that.
            waits = chance.random() < (0.02 if data.startswith(_CLIENT_HELLO) else 0.2)
            visits.append(lambda port=port, data=data, waits=waits: say(port, data, waits=waits))  # type: ignore[misc]
    chance.shuffle(visits)
    found: Counter[str] = Counter()

    async def visit() -> None:
        while visits:
            found[await visits.pop()()] += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(visit())
    return found


@contextlib.asynccontextmanager
async def idlers(ports: list[int], count: int, *, slow: bool = False) -> AsyncIterator[None]:
    """Keep connections to each port open that say nothing, or a byte of TLS from time to time; more come for those that
    are hung up on."""
    loop = asyncio.get_running_loop()

    async def stay(port: int) -> None:
        while True:
            with socket.socket() as sock:
                sock.setblocking(False)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
                with contextlib.suppress(OSError):
                    await loop.sock_connect(sock, ("127.0.0.1", port))
                    for byte in _CLIENT_HELLO + bytes(500) if slow else b"":
                        await loop.sock_sendall(sock, bytes([byte]))
                        await asyncio.sleep(0.05)
                    await loop.sock_recv(sock, 1)
            await asyncio.sleep(0.01)

    staying = [asyncio.ensure_future(stay(port)) for port in ports for _ in range(count)]
    try:
        yield
    finally:
        for task in staying:
            task.cancel()
        await asyncio.wait(staying)
