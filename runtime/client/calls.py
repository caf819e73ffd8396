"""A call that has its place even where the task that was to make it is cancelled before its first step."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


class Call(Coroutine[Any, Any, T]):
    """A coroutine that hears of it where it is cancelled before it has begun, which Python tells no coroutine.

    That happens in `asyncio.wait_for(call, 0)`, and where another task of a `TaskGroup` fails at once.

    Args:
        coroutine: what it does.
        at_once: called with what was thrown in before the first step.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T], at_once: Callable[[BaseException], None]) -> None:
        self.__qualname__ = getattr(coroutine, "__qualname__", type(self).__qualname__)  # tasks show it
        self._coroutine = coroutine
        self._at_once: Callable[[BaseException], None] | None = at_once

    def __await__(self) -> Generator[Any, Any, T]:
        self._at_once = None
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        """See `Coroutine.send`."""
        self._at_once = None
        return self._coroutine.send(value)

    def throw(
        self,
        kind: type[BaseException] | BaseException,
        value: BaseException | object = None,
        trace: TracebackType | None = None,
        /,
    ) -> Any:
        """See `Coroutine.throw`."""
        given = kind if isinstance(kind, BaseException) else value
        error = given if isinstance(given, BaseException) else kind()  # type: ignore[operator]
        at_once, self._at_once = self._at_once, None
        if at_once is not None:
            at_once(error)
        return self._coroutine.throw(error.with_traceback(trace) if trace is not None else error)

    def close(self) -> None:
        """See `Coroutine.close`."""
        self._coroutine.close()
