"""Random HTTP/2, and bytes that are none, to the port of a real gRPC server, which serves a client all along."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import struct
from collections import Counter

import grpc

from .coordinator import PATH, fuzzed_coordinator, is_serving

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
CONNECTIONS = 16
"""At once."""
ROUNDS_BETWEEN_CHECKS = 20
LINGER = struct.pack("ii", 1, 0)
"""To end by a reset, so that thousands of connections leave no port behind that waits."""

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
DESCRIPTORS_MAX = 60
"""Beyond those at the begin: of connections that the server has not noticed the end of yet."""


def frame(kind: int, flags: int, stream: int, payload: bytes, *, length: int | None = None) -> bytes:
    """Return a frame of HTTP/2; a length that is given is claimed in place of the true one."""
    size = len(payload) if length is None else length
    return size.to_bytes(3, "big") + bytes([kind, flags]) + struct.pack("!I", stream) + payload


def literal(name: str, value: str) -> bytes:
    """Return a header field, neither indexed nor compressed (RFC 7541, 6.2.2)."""
    return b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def request_headers(path: str = PATH) -> bytes:
    fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "localhost", "te": "trailers"}
    return b"".join(literal(*each) for each in {**fields, "content-type": "application/grpc"}.items())


def one_frame(chance: random.Random) -> bytes:
    """Return a frame: a right one, of an odd size, or out of place."""
    stream = chance.choice([0, 1, 1, 1, 2, 3, 5, 2**31 - 1])
    payload = chance.randbytes(chance.choice([0, 1, 4, 5, 6, 8, 8, 30, 300]))
    length = chance.choice([None, None, None, 0, 2**24 - 1, 16_385])
    match chance.randrange(10):
        case 0:
            return frame(HEADERS, chance.choice([4, 5, 0, 0x24]), stream, request_headers())
        case 1:
            return frame(HEADERS, 4, stream, chance.randbytes(chance.randrange(60)))  # of HPACK
        case 2:
            text = chance.randbytes(20)
            claim = chance.choice([len(text), 2**32 - 1, 2**20])
            return frame(DATA, 0, stream, b"\x00" + struct.pack("!I", claim) + text)
        case 3:
            return frame(DATA, 0, stream, b"\x01" + struct.pack("!I", 20) + chance.randbytes(20))  # said to be gzip
        case 4:
            return frame(HEADERS, 4, 1, request_headers()) + frame(RST_STREAM, 0, 1, struct.pack("!I", 8))
        case 5:
            setting = struct.pack("!HI", chance.randrange(8), chance.choice([0, 1, 2**14, 2**31, 2**32 - 1]))
            return frame(SETTINGS, 0, 0, setting * chance.choice([1, 10]))
        case 6:
            return frame(PING, 0, 0, bytes(8)) * chance.choice([1, 30])
        case 7:
            return frame(WINDOW_UPDATE, 0, stream, struct.pack("!I", chance.choice([0, 1, 2**31 - 1])))
        case 8:
            return frame(HEADERS, 0, 1, request_headers()) + frame(CONTINUATION, 0, 1, bytes(100)) * 20
        case _:
            return frame(chance.randrange(256), chance.randrange(256), stream, payload, length=length)


def conversation(chance: random.Random) -> tuple[bytes, int]:
    """Return the bytes of one connection, and of how many random inputs they are."""
    if chance.random() < 0.1:
        return chance.randbytes(chance.randrange(1, 300)), 1
    count = chance.randrange(1, 20)
    data = PREFACE + frame(SETTINGS, 0, 0, b"") + b"".join(one_frame(chance) for _ in range(count))
    return data[: chance.randrange(len(data))] if chance.random() < 0.1 else data, count


async def converse(address: tuple[str, int], data: bytes, *, listens: bool) -> str:
    """Say something to a server; returns how it ended."""
    loop = asyncio.get_running_loop()
    with socket.socket() as sock:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
        try:
            await loop.sock_connect(sock, address)
            await loop.sock_sendall(sock, data)
            if not listens:
                return "left"
            sock.shutdown(socket.SHUT_WR)
            async with asyncio.timeout(20):
                while await loop.sock_recv(sock, 65_536):
                    pass
        except (ConnectionResetError, BrokenPipeError):
            return "reset"
        except OSError as error:
            return type(error).__name__
    return "ended"


def num_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def fuzz_http2(count: int, seed: int) -> Counter[str]:
    """Send `count` random frames; returns how many connections ended how."""
    chance = random.Random(seed)
    found: Counter[str] = Counter()
    async with fuzzed_coordinator() as coordinator, grpc.aio.insecure_channel(str(coordinator.address)) as channel:
        assert await is_serving(channel)
        before, sent, rounds = num_descriptors(), 0, 0
        address = coordinator.address.host, coordinator.address.port
        while sent < count:
            conversations = [conversation(chance) for _ in range(CONNECTIONS)]
            sent += sum(number for _, number in conversations)
            ends = (converse(address, data, listens=chance.random() < 0.5) for data, _ in conversations)
            found.update(await asyncio.gather(*ends))
            rounds += 1
            if rounds % ROUNDS_BETWEEN_CHECKS == 0:
                assert await is_serving(channel)
                assert num_descriptors() < before + DESCRIPTORS_MAX
        assert await is_serving(channel)
        assert not coordinator.crashes
    return found
