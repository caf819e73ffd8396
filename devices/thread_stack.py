"""Where the code of a backend is, or was when it raised, in a few words."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Iterable
from types import FrameType

# Of the calls that a backend is in, its own come first and are its author's to know; the last say what it waits for.
_FIRST, _LAST = 2, 2

_PACKAGE = __name__.rpartition(".")[0]
_OWN = {f"{_PACKAGE}.{name}" for name in ("thread", "deferred", "calls", "answers")} | {"threading"}
_OWN_PARTS = f"{_PACKAGE}.isolation."


def whereabouts(thread: threading.Thread | None) -> str:
    """Return the calls of a backend that a thread is in: `start (npu.backend:69), wait (threading:629)`.

    Outermost first, each with its module and line; bringup's own, which lead there, are left out, and those in the
    middle of many. Empty where nothing is known, as of a thread that has ended.
    """
    if thread is None or thread.ident is None:
        return ""
    frame = sys._current_frames().get(thread.ident)
    return "" if frame is None else _path(reversed(list(traceback.walk_stack(frame))))


def raised_at(error: BaseException) -> str:
    """Return the calls of a backend that an exception came through, as `whereabouts` does."""
    return _path(traceback.walk_tb(error.__traceback__))


def _path(frames: Iterable[tuple[FrameType, int]]) -> str:
    # Without their source lines: reading them may block, as on the file system that the call hangs on.
    calls = [(str(frame.f_globals.get("__name__", "?")), line, frame.f_code.co_name) for frame, line in frames]
    first = next((index for index, (module, _, _) in enumerate(calls) if not _is_own(module)), len(calls))
    texts = [f"{name} ({module}:{line})" for module, line, name in calls[first:]]
    if len(texts) > _FIRST + _LAST:
        texts[_FIRST:-_LAST] = ["..."]
    return ", ".join(texts)


def _is_own(module: str) -> bool:
    return module in _OWN or module.startswith(_OWN_PARTS)
