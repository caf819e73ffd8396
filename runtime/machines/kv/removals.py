"""The changes of one delete for the watches: keys are kept in blocks, and become changes when they are sent."""

from __future__ import annotations

from ....transport.wire.services import KeyChange
from .keys import bytes_of
from .table import Stretch


class Removed:
    """A removed key and the keys below it, without values; shared by the watches.

    Attributes:
        key: of the directory itself; `None` where that was no key.
        blocks: the keys below it, in order.
        count: of all of them.
        key_bytes: what they have.
        value_bytes: what their values had.
        readers: the watches that have not told it yet.
    """

    __slots__ = ("blocks", "count", "key", "key_bytes", "readers", "value_bytes")

    def __init__(self, key: str, value: bytes | None, below: Stretch) -> None:
        self.key = None if value is None else key
        self.blocks = below.key_blocks()
        self.count = len(below) + (value is not None)
        self.key_bytes = below.key_bytes + (0 if value is None else bytes_of(key))
        self.value_bytes = below.value_bytes + len(value or b"")
        self.readers = 0

    def drop(self, blocks: int) -> bool:
        """Free some blocks; returns whether any are left. See `Stretch.drop`."""
        del self.blocks[-blocks:]
        return bool(self.blocks)


class Removal:
    """The part of a removal that one watch has yet to send.

    Attributes:
        removed: all of it.
        left: how many changes.
    """

    __slots__ = ("_at", "_has_told_key", "_number", "_revision", "left", "removed")

    def __init__(self, removed: Removed, revision: int) -> None:
        removed.readers += 1
        self.removed = removed
        self.left = removed.count
        self._revision = revision
        self._has_told_key = removed.key is None
        self._number = 0
        self._at = 0

    def popleft(self) -> KeyChange:
        """Return the next change."""
        self.left -= 1
        return KeyChange(self._next_key(), None, self._revision)

    def _next_key(self) -> str:
        if not self._has_told_key:
            self._has_told_key = True
            assert self.removed.key is not None
            return self.removed.key
        block = self.removed.blocks[self._number]
        key = block[self._at]
        self._at += 1
        if self._at == len(block):
            self._number += 1
            self._at = 0
        return key
