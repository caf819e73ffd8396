"""Escaping of texts from other processes, for logs and terminals. Pure."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return `text` with every unprintable character escaped as Python does it: line ends, terminal controls, ...

    What a member says of itself must not forge lines of another's log, nor drive another's terminal.
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)
