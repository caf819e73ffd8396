"""Bounded texts of a backend's objects and errors, whose own methods may raise. Pure."""

from __future__ import annotations

TEXT_CHARS_MAX = 16_384
"""Characters of a text from a backend, at most: it goes into messages to all clients."""

# Characters of a value in a message: about one line.
_SHOWN_CHARS_MAX = 80


def clipped(text: str, length: int = TEXT_CHARS_MAX) -> str:
    """Return a text, or its beginning where it is longer than `length` characters."""
    return text if len(text) <= length else text[: length - 3] + "..."


def shown(value: object) -> str:
    """Return the `repr` of a value, shortened for messages."""
    try:
        return clipped(repr(value), _SHOWN_CHARS_MAX)
    except Exception:  # noqa: BLE001 - it is code of whoever made the object
        return f"a {type(value).__name__} whose repr() fails"


def text_of(error: BaseException) -> str:
    """Return the text of an exception."""
    try:
        return clipped(str(error))
    except Exception as second:  # noqa: BLE001 - as above
        return f"(its text cannot be had: its __str__ raised {type(second).__name__})"


def visible(text: str) -> str:
    """Return a text with `?` for each unprintable character."""
    return text if text.isprintable() else "".join(sign if sign.isprintable() else "?" for sign in text)


def said(error: BaseException) -> str:
    """Return the type and the text of an exception."""
    text = text_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
