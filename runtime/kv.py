"""The key-value store of a job: `System.kv`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager
from typing import cast

from ..errors import ConfigurationError, KeyTimeoutError
from ..transport.wire.services import (
    Changes,
    CompareAndSet,
    DeleteKeys,
    GetKey,
    IncrementKey,
    Items,
    ListKeys,
    MoreChanges,
    Number,
    SetKey,
    Value,
    WatchKeys,
)
from .client.service_client import ServiceClient
from .configuration.validation import timeout_of, whole_number
from .machines.kv.keys import key_fault, normalize, value_fault
from .types import KeyChange


class KeyValueStore:
    """A linearizable key-value store, shared by all clients of a job, for as long as the job lasts.

    Every call is atomic, and all clients see the calls in one order. Keys are texts of at most 1 KiB; they are
    normalised (`///a//b/` is `a/b`), and prefixes are directories: `a/b` is below `a`, and `ab` is not. Values are
    bytes, at most 64 MiB; a text is stored in UTF-8, and returned as bytes. A call that raises because the job has
    failed may or may not have had its effect, and so may a cancelled one. Cancelling is safe.

    Any method raises:
        PeerFailedError: the job has failed.
        NotInitializedError: the system was shut down.
        ConfigurationError: a key or value is not of its kind, or too large.
    """

    def __init__(self, services: ServiceClient, waiting: Callable[[], AbstractContextManager[None]]) -> None:
        self._services = services
        self._waiting = waiting

    async def set(self, key: str, value: bytes | str, *, overwrite: bool = False) -> None:
        """Set a key.

        Raises:
            KeyExistsError: it is set already, and not `overwrite`.
        """
        data = _as_bytes(key, value)
        await self._services.call(lambda ticket: SetKey(ticket, _checked(key), data, bool(overwrite)))

    async def get(self, key: str, *, timeout: float | None = None) -> bytes:
        """Return the value of a key; wait until it is set.

        Args:
            key: the key.
            timeout: seconds, or `None` to wait for as long as the job lives; 0 does not wait for the key.

        Raises:
            KeyTimeoutError: it was not set within `timeout`, or client 0 did not answer; the text says which.
        """
        limit = timeout_of(f"key {_checked(key)!r}", timeout)
        is_unset = False
        try:
            # With 0 there is one request, without a limit: 0 bounds the wait for the key, and not that for the network.
            async with asyncio.timeout(limit or None):
                value = await self.try_get(key)
                is_unset = value is None
                if is_unset and limit != 0.0:
                    with self._waiting():
                        reply = await self._services.call(lambda ticket: GetKey(ticket, key, wait=True))
                    value = cast(Value, reply).value
        except TimeoutError:
            value = None
        if value is None:
            raise KeyTimeoutError(_not_found(key, timeout, is_unset))
        return value

    async def try_get(self, key: str) -> bytes | None:
        """Return the value of a key, or `None` where it is not set."""
        reply = await self._services.call(lambda ticket: GetKey(ticket, _checked(key), wait=False))
        return cast(Value, reply).value

    async def list(self, prefix: str) -> dict[str, bytes]:
        """Return the values of all keys below a prefix, by full key, in order; an empty prefix is the whole store."""
        directory = _checked(prefix)
        calls = self._services.calls()
        ticket, feed = calls.listen(lambda ticket: ListKeys(ticket, directory))
        found: dict[str, bytes] = {}
        try:
            while True:
                part = self._services.checked(await feed.next())
                assert isinstance(part, Items)
                found.update((item.key, item.value) for item in part.items)
                if part.is_last:
                    return found
        finally:
            calls.forget(ticket)

    async def delete(self, key: str) -> None:
        """Delete a key and all keys below it, if there are any."""
        await self._services.call(lambda ticket: DeleteKeys(ticket, _checked(key)))

    async def increment(self, key: str, by: int = 1) -> int:
        """Add to a key that holds a whole number as text; one that is not set counts as 0. `by=0` reads.

        Returns:
            The new value.

        Raises:
            ConfigurationError: it holds something else, or the sum has more than 64 bits.
        """
        number = whole_number(by)
        if number is None:
            raise ConfigurationError(f"increment(by={by!r}) of key {key!r}: give a whole number of at most 64 bits")
        reply = await self._services.call(lambda ticket: IncrementKey(ticket, _checked(key), number))
        return cast(Number, reply).number

    async def compare_and_set(self, key: str, expected: bytes | str | None, value: bytes | str) -> bool:
        """Set a key if it holds `expected`, or, with `None`, if it is not set; return whether it did."""
        old = None if expected is None else _as_bytes(key, expected)
        new = _as_bytes(key, value)
        reply = await self._services.call(lambda ticket: CompareAndSet(ticket, _checked(key), old, new))
        return cast(Number, reply).number == 1

    async def watch(self, prefix: str) -> AsyncGenerator[KeyChange, None]:
        """Yield every change of the keys below a prefix, in order; first the present keys, as if they were set now.

        Changes are kept for a slow reader, up to a bound.

        Raises:
            ConfigurationError: this reader has fallen behind the bound.
        """
        directory = _checked(prefix)
        calls = self._services.calls()
        ticket, feed = calls.listen(lambda ticket: WatchKeys(ticket, directory))
        try:
            while True:
                reply = self._services.checked(await feed.next())
                assert isinstance(reply, Changes)
                for change in reply.changes:
                    yield KeyChange(change.key, change.value, change.revision)
                calls.post(MoreChanges(ticket, len(reply.changes)))
        finally:
            calls.forget(ticket)


def _checked(key: str) -> str:
    if not isinstance(key, str):
        raise ConfigurationError(f"key {key!r} is not a text")
    fault = key_fault(normalize(key))
    if fault is not None:
        raise ConfigurationError(fault)
    return key


def _not_found(key: str, timeout: float | None, is_unset: bool) -> str:
    if is_unset:
        return f"key {key!r} was not set within timeout={timeout:g} s: look at the client that is to set it"
    return (
        f"key {key!r}: client 0, which hosts the store, did not answer within timeout={timeout:g} s, so that it may be "
        "set or not: look at client 0 and the network, or give a longer timeout"
    )


def _as_bytes(key: str, value: bytes | str) -> bytes:
    if isinstance(value, str):
        try:
            value = value.encode()
        except UnicodeEncodeError as error:
            raise ConfigurationError(f"the value of key {key!r} is no UTF-8 text: {error}; give bytes") from None
    if not isinstance(value, bytes | bytearray | memoryview):
        raise ConfigurationError(f"the value of key {key!r} is a {type(value).__name__}: give bytes, or a text")
    data = bytes(value)
    fault = value_fault(key, len(data))
    if fault is not None:
        raise ConfigurationError(fault)
    return data
