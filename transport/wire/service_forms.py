"""The form that each message of the coordination services has in a frame.

Every field of variable size has its size in front, and every decoder checks that the sizes add up to the frame's
before it makes anything of them. Where they do not it raises one of `struct.error`, `IndexError` and `ValueError`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from .service_messages import (
    CancelCall,
    Changes,
    ChannelOpened,
    ClientIds,
    CloseChannel,
    CompareAndSet,
    DeleteKeys,
    Done,
    EndChannel,
    EnterBarrier,
    GetKey,
    IncrementKey,
    Items,
    KeyChange,
    KeyValue,
    ListKeys,
    ListLive,
    MessagesReceived,
    MoreChanges,
    Number,
    OpenChannel,
    Refusal,
    ServiceMessage,
    SetKey,
    Value,
    WatchKeys,
)

ENTRIES_MAX = 65_536
"""Of items, changes or client ids in one message."""

_APART_BYTES_MIN = 16 * 1024
"""Shorter values are copied: that is cheaper than one more part to send."""
_TEXT_CHARS_MAX = 16_000
_NO_VALUE = 0xFFFFFFFF
_FLAG = (False, True)
"""Whatever else stands where a flag is due is an `IndexError`."""

Frame = Any
"""`bytes` or `memoryview`: what a decoder does with it is the same, and type checkers find no common type."""


class Form(NamedTuple):
    """How one type of message is encoded, with its length in front, and decoded, without."""

    code: int
    type: type[ServiceMessage]
    encode: Callable[[Any], list[bytes]]
    decode: Callable[[Frame], ServiceMessage]


def _fixed(code: int, made: Any, layout: str, *names: str) -> Form:
    """Return the form of a message of whole numbers; the hot ones have one, the ticket."""
    pack, unpack = struct.Struct(f"!IB{layout}").pack, struct.Struct(f"!B{layout}").unpack
    length = struct.calcsize(f"!B{layout}")

    def encode_ticket(message: Any) -> list[bytes]:
        return [pack(length, code, message.ticket)]

    def decode_ticket(frame: Frame) -> ServiceMessage:
        message: ServiceMessage = made(unpack(frame)[1])
        return message

    def encode_all(message: Any) -> list[bytes]:
        return [pack(length, code, *[getattr(message, name) for name in names])]

    def decode_all(frame: Frame) -> ServiceMessage:
        message: ServiceMessage = made(*unpack(frame)[1:])
        return message

    if names == ("ticket",):
        return Form(code, made, encode_ticket, decode_ticket)
    return Form(code, made, encode_all, decode_all)


def _keyed(code: int, made: Any, name: str) -> Form:
    """Return the form of a message of a ticket and a key."""
    pack, unpack_from = struct.Struct("!IBQH").pack, struct.Struct("!BQH").unpack_from

    def encode(message: Any) -> list[bytes]:
        key = getattr(message, name).encode()
        return [pack(11 + len(key), code, message.ticket, len(key)) + key]

    def decode(frame: Frame) -> ServiceMessage:
        _, ticket, size = unpack_from(frame)
        if len(frame) != 11 + size:
            raise ValueError(f"its key is to have {size} bytes")
        message: ServiceMessage = made(ticket, str(frame[11:], "utf-8"))
        return message

    return Form(code, made, encode, decode)


def _joined(code: int, pieces: list[bytes]) -> list[bytes]:
    """Return the parts of a frame of these pieces: large ones stand apart, what lies between them is one part."""
    parts: list[bytes] = []
    small = [struct.pack("!IB", 1 + sum(map(len, pieces)), code)]
    for piece in pieces:
        if len(piece) < _APART_BYTES_MIN:
            small.append(piece)
            continue
        parts += [b"".join(small), piece] if small else [piece]
        small = []
    return [*parts, b"".join(small)] if small else parts


_SET_KEY = 1
_pack_set, _unpack_set = struct.Struct("!IBQBH").pack, struct.Struct("!BQBH").unpack_from


def _encode_set(message: SetKey) -> list[bytes]:
    key, value = message.key.encode(), message.value
    head = _pack_set(12 + len(key) + len(value), _SET_KEY, message.ticket, message.overwrite, len(key)) + key
    return [head + value] if len(value) < _APART_BYTES_MIN else [head, value]


def _decode_set(frame: Frame) -> SetKey:
    _, ticket, overwrite, size = _unpack_set(frame)
    end = 12 + size
    if end > len(frame):
        raise ValueError(f"its key is to have {size} bytes")
    return SetKey(ticket, str(frame[12:end], "utf-8"), bytes(frame[end:]), _FLAG[overwrite])


_GET_KEY = 2
_pack_get, _unpack_get = struct.Struct("!IBQBH").pack, struct.Struct("!BQBH").unpack_from


def _encode_get(message: GetKey) -> list[bytes]:
    key = message.key.encode()
    return [_pack_get(12 + len(key), _GET_KEY, message.ticket, message.wait, len(key)) + key]


def _decode_get(frame: Frame) -> GetKey:
    _, ticket, wait, size = _unpack_get(frame)
    if len(frame) != 12 + size:
        raise ValueError(f"its key is to have {size} bytes")
    return GetKey(ticket, str(frame[12:], "utf-8"), _FLAG[wait])


_INCREMENT_KEY = 5
_pack_increment, _unpack_increment = struct.Struct("!IBQqH").pack, struct.Struct("!BQqH").unpack_from


def _encode_increment(message: IncrementKey) -> list[bytes]:
    key = message.key.encode()
    return [_pack_increment(19 + len(key), _INCREMENT_KEY, message.ticket, message.by, len(key)) + key]


def _decode_increment(frame: Frame) -> IncrementKey:
    _, ticket, by, size = _unpack_increment(frame)
    if len(frame) != 19 + size:
        raise ValueError(f"its key is to have {size} bytes")
    return IncrementKey(ticket, str(frame[19:], "utf-8"), by)


_COMPARE_AND_SET = 6
_COMPARE = struct.Struct("!QHI")


def _encode_compare_and_set(message: CompareAndSet) -> list[bytes]:
    key, expected = message.key.encode(), message.expected
    size = _NO_VALUE if expected is None else len(expected)
    head = _COMPARE.pack(message.ticket, len(key), size) + key
    return _joined(_COMPARE_AND_SET, [head, expected or b"", message.value])


def _decode_compare_and_set(frame: Frame) -> CompareAndSet:
    ticket, size, expected_size = _COMPARE.unpack_from(frame, 1)
    middle = 15 + size
    end = middle + (0 if expected_size == _NO_VALUE else expected_size)
    if end > len(frame):
        raise ValueError(f"its key and the value it expects are to have {end - 15} bytes")
    expected = None if expected_size == _NO_VALUE else bytes(frame[middle:end])
    return CompareAndSet(ticket, str(frame[15:middle], "utf-8"), expected, bytes(frame[end:]))


_ENTER_BARRIER = 10
_BARRIER = struct.Struct("!QdHI")


def _encode_barrier(message: EnterBarrier) -> list[bytes]:
    name = message.name.encode()
    ids = _pack_ids(message.client_ids)
    head = _BARRIER.pack(message.ticket, message.timeout, len(name), len(message.client_ids))
    return _joined(_ENTER_BARRIER, [head, name, ids])


def _decode_barrier(frame: Frame) -> EnterBarrier:
    ticket, timeout, size, count = _BARRIER.unpack_from(frame, 1)
    end = 23 + size
    ids = _unpack_ids(frame, end, count)
    if timeout != timeout:
        raise ValueError("its time-out is not a number")
    return EnterBarrier(ticket, str(frame[23:end], "utf-8"), ids, timeout)


def _pack_ids(ids: tuple[int, ...]) -> bytes:
    if len(ids) > ENTRIES_MAX:
        raise struct.error(f"it has {len(ids)} bounds of client ids, at most {ENTRIES_MAX} are allowed")
    return struct.pack(f"!{len(ids)}I", *ids)


def _unpack_ids(frame: Frame, start: int, count: int) -> tuple[int, ...]:
    if count > ENTRIES_MAX or len(frame) != start + 4 * count:
        raise ValueError(f"it is to have {count} bounds of client ids from byte {start} on, at most {ENTRIES_MAX}")
    return struct.unpack_from(f"!{count}I", frame, start)


_VALUE = 12
_pack_value, _unpack_value = struct.Struct("!IBQB").pack, struct.Struct("!BQB").unpack_from


def _encode_value(message: Value) -> list[bytes]:
    value = message.value
    if value is None:
        return [_pack_value(10, _VALUE, message.ticket, False)]
    head = _pack_value(10 + len(value), _VALUE, message.ticket, True)
    return [head + value] if len(value) < _APART_BYTES_MIN else [head, value]


def _decode_value(frame: Frame) -> Value:
    _, ticket, is_there = _unpack_value(frame)
    if _FLAG[is_there]:
        return Value(ticket, bytes(frame[10:]))
    if len(frame) > 10:
        raise ValueError("there is to be no value")
    return Value(ticket, None)


_ITEMS = 13
_CHANGES = 15
_MANY = struct.Struct("!QBI")
_ITEM = struct.Struct("!HI")
_CHANGE = struct.Struct("!QHI")
_FIRST_ENTRY = 1 + _MANY.size


def _encode_items(message: Items) -> list[bytes]:
    pieces = [_MANY.pack(message.ticket, message.is_last, _counted(message.items))]
    for item in message.items:
        key = item.key.encode()
        pieces += [_ITEM.pack(len(key), len(item.value)) + key, item.value]
    return _joined(_ITEMS, pieces)


def _decode_items(frame: Frame) -> Items:
    ticket, is_last, count = _MANY.unpack_from(frame, 1)
    items: list[KeyValue] = []
    at, end = _FIRST_ENTRY, len(frame)
    for _ in range(_counted(range(count))):
        key_size, size = _ITEM.unpack_from(frame, at)
        start = at + 6
        middle = start + key_size
        at = middle + size
        if at > end:
            raise ValueError(f"item {len(items)} is to end at byte {at}")
        items.append(KeyValue(str(frame[start:middle], "utf-8"), bytes(frame[middle:at])))
    if at != end:
        raise ValueError(f"its items end at byte {at}")
    return Items(ticket, tuple(items), _FLAG[is_last])


def _encode_changes(message: Changes) -> list[bytes]:
    pieces = [_MANY.pack(message.ticket, message.ends_snapshot, _counted(message.changes))]
    for change in message.changes:
        key, value = change.key.encode(), change.value
        size = _NO_VALUE if value is None else len(value)
        pieces += [_CHANGE.pack(change.revision, len(key), size) + key, value or b""]
    return _joined(_CHANGES, pieces)


def _decode_changes(frame: Frame) -> Changes:
    ticket, ends_snapshot, count = _MANY.unpack_from(frame, 1)
    changes: list[KeyChange] = []
    at, end = _FIRST_ENTRY, len(frame)
    for _ in range(_counted(range(count))):
        revision, key_size, size = _CHANGE.unpack_from(frame, at)
        start = at + 14
        middle = start + key_size
        at = middle + (0 if size == _NO_VALUE else size)
        if at > end:
            raise ValueError(f"change {len(changes)} is to end at byte {at}")
        value = None if size == _NO_VALUE else bytes(frame[middle:at])
        changes.append(KeyChange(str(frame[start:middle], "utf-8"), value, revision))
    if at != end:
        raise ValueError(f"its changes end at byte {at}")
    return Changes(ticket, tuple(changes), _FLAG[ends_snapshot])


def _counted(entries: tuple[Any, ...] | range) -> int:
    if len(entries) > ENTRIES_MAX:
        raise struct.error(f"it has {len(entries)} entries, at most {ENTRIES_MAX} are allowed")
    return len(entries)


_REFUSAL = 16
_REFUSED = struct.Struct("!QBHI")


def _encode_refusal(message: Refusal) -> list[bytes]:
    # A text may quote what UTF-8 has no form for, and what is long: it is for people.
    error, text = message.error.encode(), message.text[:_TEXT_CHARS_MAX].encode("utf-8", "replace")
    ids = _pack_ids(message.missing)
    head = _REFUSED.pack(message.ticket, len(error), len(text), len(message.missing))
    return _joined(_REFUSAL, [head, error, text, ids])


def _decode_refusal(frame: Frame) -> Refusal:
    ticket, error_size, text_size, count = _REFUSED.unpack_from(frame, 1)
    middle = 16 + error_size
    end = middle + text_size
    missing = _unpack_ids(frame, end, count)
    text = str(frame[middle:end], "utf-8")
    if len(text) > _TEXT_CHARS_MAX:
        raise ValueError(f"its text has {len(text)} characters, at most {_TEXT_CHARS_MAX} are allowed")
    return Refusal(ticket, str(frame[16:middle], "utf-8"), text, missing)


_CLIENT_IDS = 22
_IDS = struct.Struct("!QI")


def _encode_ids(message: ClientIds) -> list[bytes]:
    return _joined(_CLIENT_IDS, [_IDS.pack(message.ticket, len(message.client_ids)), _pack_ids(message.client_ids)])


def _decode_ids(frame: Frame) -> ClientIds:
    ticket, count = _IDS.unpack_from(frame, 1)
    return ClientIds(ticket, _unpack_ids(frame, 1 + _IDS.size, count))


FORMS = (
    Form(_SET_KEY, SetKey, _encode_set, _decode_set),
    Form(_GET_KEY, GetKey, _encode_get, _decode_get),
    _keyed(3, ListKeys, "prefix"),
    _keyed(4, DeleteKeys, "key"),
    Form(_INCREMENT_KEY, IncrementKey, _encode_increment, _decode_increment),
    Form(_COMPARE_AND_SET, CompareAndSet, _encode_compare_and_set, _decode_compare_and_set),
    _keyed(7, WatchKeys, "prefix"),
    _fixed(8, MoreChanges, "QI", "ticket", "count"),
    _fixed(9, CancelCall, "Q", "ticket"),
    Form(_ENTER_BARRIER, EnterBarrier, _encode_barrier, _decode_barrier),
    _fixed(11, Done, "Q", "ticket"),
    Form(_VALUE, Value, _encode_value, _decode_value),
    Form(_ITEMS, Items, _encode_items, _decode_items),
    _fixed(14, Number, "Qq", "ticket", "number"),
    Form(_CHANGES, Changes, _encode_changes, _decode_changes),
    Form(_REFUSAL, Refusal, _encode_refusal, _decode_refusal),
    _fixed(17, OpenChannel, "QQ", "channel", "received"),
    _fixed(18, ChannelOpened, "Q", "received"),
    _fixed(19, MessagesReceived, "Q", "received"),
    _fixed(20, CloseChannel, ""),
    _fixed(21, ListLive, "Q", "ticket"),
    _fixed(23, EndChannel, "QQ", "ticket", "channel"),
    Form(_CLIENT_IDS, ClientIds, _encode_ids, _decode_ids),
)
"""Codes are never reused: an older peer must not take one message for another."""
