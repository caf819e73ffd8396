"""The requests and replies of the coordination services: the key-value store and the barriers.

A client numbers its calls with tickets; whatever answers a call carries its ticket. Keys are given as the caller wrote
them, and come back normalised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

KEY_BYTES_MAX = 1024
"""Of a normalised key, as UTF-8."""
VALUE_BYTES_MAX = 64 * 1024 * 1024

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True)
def _message(cls: type[_T]) -> type[_T]:
    # Frozen to type checkers only: a frozen dataclass takes four times as long to make, half the time of decoding one.
    return dataclass(slots=True, unsafe_hash=True)(cls)


# From a client.


@_message
class SetKey:
    """Set a key; answered by `Done`, or refused where it exists and `overwrite` is not asked for."""

    ticket: int
    key: str
    value: bytes
    overwrite: bool


@_message
class GetKey:
    """Read a key; answered by `Value`, where `wait` is set once there is one."""

    ticket: int
    key: str
    wait: bool


@_message
class ListKeys:
    """Read all keys below a prefix, not the prefix itself; answered by `Items`, once or more."""

    ticket: int
    prefix: str


@_message
class DeleteKeys:
    """Delete a key and all below it; answered by `Done`."""

    ticket: int
    key: str


@_message
class IncrementKey:
    """Add to a key that holds a whole number as text, or nothing yet; answered by `Number`, the sum."""

    ticket: int
    key: str
    by: int


@_message
class CompareAndSet:
    """Set a key where it holds `expected`, or, with `None`, where there is none.

    Answered by `Number`: 1 where it was set, else 0.
    """

    ticket: int
    key: str
    expected: bytes | None
    value: bytes


@_message
class WatchKeys:
    """Follow a prefix and all keys below it: answered by `Changes`, first what there is, then each change, in order."""

    ticket: int
    prefix: str


@_message
class MoreChanges:
    """The reader of a watch has taken `count` changes, and so many more may be sent."""

    ticket: int
    count: int


@_message
class CancelCall:
    """Nobody waits for this call any more; not answered, and neither is the call from then on."""

    ticket: int


@_message
class EndChannel:
    """Nobody uses channel `channel` of this client any more, whose event loop is gone; not answered."""

    ticket: int
    channel: int


@_message
class EnterBarrier:
    """Come to barrier `name`; answered by `Done` once all have come.

    `client_ids` are those that take part, as pairs of first and last id; empty for all of the job. `timeout` in
    seconds, below 0 for none.
    """

    ticket: int
    name: str
    client_ids: tuple[int, ...]
    timeout: float


@_message
class ListLive:
    """Ask for the clients that are alive; answered by `ClientIds`."""

    ticket: int


# From the coordinator.


@_message
class Done:
    """It is done."""

    ticket: int


@_message
class Value:
    """What a key holds; `None` where there is none."""

    ticket: int
    value: bytes | None


@_message
class KeyValue:
    """A key, in full, and what it holds."""

    key: str
    value: bytes


@_message
class Items:
    """Keys with their values, by key; as many messages as it takes, of which the last says so."""

    ticket: int
    items: tuple[KeyValue, ...]
    is_last: bool = True


@_message
class Number:
    """A whole number."""

    ticket: int
    number: int


@_message
class ClientIds:
    """Clients, as pairs of first and last id."""

    ticket: int
    client_ids: tuple[int, ...]


@_message
class KeyChange:
    """A key was set, or deleted, when `value` is `None`; `revision` counts the changes of the store.

    Those of one delete bear the same, that of the last of them. What a watch begins with bears the revision at which
    it began.
    """

    key: str
    value: bytes | None
    revision: int


@_message
class Changes:
    """What a watch has to tell: first the keys that there are, up to the message that ends the snapshot, then changes.

    There is always one message that ends the snapshot, if need be an empty one, and it holds no later change.
    """

    ticket: int
    changes: tuple[KeyChange, ...]
    ends_snapshot: bool = False


@_message
class Refusal:
    """The call has failed: `error` is the public exception this becomes, `missing` clients as pairs of ids."""

    ticket: int
    error: str
    text: str
    missing: tuple[int, ...] = ()


# Of the channel that carries them, over one link after another; no machine sees these.


@_message
class OpenChannel:
    """The first message on a link: carries a client's channel on, or begins it; `received` replies have come so far."""

    channel: int
    received: int


@_message
class ChannelOpened:
    """The answer: `received` requests of the channel have come so far."""

    received: int


@_message
class MessagesReceived:
    """So many messages of the channel have come: they need not be kept."""

    received: int


@_message
class CloseChannel:
    """Nobody uses the channel any more."""


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
    | EndChannel
    | EnterBarrier
    | ListLive
)
ServiceReply = Done | Value | Items | Number | Changes | ClientIds | Refusal
ChannelMessage = OpenChannel | ChannelOpened | MessagesReceived | CloseChannel
ServiceMessage = ServiceRequest | ServiceReply | ChannelMessage
