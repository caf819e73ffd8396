"""Error texts of the key-value store: what happened, to which key, with which sizes, and what to do next.

They stand together, and not beside their conditions, so that they can be read, and kept alike, as one page.
"""

from __future__ import annotations

from ....transport.wire.services import Refusal

_SHOWN_BYTES = 40
"""Of a value in a text."""


def faulty(ticket: int, fault: str) -> Refusal:
    """Refuse a key or a value that is too large, or no text."""
    return Refusal(ticket, "ConfigurationError", fault)


def key_exists(ticket: int, key: str, size: int) -> Refusal:
    """Refuse to set a key that holds `size` bytes already."""
    return Refusal(
        ticket,
        "KeyExistsError",
        f"key {key!r} is set already, to a value of {size} bytes, which stays; "
        "set it with overwrite=True, delete it first, or use another key",
    )


def over_quota(ticket: int, key: str, asked: int, used: int, keys: int, max_bytes: int) -> Refusal:
    """Refuse to store what takes `asked` bytes more than there are."""
    return Refusal(
        ticket,
        "ConfigurationError",
        f"key {key!r} was not set: it takes {asked} bytes more, and the key-value store holds {used} bytes in {keys} "
        f"keys of the {max_bytes} bytes that kv_max_bytes={max_bytes} allows; "
        "delete keys that nobody needs any more, or start the job with a larger kv_max_bytes",
    )


def nobody_left(ticket: int, key: str) -> Refusal:
    """End a get that waits where all other clients are leaving the job."""
    return Refusal(
        ticket,
        "PeerFailedError",
        f"key {key!r} is not set, and all other clients are leaving the job (shutdown): none of them is to set it; "
        "let the client that sets it do so before it shuts down",
    )


def not_a_number(ticket: int, key: str, value: bytes) -> Refusal:
    """Refuse to increment what is no whole number of 64 bits."""
    shown = f"{value[:_SHOWN_BYTES]!r}{'...' if len(value) > _SHOWN_BYTES else ''}"
    return Refusal(
        ticket,
        "ConfigurationError",
        f"key {key!r} cannot be incremented: its value {shown} ({len(value)} bytes) is no whole number of 64 bits in "
        "decimal text; increment another key, or set this one to a number first",
    )


def out_of_range(ticket: int, key: str, value: int, by: int) -> Refusal:
    """Refuse to increment where a number would leave 64 bits."""
    return Refusal(
        ticket,
        "ConfigurationError",
        f"key {key!r} cannot be incremented by {by}: it holds {value}, and increment and sum are to lie in 64 bits "
        f"({-(2**63)} to {2**63 - 1}); it keeps its value: use a smaller increment, or set the key anew",
    )


def too_many_waiting(ticket: int, key: str, waiting: int, max_bytes: int) -> Refusal:
    """Refuse a get that would have to wait."""
    return Refusal(
        ticket,
        "ConfigurationError",
        f"get of key {key!r} cannot wait: {waiting} gets of this job wait for keys that are not set, which is all that "
        f"the {max_bytes} bytes for them can hold; let fewer wait at once, or read with try_get",
    )


def too_many_watches(ticket: int, prefix: str, most: int) -> Refusal:
    """Refuse one more watch."""
    return Refusal(
        ticket,
        "ConfigurationError",
        f"watch of prefix {prefix!r} was refused: {most} watches are open from this event loop, and no more are "
        "allowed; end some, or watch a prefix that holds them all",
    )


def too_slow(ticket: int, prefix: str, waiting: tuple[int, int], allowed: tuple[int, int]) -> Refusal:
    """End a watch; `waiting` and `allowed` are counts of changes and their bytes."""
    return Refusal(
        ticket,
        "ConfigurationError",
        f"the watch of prefix {prefix!r} was ended, because its reader is too slow: {waiting[0]} changes of "
        f"{waiting[1]} bytes wait for it, at most {allowed[0]} of {allowed[1]} bytes are kept; read them faster, watch "
        "less, or watch anew: a new watch begins with what there is then",
    )
