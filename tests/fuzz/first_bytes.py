"""Random bytes where a hello, its answer, or the frame of a collective is due: refused, or what they say, again."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Callable

from bringup.transport.collectives.agreement import (
    AGREEMENT_BYTES_MAX,
    Agreement,
    MalformedFrameError,
    Run,
    decode_agreement,
)
from bringup.transport.collectives.frames import HEADER_BYTES, FrameHeader, decode_header
from bringup.transport.ports import LINK_MESSAGE_BYTES_MAX, LinkIdentity
from bringup.transport.tcp.handshake import (
    HELLO_BYTES,
    REPLY_BYTES,
    AcceptancePolicy,
    Hello,
    Purpose,
    Reply,
    Status,
    decode_hello,
    decode_reply,
)
from bringup.transport.wire.form import MalformedMessageError
from bringup.transport.wire.framing import LENGTH_BYTES, Deframer, framed

from .messages import EDGES, TEXTS, spoilt

OWN = LinkIdentity("ab" * 16, 1, 5, 2**64 - 1)
LEFT = LinkIdentity("ab" * 16, 1, 4, 17)


def flipped(data: bytes, chance: random.Random) -> bytes:
    """Return bytes of the same number, some changed."""
    changed = bytearray(data)
    for _ in range(chance.randrange(4)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed) if chance.random() < 0.9 else chance.randbytes(len(data))


def one_hello(chance: random.Random) -> str:
    """A hello that can be read says what its bytes say, and none but the neighbour's is accepted."""
    true = Hello(chance.choice(list(Purpose)), LEFT, OWN)
    data = flipped(true.encode(), chance)
    assert len(data) == HELLO_BYTES
    hello = decode_hello(data)
    if hello is None:
        return "refused"
    assert hello.encode() == data
    policy = AcceptancePolicy(OWN.incarnation, has_services=False)
    policy.expect(OWN, LEFT)
    status = policy.judge(hello)
    assert status is not None
    assert (status is Status.ACCEPTED) == (hello == Hello(Purpose.LINK, LEFT, OWN))
    return status.name


def one_reply(chance: random.Random) -> str:
    data = flipped(Reply(chance.choice(list(Status)), chance.getrandbits(64)).encode(), chance)
    assert len(data) == REPLY_BYTES
    reply = decode_reply(data)
    assert reply is None or reply.encode() == data
    return "refused" if reply is None else "a reply"


def one_header(chance: random.Random) -> str:
    """The header of a collective announces no more than is allowed."""
    number, most = chance.choice([0, 1, 2**40]), chance.choice([0, 64, 65_536])
    sizes = [chance.choice([*EDGES[:10], most, AGREEMENT_BYTES_MAX]) for _ in range(2)]
    data = flipped(FrameHeader(sizes[0], number, sizes[1]).encode(), chance)
    assert len(data) == HEADER_BYTES
    try:
        header = decode_header(data, number, most)
    except MalformedFrameError:
        return "refused"
    assert header.encode() == data
    assert header.payload_bytes <= most
    assert header.agreement_bytes <= AGREEMENT_BYTES_MAX
    return "a header"


def one_agreement(chance: random.Random) -> str:
    runs = [
        Run(chance.choice(EDGES), chance.choice(TEXTS), chance.random() < 0.5) for _ in range(chance.randrange(1, 5))
    ]
    data = spoilt(Agreement(tuple(runs), chance.random() < 0.5).encode(), chance)
    try:
        agreement = decode_agreement(data)
    except MalformedFrameError:
        return "refused"
    assert agreement.text.isprintable()
    assert decode_agreement(agreement.encode()) == agreement
    return "an agreement"


def one_stream(chance: random.Random) -> str:
    """A stream of frames, cut anywhere: what comes before the first bad length is whole, and nothing after it."""
    frames = [chance.randbytes(chance.choice([1, 2, 60, 400])) for _ in range(chance.randrange(5))]
    stream = b"".join(map(framed, frames))
    is_spoilt = chance.random() < 0.5
    if is_spoilt:
        stream += struct.pack("!I", chance.choice([0, LINK_MESSAGE_BYTES_MAX + 1, 2**32 - 1])) + b"x"
    deframer, got = Deframer(LINK_MESSAGE_BYTES_MAX), list[bytes]()
    largest = chance.choice([1, LENGTH_BYTES, 50, 1000])
    while stream:
        size = chance.randint(1, largest)
        chunk, stream = stream[:size], stream[size:]
        try:
            got += map(bytes, deframer.feed(chunk))
        except MalformedMessageError:
            assert is_spoilt
            assert got == frames[: len(got)]
            return "ended"
    assert not is_spoilt
    assert got == frames
    return "frames"


ONES: dict[str, Callable[[random.Random], str]] = {
    "hello": one_hello,
    "reply": one_reply,
    "header": one_header,
    "agreement": one_agreement,
    "stream": one_stream,
}
"""Checks of one input each; returns the kind of its outcome."""


def fuzz_first_bytes(name: str, count: int, seed: int) -> Counter[str]:
    """Check `count` inputs; returns how many had which outcome."""
    chance = random.Random(seed)
    one = ONES[name]
    return Counter(one(chance) for _ in range(count))
