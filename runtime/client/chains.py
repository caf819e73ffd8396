"""What lies behind an exception: its causes, its contexts, the members of its group. Pure."""

from __future__ import annotations

from collections.abc import Iterator


def exceptions_behind(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and all that a traceback of it shows, each once."""
    seen: set[int] = set()
    unseen = [error]
    while unseen:
        told = unseen.pop()
        if id(told) in seen:
            continue
        seen.add(id(told))
        yield told
        unseen += [behind for behind in (told.__context__, told.__cause__) if behind is not None]
        if isinstance(told, BaseExceptionGroup):
            unseen += told.exceptions
