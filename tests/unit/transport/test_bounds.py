"""Whatever size a stranger announces: memory is for what has come, and within the bound of what is due."""

from __future__ import annotations

import asyncio
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, get_args, get_origin

import msgspec
import pytest

from bringup.devices.isolation.frames import MalformedPipeFrameError, size_of
from bringup.transport.collectives.agreement import AGREEMENT_BYTES_MAX, MalformedFrameError, decode_agreement
from bringup.transport.collectives.frames import FrameHeader
from bringup.transport.collectives.neighbours import Neighbours, RingBrokenError
from bringup.transport.ports import LINK_MESSAGE_BYTES_MAX
from bringup.transport.tcp.link import TcpLink
from bringup.transport.wire import control, framing
from bringup.transport.wire.form import MalformedMessageError, Part
from bringup.transport.wire.framing import FRAME_BYTES_MAX, Deframer
from bringup.transport.wire.messages import Message
from bringup.transport.wire.services import ServiceMessage

CLAIMS = [2**31 - 1, 2**32 - 1, 10**6]
LITTLE = 300_000
"""Bytes: the texts of an error, and no frame."""
MESSAGE_BYTES = 2**16
DENSITY_MAX = 60
"""Bytes of objects for each byte of a message; its parts are objects of their own."""


@contextmanager
def taking_at_most(size: int) -> Iterator[None]:
    """Check how much memory is taken at once."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= size, f"{peak:,} bytes"


@pytest.mark.parametrize("limit", [FRAME_BYTES_MAX, LINK_MESSAGE_BYTES_MAX])
@pytest.mark.parametrize("claim", CLAIMS)
def test_a_frame(limit: int, claim: int) -> None:
    with taking_at_most(LITTLE):
        if claim > limit:
            with pytest.raises(MalformedMessageError):
                Deframer(limit).feed(struct.pack("!IB", claim, 1))
        else:
            assert Deframer(limit).feed(struct.pack("!IB", claim, 1)) == []


@pytest.mark.parametrize("kind", get_args(Message) + get_args(ServiceMessage))
@pytest.mark.parametrize("claim", CLAIMS)
def test_any_field_of_a_message(kind: Any, claim: int) -> None:
    decode: Callable[[bytes], Any] = control.decode if kind in get_args(Message) else framing.decode
    fields = [kind.__struct_config__.tag, *([0] * len(kind.__struct_fields__))]
    for at in range(1, len(fields)):
        for marker in (b"\xc6", b"\xdb", b"\xdd", b"\xdf"):
            parts = list(map(msgspec.msgpack.encode, fields))
            parts[at] = marker + struct.pack("!I", claim)
            with taking_at_most(LITTLE), pytest.raises(MalformedMessageError):
                decode(bytes([0x90 | len(fields)]) + b"".join(parts))


def lists_in(kind: Any) -> Iterator[tuple[int, Any]]:
    """Yield where a message has lists of parts, and of which."""
    for at, name in enumerate(kind.__struct_fields__, 1):
        hint = kind.__annotations__[name]
        inner = getattr(hint, "__origin__", hint) if hasattr(hint, "__metadata__") else hint
        part = get_args(inner)[0] if get_origin(inner) is tuple else None
        if isinstance(part, type) and issubclass(part, Part):
            yield at, part


def smallest(hint: Any) -> Any:
    """Return a value of a field that takes the fewest bytes."""
    text = str(hint)
    if "tuple" in text:
        return []
    if "bytes" in text:
        return b""
    if "bool" in text:
        return False
    return "" if "str" in text else 0


@pytest.mark.parametrize("kind", [kind for kind in get_args(Message) if any(lists_in(kind))])
def test_the_densest_message(kind: Any) -> None:
    for at, part in lists_in(kind):
        one = msgspec.msgpack.encode([smallest(part.__annotations__[name]) for name in part.__struct_fields__])
        count = MESSAGE_BYTES // len(one)
        fields = [
            kind.__struct_config__.tag,
            *(smallest(kind.__annotations__[name]) for name in kind.__struct_fields__),
        ]
        parts = list(map(msgspec.msgpack.encode, fields))
        parts[at] = b"\xdd" + struct.pack("!I", count) + one * count
        data = bytes([0x90 | len(fields)]) + b"".join(parts)
        with taking_at_most(DENSITY_MAX * len(data)):
            try:
                assert control.decode(data)
            except MalformedMessageError:
                assert "place" in kind.__struct_fields__


@pytest.mark.parametrize("header", [FrameHeader(0, 1, 2**63), FrameHeader(2**32 - 1, 1, 0), FrameHeader(0, 1, 65)])
async def test_the_frame_of_a_collective(header: FrameHeader) -> None:
    class Announcing:
        async def receive_into(self, buffer: memoryview) -> None:
            buffer[:] = header.encode()

    link: Any = Announcing()
    neighbours = Neighbours(0, link, 2, link)
    with taking_at_most(LITTLE), pytest.raises(RingBrokenError):
        await neighbours.receive_frame(1, 64)


@pytest.mark.parametrize("claim", CLAIMS)
def test_an_agreement(claim: int) -> None:
    for data in (b"\xdd" + struct.pack("!I", claim), b"\x92\x91\x93\x00\xdb" + struct.pack("!I", claim)):
        with taking_at_most(LITTLE), pytest.raises(MalformedFrameError):
            decode_agreement(data.ljust(AGREEMENT_BYTES_MAX, b"\x90"))


@pytest.mark.parametrize("claim", CLAIMS[:2])
def test_an_answer_of_the_process_of_a_backend(claim: int) -> None:
    with taking_at_most(LITTLE), pytest.raises(MalformedPipeFrameError):
        size_of(struct.pack("!I", claim))


async def test_what_comes_before_anybody_reads() -> None:
    """A link that nobody reads yet takes in some, and then leaves the rest to the kernel."""

    class Transport(asyncio.Transport):
        is_paused = False

        def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
            assert high == 0

        def pause_reading(self) -> None:
            self.is_paused = True

    transport, link, taken = Transport(), TcpLink(), 0
    link.connection_made(transport)
    with taking_at_most(LITTLE):
        while not transport.is_paused:
            taken += (room := len(link.get_buffer(-1)))
            link.buffer_updated(room)
    assert taken <= 65_536
