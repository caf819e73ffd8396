"""Keys as paths: normal form, faults, parent directories.

`///a//b/` is `a/b`. Prefixes are directories: below `a` lies `a/b`, and neither `a` itself nor `ab`. The empty key is a
key like any other and lies in no directory; as a directory it is the root, below which all others lie.
"""

from __future__ import annotations

from ....transport.wire.services import KEY_BYTES_MAX, VALUE_BYTES_MAX

_CHARS_SURELY_ALLOWED = KEY_BYTES_MAX // 4
"""A character has at most four bytes in UTF-8."""

_SHOWN_CHARS = 80
"""Of a faulty key in a text."""


def normalize(key: str) -> str:
    """Return the key without slashes that lead, trail or repeat."""
    if "//" not in key and key[:1] != "/" and key[-1:] != "/":
        return key
    return "/".join([part for part in key.split("/") if part])


def bytes_of(key: str) -> int:
    """Return how many bytes a key has in UTF-8."""
    return len(key) if key.isascii() else len(key.encode("utf-8", "surrogatepass"))


def key_fault(key: str) -> str | None:
    """Return the fault of a normalised key, or `None`."""
    if key.isascii() and len(key) <= _CHARS_SURELY_ALLOWED:
        return None
    try:
        size = len(key.encode())
    except UnicodeEncodeError as error:
        shown = ascii(key[:_SHOWN_CHARS])
        return f"key {shown} is no UTF-8 text: {error.reason} at character {error.start}; use another key"
    if size > KEY_BYTES_MAX:
        return f"key {key[:_SHOWN_CHARS]!r}... has {size} bytes, at most {KEY_BYTES_MAX} are allowed; use a shorter one"
    return None


def value_fault(key: str, size: int) -> str | None:
    """Return the fault of a value of `size` bytes, or `None`."""
    if size <= VALUE_BYTES_MAX:
        return None
    return (
        f"the value for key {key!r} has {size} bytes, at most {VALUE_BYTES_MAX} are allowed; split it over several keys"
    )


def directories_of(key: str) -> list[str]:
    """Return the key and all its parent directories, the root last."""
    paths = [key]
    while key:
        key = key.rpartition("/")[0]
        paths.append(key)
    return paths
