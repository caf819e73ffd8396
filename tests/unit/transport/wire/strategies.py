"""Any value of a message, for hypothesis: made from the declarations of the messages alone."""

from __future__ import annotations

from typing import Annotated, Any, get_args, get_origin

import msgspec
from hypothesis import strategies as st

LARGE = st.integers(0, 40_000).map(lambda size: b"v" * size)
"""Values on both sides of the size from which they are sent as parts of their own."""

NO_SURROGATES = st.characters(exclude_categories=["Cs"])
"""Of the keys of the services, which are refused with them; in other texts they are replaced."""


def messages_of(kind: Any) -> st.SearchStrategy[Any]:
    """Return the messages of one type."""
    return st.builds(kind, *[values_of(kind.__annotations__[name]) for name in kind.__struct_fields__])


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Return the values of an annotation, within its bounds."""
    meta = msgspec.Meta()
    if get_origin(hint) is Annotated:
        hint, meta = get_args(hint)
    if get_origin(hint) is tuple:
        return st.lists(values_of(get_args(hint)[0]), max_size=5).map(tuple)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return messages_of(hint)
    if get_args(hint):
        return st.one_of(*map(values_of, get_args(hint)))
    least, most = meta.ge, meta.le
    simple: dict[Any, st.SearchStrategy[Any]] = {
        int: st.integers(0 if least is None else int(least), 2**64 - 1 if most is None else int(most)),
        str: st.text(max_size=30) if meta.max_length is None else st.text(NO_SURROGATES, max_size=30),
        bytes: st.binary(max_size=50) | LARGE,
        bool: st.booleans(),
        float: st.floats(min_value=least, allow_nan=False),
        type(None): st.none(),
    }
    return simple[hint]
