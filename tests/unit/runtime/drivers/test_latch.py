"""Latches, and procedures of waits that run on an event loop or block."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, cast

import pytest

from bringup.runtime.drivers.latch import Latch, Steps, awaited, blocked, first_set


def run_on_a_loop(steps: Steps[Any]) -> Any:
    return asyncio.run(awaited(steps))


RUNS = pytest.mark.parametrize("run", [run_on_a_loop, blocked])


@RUNS
def test_a_procedure_waits_for_one_latch_after_the_other(run: Callable[[Steps[Any]], Any]) -> None:
    first, second = Latch[int](), Latch[int]()
    seen: list[object] = []

    def procedure() -> Steps[str]:
        threading.Timer(0, first.set, (1,)).start()
        yield first
        seen.append((first.value, second.is_set))
        threading.Timer(0, second.set, (2,)).start()
        yield second
        seen.append(second.value)
        return "done"

    assert run(procedure()) == "done"
    assert seen == [(1, False), 2]


@RUNS
def test_a_procedure_without_a_wait_returns_its_result(run: Callable[[Steps[Any]], Any]) -> None:
    def procedure() -> Steps[int]:
        yield from ()
        return 7

    assert run(procedure()) == 7


@RUNS
def test_what_a_procedure_raises_reaches_its_caller(run: Callable[[Steps[Any]], Any]) -> None:
    latch = Latch[None]()
    latch.set(None)

    def procedure() -> Steps[None]:
        yield latch
        raise LookupError("from the procedure")

    with pytest.raises(LookupError, match="from the procedure"):
        run(procedure())


def tidying(never: Latch[None], tidied: Latch[None], seen: list[type[BaseException]]) -> Steps[None]:
    try:
        yield never
    except BaseException as error:
        seen.append(type(error))
        threading.Timer(0, tidied.set, (None,)).start()
        yield tidied
        raise


async def test_a_cancelled_procedure_may_wait_on() -> None:
    tidied, seen = Latch[None](), list[type[BaseException]]()
    task = asyncio.create_task(awaited(tidying(Latch(), tidied, seen)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert tidied.is_set
    assert seen == [asyncio.CancelledError]


async def test_a_procedure_whose_coroutine_is_closed_blocks_for_the_rest() -> None:
    tidied, seen = Latch[None](), list[type[BaseException]]()
    running = awaited(tidying(Latch(), tidied, seen))
    running.send(None)
    running.close()
    assert tidied.is_set
    assert seen == [GeneratorExit]


def test_an_interrupted_procedure_blocks_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    never, tidied, seen = Latch[None](), Latch[None](), list[type[BaseException]]()

    def interrupted(timeout: float | None = None) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(never, "wait_blocking", interrupted)
    with pytest.raises(KeyboardInterrupt):
        blocked(tidying(never, tidied, seen))
    assert tidied.is_set
    assert seen == [KeyboardInterrupt]


def test_only_the_first_value_counts_and_callbacks_come_before_waiters() -> None:
    latch = Latch[int]()
    seen: list[object] = []
    latch.on_set(lambda value: seen.append((value, latch.is_set)))
    assert latch.set(1)
    assert not latch.set(2)
    assert (latch.value, seen) == (1, [(1, False)])
    assert latch.wait_blocking(0)


async def test_the_first_of_several_latches_ends_the_wait() -> None:
    never, other = Latch[None](), Latch[int]()
    threading.Timer(0, other.set, (3,)).start()
    await first_set(never, other)
    assert (never.is_set, other.value) == (False, 3)


class Interrupted:
    """A procedure that Ctrl-C interrupts right after its first wait has begun."""

    def __init__(self, steps: Steps[None]) -> None:
        self._steps = steps

    @property
    def gi_frame(self) -> object:
        return self._steps.gi_frame

    def __next__(self) -> Latch[Any]:
        next(self._steps)
        raise KeyboardInterrupt

    def throw(self, error: BaseException) -> Latch[Any]:
        self.__class__ = type("Resumed", (Interrupted,), {"__next__": lambda self: next(self._steps)})
        return self._steps.throw(error)


def test_an_interrupt_between_two_waits_reaches_the_procedure() -> None:
    tidied, seen = Latch[None](), list[type[BaseException]]()
    with pytest.raises(KeyboardInterrupt):
        blocked(cast(Steps[None], Interrupted(tidying(Latch(), tidied, seen))))
    assert tidied.is_set
    assert seen == [KeyboardInterrupt]


def test_a_signal_handler_may_wait_for_the_latch_whose_wait_it_interrupts() -> None:
    latch, waits = Latch[None](), list[bool]()

    def interrupt(frame: FrameType, event: str, argument: object) -> Any:
        waits.append(latch.wait_blocking(0))  # at every line of the wait, as a handler may be called
        return interrupt

    def wait() -> None:
        sys.settrace(interrupt)
        latch.wait_blocking(0.01)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert waits
    assert not any(waits)
