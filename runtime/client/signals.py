"""The handler of SIGTERM: schedulers end clients with it, and the other clients are told before the process ends.

A forked child is no client, and SIGTERM ends it by default. Python loses signals that arrive during a fork, so that a
worker that is ended as soon as it is started would live on: SIGTERM is blocked meanwhile.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType


class TerminationNotice:
    """A handler of SIGTERM that calls `notice`, and then, unless that returns true, has the default effect.

    It does not replace a user's handler. Outside the main thread it does nothing: Python installs handlers only there.

    Args:
        notice: called in the main thread; must be bounded.
    """

    def __init__(self, notice: Callable[[], bool]) -> None:
        self._notice = notice
        self._installed = False

    def install(self) -> None:
        """Install the handler, unless the program has one."""
        if threading.current_thread() is not threading.main_thread():
            return
        handler = signal.getsignal(signal.SIGTERM)
        predecessor = getattr(handler, "__self__", None)
        is_spent = isinstance(predecessor, TerminationNotice) and not predecessor._installed
        if handler is signal.SIG_DFL or is_spent:
            signal.signal(signal.SIGTERM, self._on_signal)
            self._installed = True

    def remove(self) -> None:
        """Restore the default. Outside the main thread the handler stays, and has only the default effect."""
        if not self._installed:
            return
        self._installed = False
        is_ours = signal.getsignal(signal.SIGTERM) == self._on_signal
        if is_ours and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._installed and self._notice():
            return
        self._installed = False
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), number)


_BEFORE_FORK = threading.local()


def _before_fork() -> None:
    is_ours = isinstance(getattr(signal.getsignal(signal.SIGTERM), "__self__", None), TerminationNotice)
    _BEFORE_FORK.mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,)) if is_ours else None


def _after_fork() -> None:
    mask, _BEFORE_FORK.mask = getattr(_BEFORE_FORK, "mask", None), None
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _after_fork_in_child() -> None:
    if getattr(_BEFORE_FORK, "mask", None) is not None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
