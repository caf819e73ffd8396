"""The stack of a backend's call, in a few words: of one that hangs, or of an exception."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Iterable
from types import FrameType

# Of the calls that a backend is in, its own come first and are its author's to know; the last name the wait.
_FIRST, _LAST = 2, 2

# The packages whose modules lead to a backend; backends are in packages below, or elsewhere.
_CALLERS = {__package__, f"{__package__}.isolation"}


def stack_of(thread: threading.Thread | None) -> str:
    """Return the backend's calls that a thread is in: `start (npu.backend:69), wait (threading:629)`.

    Outermost first, each with its module and line. Left out are bringup's own calls, which lead there, and those in the
    middle of many. Empty where nothing is known, as of a thread that has ended.
    """
    if thread is None or thread.ident is None:
        return ""
    frame = sys._current_frames().get(thread.ident)
    return "" if frame is None else _path(reversed(list(traceback.walk_stack(frame))))


def stack_of_error(error: BaseException) -> str:
    """Return the backend's calls that an exception came through, as `stack_of` does."""
    return _path(traceback.walk_tb(error.__traceback__))


def _path(frames: Iterable[tuple[FrameType, int]]) -> str:
    # Without their source lines: reading them may block, as on the file system that the call hangs on.
    calls = list(frames)
    first = next((index for index, (frame, _) in enumerate(calls) if not _leads_to_backend(frame)), len(calls))
    texts = [f"{frame.f_code.co_name} ({_module(frame)}:{line})" for frame, line in calls[first:]]
    if len(texts) > _FIRST + _LAST:
        texts[_FIRST:-_LAST] = ["..."]
    return ", ".join(texts)


def _leads_to_backend(frame: FrameType) -> bool:
    return frame.f_globals.get("__package__") in _CALLERS or _module(frame) == threading.__name__


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "?"))
