"""What the clients of a run do when each is a process: timed calls, whose answers are checked."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from .figures import LARGE_BYTES, SMALL_BYTES, Task, median

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    from ..worker import Place

_LARGE_SHARE = 10
_WARM_UP_SHARE = 10
_SEED = 4
_SHOWN_BYTES = 20


class Face(Protocol):
    """A library's services, as one client sees them. A library that blocks does so within these calls."""

    async def get(self, key: str) -> bytes:
        """Return what a key holds."""
        ...

    async def set(self, key: str, value: bytes) -> None:
        """Set a key, whether it is set or not; returns when the store has it."""
        ...

    async def meet(self, name: str, number: int) -> None:
        """Wait until all clients of the run have come to this round of a barrier."""
        ...

    def blocking(self) -> Face | None:
        """The same services by calls that block, where the library has both kinds."""
        ...


@dataclass(frozen=True, slots=True)
class Orders:
    """What the clients of a run are to do.

    Attributes:
        task: The kind of run.
        calls: How many calls of 100 bytes are timed.
        rounds: How many rounds of a barrier.
        loop: `uvloop` or `asyncio`: the event loop of the clients' own calls.
    """

    task: Task
    calls: int
    rounds: int
    loop: str

    @classmethod
    def of(cls, place: Place) -> Orders:
        """Return what a client was told."""
        told = place.orders
        return cls(Task(told["kind"], told["clients"]), told["calls"], told["rounds"], told["loop"])


async def take_part(face: Face, place: Place) -> dict[str, Any]:
    """Do this client's part of a run; returns what `evaluate` wants to hear."""
    orders = Orders.of(place)
    return await _PARTS[orders.task.kind](face, place.client_id, orders)


async def _time_calls(face: Face, client_id: int, orders: Orders) -> dict[str, Any]:
    bench = _CallBench(face)
    if client_id == 1:
        await bench.run("", SMALL_BYTES, orders.calls)
        await bench.run("large ", LARGE_BYTES, max(1, orders.calls // _LARGE_SHARE))
        blocking = face.blocking()
        if blocking is not None:
            bench.face = blocking
            await bench.run("blocking ", SMALL_BYTES, orders.calls)
    await face.meet("turn", 0)
    if client_id == 0:
        await bench.run("own ", SMALL_BYTES, orders.calls)
    await face.meet("turn", 1)
    return {"samples": bench.samples, "wrong": bench.wrong}


async def _time_rate(face: Face, client_id: int, orders: Orders) -> dict[str, Any]:
    """All but the client that hosts the services get what it has set, at once."""
    value = text_of(SMALL_BYTES)[0]
    if client_id == 0:
        await face.set("rate", value)
    await face.meet("rate", 0)
    if client_id == 0:
        await face.meet("rate", 1)
        return {}
    began = time.monotonic()
    other = [answer for _ in range(orders.calls) if (answer := await face.get("rate")) != value]
    ended = time.monotonic()
    await face.meet("rate", 1)
    return {"began": began, "ended": ended, "wrong": _differing("rate", other, value)}


async def _time_barrier(face: Face, client_id: int, orders: Orders) -> dict[str, Any]:
    for number in range(_warm_up(orders.rounds)):
        await face.meet("warm-up", number)
    entered, left = [], []
    for number in range(orders.rounds):
        entered.append(time.monotonic())
        await face.meet("meet", number)
        left.append(time.monotonic())
    return {"entered": entered, "left": left}


_PARTS: Mapping[str, Callable[[Face, int, Orders], Awaitable[dict[str, Any]]]] = {
    "calls": _time_calls,
    "rate": _time_rate,
    "barrier": _time_barrier,
}


class _CallBench:
    """Times sets, then gets, of one client while nobody else calls.

    Attributes:
        samples: The median of a call, in seconds, by key.
        wrong: A text for each answer that was not what had been set.
    """

    def __init__(self, face: Face) -> None:
        self.face = face
        self.samples: dict[str, float] = {}
        self.wrong: list[str] = []

    async def run(self, prefix: str, size: int, calls: int) -> None:
        key, values = f"bench/{prefix.strip() or 'small'}", text_of(size)
        face, spare = self.face, _warm_up(calls)
        await _timed([partial(face.set, key, values[0])] * spare)
        sets = [partial(face.set, key, values[number % len(values)]) for number in range(calls)]
        self.samples[prefix + "set"], _ = await _timed(sets)
        last = values[(calls - 1) % len(values)]
        await _timed([partial(face.get, key)] * spare)
        self.samples[prefix + "get"], other = await _timed([partial(face.get, key)] * calls, last)
        self.wrong += _differing(key, other, last)


async def _timed(
    calls: Sequence[Callable[[], Coroutine[Any, Any, Any]]], expected: bytes | None = None
) -> tuple[float, list[bytes]]:
    """Make calls one after the other; returns the median of what one took, in seconds, and what was not expected.

    An answer that is right is let go at once: to keep them all would make every call fetch memory from the system.
    """
    times, other = [], []
    for call in calls:
        began = time.perf_counter()
        answer = await call()
        times.append(time.perf_counter() - began)
        if expected is not None and answer != expected:
            other.append(answer)
    return median(times), other


def _differing(key: str, answers: Sequence[bytes], expected: bytes) -> list[str]:
    if not answers:
        return []
    first = bytes(answers[0])[:_SHOWN_BYTES]
    return [f"{len(answers)} gets of {key!r} gave {first!r}, and not {expected[:_SHOWN_BYTES]!r}"]


def _warm_up(count: int) -> int:
    return max(1, count // _WARM_UP_SHARE)


def text_of(size: int) -> list[bytes]:
    """Return two values that differ, of `size` bytes each: hexadecimal text, which a store may compress."""
    rng = random.Random(_SEED)
    return [rng.randbytes((size + 1) // 2).hex().encode()[:size] for _ in range(2)]


def run_on(loop: str, main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run a coroutine to its end on a new event loop, of uvloop or of asyncio."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if loop == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main())
