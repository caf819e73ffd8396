"""The state of a backend that is given up while it runs in a process of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Interruption:
    """The order to give a backend up: from any thread, once and for good.

    It is the backend's, not its process's: an order that comes before the process, or between two calls, stays.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_set = False
        self._wake: Callable[[], None] | None = None

    @property
    def is_set(self) -> bool:
        """Whether the order was given."""
        return self._is_set

    def set(self) -> None:
        """Give the order; never blocks."""
        with self._lock:
            if not self._is_set:
                self._is_set = True
                self._carry_out()

    def attach(self, wake: Callable[[], None]) -> None:
        """Have the order carried out by `wake`, at once where it was given; `wake` must not block."""
        with self._lock:
            self._wake = wake
            if self._is_set:
                self._carry_out()

    def detach(self) -> None:
        """Forget what carries the order out: once this returns, it is not called any more."""
        with self._lock:
            self._wake = None

    def _carry_out(self) -> None:
        if self._wake is not None:
            self._wake()
