"""One call on its way from an event loop to a thread, and its outcome on the way back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Call(Generic[T]):
    """A function to run in a thread, and the future that its outcome goes to.

    Args:
        what: what the call does, for errors.
        function: runs in the thread.
        loop: the event loop that waits.
    """

    def __init__(self, what: str, function: Callable[[], T], loop: asyncio.AbstractEventLoop) -> None:
        self.what = what
        self.function = function
        self.future: asyncio.Future[T] = loop.create_future()

    def deliver(self, result: Any = None, error: Exception | None = None) -> bool:
        """Hand the outcome over, from any thread; false if the event loop is closed. Late outcomes are ignored."""
        try:
            self.future.get_loop().call_soon_threadsafe(self._settle, result, error)
        except RuntimeError:
            return False
        return True

    def drop(self) -> None:
        """Have the outcome ignored, come or yet to come; in the event loop's thread."""
        # Even where it is done: asyncio then no longer logs that nobody looked at its error.
        self.future.cancel()

    def _settle(self, result: T, error: Exception | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)
