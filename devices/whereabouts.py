"""Where a thread is, in a few words: for calls that do not return."""

from __future__ import annotations

import sys
import threading
import traceback
from pathlib import Path

__all__ = ["whereabouts"]

_FRAMES_MAX = 4

# Frames of the thread's own loop say nothing about the call.
_OWN_FILES = ("threading.py", "thread.py")


def whereabouts(thread: threading.Thread | None) -> str:
    """Return the calls that a thread is in, from the outermost: `start (sim.py:69), wait (threading.py:629)`.

    Only the innermost few are named; empty where nothing is known, as of a thread that has ended.
    """
    if thread is None or thread.ident is None:
        return ""
    frame = sys._current_frames().get(thread.ident)
    if frame is None:
        return ""
    # Without their source lines: reading them may block, as on the file system that the call hangs on.
    calls = [
        (Path(each.f_code.co_filename).name, line, each.f_code.co_name) for each, line in traceback.walk_stack(frame)
    ]
    calls.reverse()
    while calls and calls[0][0] in _OWN_FILES:
        del calls[0]
    return ", ".join(f"{name} ({file}:{line})" for file, line, name in calls[-_FRAMES_MAX:])
