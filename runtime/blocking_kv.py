"""The key-value store of a job, for callers that block."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from ..transport.wire.services import KeyChange
from .kv import KeyValueStore

_END = object()


class SyncKeyValueStore:
    """See `KeyValueStore`: the same calls, which block.

    Args:
        store: the store.
        run: runs the coroutine that a function makes to its end.
    """

    def __init__(self, store: KeyValueStore, run: Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]) -> None:
        self._store = store
        self._run = run

    def set(self, key: str, value: bytes | str, *, overwrite: bool = False) -> None:
        """See `KeyValueStore.set`."""
        self._run(lambda: self._store.set(key, value, overwrite=overwrite))

    def get(self, key: str, *, timeout: float | None = None) -> bytes:
        """See `KeyValueStore.get`."""
        value: bytes = self._run(lambda: self._store.get(key, timeout=timeout))
        return value

    def try_get(self, key: str) -> bytes | None:
        """See `KeyValueStore.try_get`."""
        value: bytes | None = self._run(lambda: self._store.try_get(key))
        return value

    def list(self, prefix: str) -> dict[str, bytes]:
        """See `KeyValueStore.list`."""
        items: dict[str, bytes] = self._run(lambda: self._store.list(prefix))
        return items

    def delete(self, key: str) -> None:
        """See `KeyValueStore.delete`."""
        self._run(lambda: self._store.delete(key))

    def increment(self, key: str, by: int = 1) -> int:
        """See `KeyValueStore.increment`."""
        number: int = self._run(lambda: self._store.increment(key, by))
        return number

    def compare_and_set(self, key: str, expected: bytes | str | None, value: bytes | str) -> bool:
        """See `KeyValueStore.compare_and_set`."""
        was_set: bool = self._run(lambda: self._store.compare_and_set(key, expected, value))
        return was_set

    def watch(self, prefix: str) -> Iterator[KeyChange]:
        """See `KeyValueStore.watch`."""
        # Where the caller stops early, the runtime's loop closes what it made: nobody waits for that.
        changes = self._store.watch(prefix)
        while (change := self._run(lambda: anext(changes, _END))) is not _END:
            yield change
