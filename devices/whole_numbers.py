"""Whole numbers of any library's types, such as numpy's, as Python's. Pure."""

from __future__ import annotations

import operator


def as_whole_number(value: object) -> int | None:
    """Return a whole number as an `int`; `None` for anything else, a flag of Python or numpy included."""
    try:
        # The flags of numpy 1 pass for whole numbers.
        is_flag = isinstance(value, bool) or getattr(getattr(value, "dtype", None), "kind", "") == "b"
        return None if is_flag else int(operator.index(value))  # type: ignore[arg-type]
    except Exception:  # noqa: BLE001 - it is code of whoever made the object
        return None
