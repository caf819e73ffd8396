"""Sets of client ids as a person and as a message say them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

_RANGES_SHOWN_MAX = 16


def pack_ids(ids: Iterable[int]) -> tuple[int, ...]:
    """Return `ids` as pairs of first and last id of each run, one after the other: `[1, 3, 4, 5]` is `(1, 1, 3, 5)`."""
    packed: list[int] = []
    for client_id in sorted(ids):
        if packed and packed[-1] == client_id - 1:
            packed[-1] = client_id
        else:
            packed += (client_id, client_id)
    return tuple(packed)


def unpack_ids(packed: Sequence[int]) -> Iterator[int]:
    """Yield the ids that `pack_ids` packed."""
    for first, last in zip(packed[::2], packed[1::2], strict=True):
        yield from range(first, last + 1)


def format_ids(ids: Iterable[int]) -> str:
    """Return `ids` for a text: `3`, `1, 4-7`, and no more than a line of them."""
    packed = pack_ids(ids)
    pairs = list(zip(packed[::2], packed[1::2], strict=True))
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in pairs[:_RANGES_SHOWN_MAX]]
    hidden = sum(last - first + 1 for first, last in pairs[_RANGES_SHOWN_MAX:])
    return ", ".join(shown) + (f" and {hidden} more" if hidden else "")


def name_ids(ids: Iterable[int]) -> str:
    """Return clients for a text: `client 3`, `clients 1, 4-7`."""
    chosen = set(ids)
    return f"client{'s' * (len(chosen) != 1)} {format_ids(chosen)}"
