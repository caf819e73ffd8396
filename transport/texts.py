"""Texts that come from other processes, as they may be printed or logged. Pure."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return `text` with all that is no letter, sign or blank escaped as Python does: line ends, terminal controls, ...

    What a member says of itself must not forge lines of another's log, nor drive another's terminal.
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)
