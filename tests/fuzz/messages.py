"""Random messages, spoilt: each must be refused with a reason, or be a message.

Messages are made from their declarations alone, so that a new one is covered once it is declared.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin

import msgspec

from bringup.transport.wire import control, framing
from bringup.transport.wire.form import MalformedMessageError
from bringup.transport.wire.messages import Message
from bringup.transport.wire.services import ServiceMessage

Decode = Callable[[Any], Any]

EDGES = [0, 1, 31, 127, 128, 255, 256, 2**16 - 1, 2**16, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1]
FLOATS = [0.0, -1.0, -0.5, 1e300, float("inf"), float("nan"), float("-inf")]
TEXTS = ["", "a", "key/of/something", "größer", "\x1b[31m\n", "\u2028", "x" * 300]
OTHERS: list[Any] = [None, True, -1, 1.5, "text", b"bytes", [], [[]], {}, {"a": 1}, [1, 2], 2**64 - 1, -(2**63)]

PLANES: dict[str, tuple[Any, Decode, Callable[[Any], bytes]]] = {
    "control": (Message, control.decode, control.encode),
    "services": (ServiceMessage, framing.decode, lambda message: framing.encode(message)[4:]),
}
"""Of each: the union of its messages, and how they are decoded and encoded."""


def value_of(hint: Any, chance: random.Random) -> Any:
    """Return a value of an annotation."""
    if get_origin(hint) is Annotated:
        inner, meta = get_args(hint)
        values = (value_of(inner, chance) for _ in iter(int, 1))
        return next(value for value in values if is_within(value, meta))
    if get_origin(hint) is tuple:
        return tuple(value_of(get_args(hint)[0], chance) for _ in range(chance.choice([0, 0, 1, 2, 5])))
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return message_of(hint, chance)
    if get_args(hint):
        return value_of(chance.choice(get_args(hint)), chance)
    simple: dict[Any, Callable[[], Any]] = {
        int: lambda: chance.choice(
            [*EDGES, *(-edge for edge in EDGES), chance.getrandbits(chance.choice([4, 16, 40]))]
        ),
        str: lambda: chance.choice(TEXTS),
        bytes: lambda: chance.randbytes(chance.choice([0, 1, 20, 300])),
        bool: lambda: chance.random() < 0.5,
        float: lambda: chance.choice([*FLOATS, chance.random()]),
        type(None): lambda: None,
    }
    return simple[hint]()


def is_within(value: Any, meta: msgspec.Meta) -> bool:
    if meta.ge is not None and not value >= meta.ge:
        return False
    if meta.le is not None and not value <= meta.le:
        return False
    return meta.max_length is None or len(value) <= meta.max_length


def message_of(kind: Any, chance: random.Random) -> Any:
    """Return a message of a type, with random fields."""
    return kind(*[value_of(kind.__annotations__[name], chance) for name in kind.__struct_fields__])


def spoilt(data: bytes, chance: random.Random) -> bytes:
    """Return the wire form of a message with something changed."""
    match chance.randrange(8):
        case 0:
            return chance.randbytes(chance.randrange(60))
        case 1:
            return data[: chance.randrange(len(data) + 1)]
        case 2:
            return data + chance.randbytes(chance.randrange(1, 9))
        case 3:
            at = chance.randrange(len(data))
            return data[:at] + chance.randbytes(1) + data[at:]
        case 4:
            at = chance.randrange(len(data))
            return data[:at] + data[at + 1 :]
        case 5:
            # Another value where a field is due.
            fields = msgspec.msgpack.decode(data, type=list[msgspec.Raw])
            fields[chance.randrange(len(fields))] = msgspec.Raw(msgspec.msgpack.encode(chance.choice(OTHERS)))
            return msgspec.msgpack.encode(fields)
        case 6:
            # A large claim where a small one stood.
            at = chance.randrange(len(data))
            claim = chance.choice([b"\xdd", b"\xdb", b"\xc6", b"\xdf"]) + chance.choice(
                [b"\xff" * 4, b"\x00\x01\x00\x00"]
            )
            return data[:at] + claim + data[at + 1 :]
        case _:
            spoilt = bytearray(data)
            for _ in range(chance.randrange(1, 4)):
                spoilt[chance.randrange(len(spoilt))] = chance.randrange(256)
            return bytes(spoilt)


def outcome(decode: Decode, data: bytes) -> tuple[Any, str]:
    try:
        return decode(data), ""
    except MalformedMessageError as error:
        return None, str(error)


def check(plane: str, data: bytes) -> str:
    """Check that bytes are refused with a reason, or are a message that survives; returns which."""
    _, decode, encode = PLANES[plane]
    message, reason = outcome(decode, data)
    if message is None:
        assert reason.startswith(f"{len(data)} bytes")
        assert len(reason) < 1000
        assert reason.isprintable()
        return "refused"
    # Compared as bytes: what is not a number equals nothing.
    once = encode(message)
    again = decode(memoryview(once))
    assert type(again) is type(message)
    assert encode(again) == once
    return "a message"


def fuzz_messages(plane: str, count: int, seed: int) -> Counter[str]:
    """Check `count` spoilt messages; returns how many were what."""
    chance = random.Random(seed)
    kinds = get_args(PLANES[plane][0])
    _, _, encode = PLANES[plane]
    found: Counter[str] = Counter()
    data = b""
    for number in range(count):
        if number % 4 == 0:
            data = encode(message_of(chance.choice(kinds), chance))
        found[check(plane, spoilt(data, chance))] += 1
    return found
