"""A sorted mapping in blocks: the keys below a directory are one stretch of it. Pure.

They lie in blocks of some hundred keys. A stretch is taken by its blocks and not by its keys: to take one, or to remove
it, costs a few microseconds for each thousand keys. Blocks that somebody still reads are copied before they change.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import TypeVar

from .keys import bytes_of

_T = TypeVar("_T")
_BLOCK_MAX = 1024
"""Keys of a block: copying one takes microseconds, and a million keys have a thousand blocks."""


class _Block:
    __slots__ = ("epoch", "key_bytes", "keys", "value_bytes", "values")

    def __init__(self, keys: list[str], values: list[bytes], epoch: int) -> None:
        self.keys = keys
        self.values = values
        self.epoch = epoch
        self.key_bytes = sum(map(bytes_of, keys))
        self.value_bytes = sum(map(len, values))


class Stretch:
    """A snapshot of consecutive keys and values; consumed from its front.

    Attributes:
        count: how many are left.
    """

    __slots__ = ("_at", "_blocks", "_end", "_number", "_start", "count")

    def __init__(self, blocks: list[_Block], start: int, end: int, count: int | None = None) -> None:
        """`start` is the first of the first block, `end` comes after the last of the last one."""
        self._blocks = blocks
        self._start = self._at = start
        self._end = end
        self._number = 0
        if count is None:
            beyond = len(blocks[-1].keys) - end if blocks else 0
            count = sum(len(block.keys) for block in blocks) - start - beyond
        self.count = count

    def __len__(self) -> int:
        """Return how many are left."""
        return self.count

    @property
    def key_bytes(self) -> int:
        """The size of the keys; only of a stretch of which nothing was taken."""
        outside = [key for keys in self._outside(lambda block: block.keys) for key in keys]
        return sum(block.key_bytes for block in self._blocks) - sum(map(bytes_of, outside))

    @property
    def value_bytes(self) -> int:
        """The size of the values; likewise."""
        outside = [value for values in self._outside(lambda block: block.values) for value in values]
        return sum(block.value_bytes for block in self._blocks) - sum(map(len, outside))

    def key_blocks(self) -> list[list[str]]:
        """Return the keys without their values, in blocks; likewise."""
        if not self._blocks:
            return []
        blocks = [block.keys for block in self._blocks]
        blocks[-1] = blocks[-1][: self._end]
        blocks[0] = blocks[0][self._start :]
        return blocks

    def _outside(self, of: Callable[[_Block], list[_T]]) -> list[list[_T]]:
        if not self._blocks:
            return []
        return [of(self._blocks[0])[: self._start], of(self._blocks[-1])[self._end :]]

    def popleft(self) -> tuple[str, bytes]:
        """Return the next key and its value."""
        block, at = self._blocks[self._number], self._at
        self.count -= 1
        self._at += 1
        if self._at == len(block.keys):
            self._number += 1
            self._at = 0
        return block.keys[at], block.values[at]

    def drop(self, blocks: int) -> bool:
        """Free some blocks; returns whether any are left. All at once would take as long as making them did."""
        del self._blocks[-blocks:]
        return bool(self._blocks)


class Table:
    """A sorted mapping of keys to values."""

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._firsts: list[str] = []
        self._count = 0
        self._epoch = 0
        self._last: tuple[str, list[_Block], int, int, int] | None = None
        """The entries taken last, while nothing has changed: shared by concurrent requests for the same."""

    def __len__(self) -> int:
        """Return the number of keys."""
        return self._count

    def get(self, key: str) -> bytes | None:
        """Return the value of a key; `None` where there is none."""
        at = bisect_right(self._firsts, key) - 1
        if at < 0:
            return None
        block = self._blocks[at]
        place = bisect_left(block.keys, key)
        return block.values[place] if place < len(block.keys) and block.keys[place] == key else None

    def put(self, key: str, value: bytes) -> None:
        """Set a key."""
        self._last = None
        if not self._blocks:
            self._blocks.append(_Block([], [], self._epoch))
            self._firsts.append(key)
        at = max(bisect_right(self._firsts, key) - 1, 0)
        block = self._own(at)
        place = bisect_left(block.keys, key)
        if place < len(block.keys) and block.keys[place] == key:
            block.value_bytes += len(value) - len(block.values[place])
            block.values[place] = value
            return
        block.keys.insert(place, key)
        block.values.insert(place, value)
        block.key_bytes += bytes_of(key)
        block.value_bytes += len(value)
        self._firsts[at] = block.keys[0]
        self._count += 1
        if len(block.keys) > _BLOCK_MAX:
            half = len(block.keys) // 2
            self._replace(
                at, at + 1, [(block.keys[:half], block.values[:half]), (block.keys[half:], block.values[half:])]
            )

    def remove(self, key: str) -> int:
        """Remove an existing key; returns the bytes of its value."""
        self._last = None
        at = bisect_right(self._firsts, key) - 1
        block = self._own(at)
        place = bisect_left(block.keys, key)
        assert block.keys[place] == key
        size = len(block.values[place])
        del block.keys[place], block.values[place]
        block.key_bytes -= bytes_of(key)
        block.value_bytes -= size
        self._count -= 1
        if block.keys:
            self._firsts[at] = block.keys[0]
        else:
            del self._blocks[at], self._firsts[at]
        return size

    def below(self, prefix: str) -> Stretch:
        """Return a snapshot of the keys below a directory."""
        if self._last is None or self._last[0] != prefix:
            first, start, last, end = self._bounds(prefix)
            self._epoch += 1
            blocks = self._blocks[first : last + 1]
            self._last = (prefix, blocks, start, end, Stretch(blocks, start, end).count)
        return Stretch(*self._last[1:])

    def cut(self, prefix: str) -> Stretch:
        """Remove the keys below a directory; returns them."""
        self._last = None
        first, start, last, end = self._bounds(prefix)
        stretch = Stretch(self._blocks[first : last + 1], start, end)
        if stretch.count:
            head, tail = self._blocks[first], self._blocks[last]
            left = [(head.keys[:start], head.values[:start]), (tail.keys[end:], tail.values[end:])]
            self._replace(first, last + 1, [piece for piece in left if piece[0]])
            self._count -= stretch.count
        return stretch

    def _bounds(self, prefix: str) -> tuple[int, int, int, int]:
        """Return the first block and where in it the directory begins, the last one and where in it it has ended."""
        first, start = self._place(f"{prefix}/" if prefix else "\0")
        if not prefix:
            last, end = len(self._blocks), 0
        else:
            last, end = self._place(f"{prefix}0")  # what comes after a slash
        if (first, start) >= (last, end):
            return 0, 0, -1, 0
        return (first, start, last, end) if end else (first, start, last - 1, len(self._blocks[last - 1].keys))

    def _place(self, key: str) -> tuple[int, int]:
        """Return the block and the place in it of the first key that does not come before `key`."""
        at = bisect_right(self._firsts, key) - 1
        if at < 0:
            return 0, 0
        place = bisect_left(self._blocks[at].keys, key)
        return (at, place) if place < len(self._blocks[at].keys) else (at + 1, 0)

    def _own(self, at: int) -> _Block:
        """Return a block that may be changed."""
        block = self._blocks[at]
        if block.epoch != self._epoch:
            block = self._blocks[at] = _Block(block.keys[:], block.values[:], self._epoch)
        return block

    def _replace(self, first: int, end: int, pieces: list[tuple[list[str], list[bytes]]]) -> None:
        self._blocks[first:end] = [_Block(keys, values, self._epoch) for keys, values in pieces]
        self._firsts[first:end] = [keys[0] for keys, _ in pieces]
