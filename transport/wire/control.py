"""The wire form of the messages between a peer and the coordinator, one to each message of the gRPC stream. Pure.

Texts come out as they may be shown: see `texts.printable`.
"""

from collections.abc import Callable
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Any, TypeVar, get_args

import msgspec

from ...errors import BringupError
from ..texts import printable
from .form import REFUSALS, Part, decoder_of, malformed
from .form import encode as _encode
from .messages import ClientMessage, Message, Shared

MESSAGE_BYTES_MAX = 64 * 1024 * 1024
"""The largest message a session carries: the member list of a job of some 500,000 clients."""

CLIENT_MESSAGE_BYTES_MAX = 1024 * 1024
"""The largest message that a client may send the coordinator, which has room for one of each of many clients."""

_Struct = TypeVar("_Struct", bound=msgspec.Struct)

_decode = decoder_of(Message)


def encode(message: Message) -> bytes:
    """Return the wire form of `message`.

    Raises:
        BringupError: it is larger than the other side takes. To send it all the same would break the connection, and
            every one after it.
    """
    data = _encoded_once(message) if isinstance(message, Shared) else _encoded(message)
    if len(data) > CLIENT_MESSAGE_BYTES_MAX:
        limit = CLIENT_MESSAGE_BYTES_MAX if isinstance(message, ClientMessage) else MESSAGE_BYTES_MAX
        if len(data) > limit:
            raise BringupError(
                f"a {type(message).__name__} message of {len(data)} bytes cannot be sent: it may have {limit} at most. "
                "A text in it is too long."
            )
    return data


def _encoded_once(message: Shared) -> bytes:
    data: bytes | None = message.__dict__.get("wire")
    if data is None:
        data = message.__dict__["wire"] = _encoded(message)
    return data


def _encoded(message: Any) -> bytes:
    try:
        return _encode(message)
    except UnicodeEncodeError:
        return _encode(_with_texts(message, _encodable))


def _encodable(text: str) -> str:
    # File names and foreign exceptions may hold lone surrogates, which UTF-8 has no form for.
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def decode(data: bytes | memoryview) -> Message:
    """Return the message that `data` is the wire form of.

    Raises:
        MalformedMessageError: it is none, or one this version does not know.
    """
    try:
        message: Message = _decode(data)
    except REFUSALS as error:
        raise malformed(data, Message, error) from None
    return message if _is_printable(message) else _with_texts(message, printable)


def _is_printable(message: msgspec.Struct) -> bool:
    """Return whether all texts of a message are as they may be shown, as almost all are: most of decoding's time."""
    texts, lists = _fields_with_texts(type(message))
    for name in texts:
        if not getattr(message, name).isprintable():
            return False
    for name in lists:
        parts = getattr(message, name)
        if parts and not "".join(chain.from_iterable(map(_texts_of(parts[0].__class__), parts))).isprintable():
            return False
    return True


@cache
def _texts_of(kind: Any) -> Callable[[Part], tuple[str, ...]]:
    texts, _ = _fields_with_texts(kind)
    return attrgetter(*texts, texts[0])  # of one name alone it would return no tuple


def _with_texts(message: _Struct, change: Callable[[str], str]) -> _Struct:
    """Return a message, or a part of one, with its texts changed."""
    texts, lists = _fields_with_texts(type(message))
    changed: dict[str, Any] = {}
    for name in texts:
        text = getattr(message, name)
        if (other := change(text)) is not text:
            changed[name] = other
    for name in lists:
        old = getattr(message, name)
        new = [_with_texts(part, change) for part in old]
        if any(map(_is_other, old, new)):
            changed[name] = tuple(new)
    return msgspec.structs.replace(message, **changed) if changed else message


def _is_other(one: object, other: object) -> bool:
    return one is not other


@cache
def _fields_with_texts(kind: Any) -> tuple[list[str], list[str]]:
    """Return which fields of a message are texts, and which are lists of parts that hold texts."""
    texts, lists = [], []
    for name in kind.__struct_fields__:
        hint: Any = kind.__annotations__[name]
        if hasattr(hint, "__metadata__"):  # of an `Annotated`
            hint = hint.__origin__
        item = hint.__args__[0] if getattr(hint, "__origin__", None) is tuple else None
        if hint is str:
            texts.append(name)
        elif isinstance(item, type) and issubclass(item, Part) and any(_fields_with_texts(item)):
            lists.append(name)
    return texts, lists


for _message in get_args(Message):  # as this is imported, and not as the job waits
    _fields_with_texts(_message)
