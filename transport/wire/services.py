"""The requests and replies of the coordination services: the key-value store and the barriers. Pure.

A client numbers its calls with tickets; whatever answers a call carries its ticket. Keys are given as the caller wrote
them, and come back normalised.
"""

from typing import Annotated

from msgspec import Meta

from .form import Body, Part, Signed, Unsigned
from .session_messages import SessionMessage

KEY_BYTES_MAX = 1024
"""Of a normalised key, as UTF-8."""
VALUE_BYTES_MAX = 64 * 1024 * 1024
ENTRIES_MAX = 65_536
"""Of items, changes or bounds of client ids in one message: what a receiver must have room for at once."""
TEXT_CHARS_MAX = 16_000
"""Of the text of a refusal, which is for people."""

_Count = Annotated[int, Meta(ge=0, le=2**32 - 1)]
_ClientIds = Annotated[tuple[_Count, ...], Meta(max_length=ENTRIES_MAX)]
_Key = Annotated[str, Meta(max_length=65_535)]
"""As its caller wrote it: the store normalises a key before it bounds it."""
_Timeout = Annotated[float, Meta(ge=-1.0)]
"""A bound also refuses what is not a number, which no timer could wait for."""


# From a client.


class SetKey(Body, frozen=True, tag=1):
    """Set a key; answered by `Done`, or refused where it exists and `overwrite` is not asked for."""

    ticket: Unsigned
    key: _Key
    value: bytes
    overwrite: bool


class GetKey(Body, frozen=True, tag=2):
    """Read a key; answered by `Value`, where `wait` is set once there is one."""

    ticket: Unsigned
    key: _Key
    wait: bool


class ListKeys(Body, frozen=True, tag=3):
    """Read all keys below a prefix, not the prefix itself; answered by `Items`, once or more."""

    ticket: Unsigned
    prefix: _Key


class DeleteKeys(Body, frozen=True, tag=4):
    """Delete a key and all below it; answered by `Done`."""

    ticket: Unsigned
    key: _Key


class IncrementKey(Body, frozen=True, tag=5):
    """Add to a key that holds a whole number as text, or nothing yet; answered by `Number`, the sum."""

    ticket: Unsigned
    key: _Key
    by: Signed


class CompareAndSet(Body, frozen=True, tag=6):
    """Set a key where it holds `expected`, or, with `None`, where there is none.

    Answered by `Number`: 1 where it was set, else 0.
    """

    ticket: Unsigned
    key: _Key
    expected: bytes | None
    value: bytes


class WatchKeys(Body, frozen=True, tag=7):
    """Follow a prefix and all keys below it: answered by `Changes`, first what there is, then each change, in order."""

    ticket: Unsigned
    prefix: _Key


class MoreChanges(Body, frozen=True, tag=8):
    """The reader of a watch has taken `count` changes, and so many more may be sent."""

    ticket: Unsigned
    count: _Count


class CancelCall(Body, frozen=True, tag=9):
    """Nobody waits for this call any more; not answered, and neither is the call from then on."""

    ticket: Unsigned


class EndOther(Body, frozen=True, tag=23):
    """Nobody uses session `session` of this client any more, whose event loop is gone; not answered."""

    ticket: Unsigned
    session: Unsigned


class EnterBarrier(Body, frozen=True, tag=10):
    """Come to barrier `name`; answered by `Done` once all have come.

    `client_ids` are those that take part, as pairs of first and last id; empty for all of the job. `timeout` in
    seconds, below 0 for none.
    """

    ticket: Unsigned
    name: _Key
    client_ids: _ClientIds
    timeout: _Timeout


class ListLive(Body, frozen=True, tag=21):
    """A query for the clients that are alive; answered by `ClientIds`."""

    ticket: Unsigned


# From the coordinator.


class Done(Body, frozen=True, tag=11):
    """It is done."""

    ticket: Unsigned


class Value(Body, frozen=True, tag=12):
    """The value of a key; `None` where it is not set."""

    ticket: Unsigned
    value: bytes | None


class KeyValue(Part, frozen=True):
    """A key, in full, and its value."""

    key: _Key
    value: bytes


class Items(Body, frozen=True, tag=13):
    """Keys with their values, by key; as many messages as it takes, of which the last says so."""

    ticket: Unsigned
    items: Annotated[tuple[KeyValue, ...], Meta(max_length=ENTRIES_MAX)]
    is_last: bool = True


class Number(Body, frozen=True, tag=14):
    """A whole number."""

    ticket: Unsigned
    number: Signed


class ClientIds(Body, frozen=True, tag=22):
    """Clients, as pairs of first and last id."""

    ticket: Unsigned
    client_ids: _ClientIds


class KeyChange(Part, frozen=True):
    """A key was set, or deleted, when `value` is `None`; `revision` counts the changes of the store.

    Those of one delete bear the same, that of the last of them. What a watch begins with bears the revision at which
    it began.
    """

    key: _Key
    value: bytes | None
    revision: Unsigned


class Changes(Body, frozen=True, tag=15):
    """The changes of a watch: first the present keys, up to the message that ends the snapshot, then changes.

    There is always one message that ends the snapshot, if need be an empty one, and it holds no later change.
    """

    ticket: Unsigned
    changes: Annotated[tuple[KeyChange, ...], Meta(max_length=ENTRIES_MAX)]
    ends_snapshot: bool = False


class Refusal(Body, frozen=True, tag=16):
    """The call has failed: `error` is the public exception this becomes, `missing` clients as pairs of ids."""

    ticket: Unsigned
    error: str
    text: Annotated[str, Meta(max_length=TEXT_CHARS_MAX)]
    missing: _ClientIds = ()


ServiceRequest = (
    SetKey
    | GetKey
    | ListKeys
    | DeleteKeys
    | IncrementKey
    | CompareAndSet
    | WatchKeys
    | MoreChanges
    | CancelCall
    | EndOther
    | EnterBarrier
    | ListLive
)
ServiceReply = Done | Value | Items | Number | Changes | ClientIds | Refusal
ServiceMessage = ServiceRequest | ServiceReply | SessionMessage
