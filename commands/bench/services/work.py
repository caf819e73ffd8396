"""The parts of the clients of `bringup bench services`: timed calls with checked answers, and meetings of a crowd.

A crowd is many clients in one process: tasks, or threads for libraries whose calls block.
"""

from __future__ import annotations

import asyncio
import random
import resource
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from .figures import LARGE_BYTES, SMALL_BYTES, Task, median, meeting_of

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    from ..worker import Assignment

_LARGE_SHARE = 10
_WARM_UP_SHARE = 10
_SEED = 4
_SHOWN_BYTES = 20
_FILES_EACH = 4
_FILES_APART = 256

Meet = Callable[[int], None]
"""Comes to a round of the barrier, by its number, and blocks until all have."""

_KEPT: list[Meet] = []
"""The clients of a crowd, until their process is killed: the end of one may wait for the end of the others."""


class Face(Protocol):
    """One client's view of a library's services. The calls of a blocking library block the loop."""

    async def get(self, key: str) -> bytes:
        """Return the value of a key."""
        ...

    async def set(self, key: str, value: bytes) -> None:
        """Set a key, or overwrite it; returns when the store has it."""
        ...

    async def meet(self, name: str, number: int) -> None:
        """Wait until all clients of the run have come to this round of a barrier."""
        ...

    def blocking(self) -> Face | None:
        """The same services by blocking calls, where the library has both kinds."""
        ...


@dataclass(frozen=True, slots=True)
class Orders:
    """The orders of a trial's clients.

    Attributes:
        task: The kind of run.
        calls: Timed calls of 100 bytes.
        rounds: Rounds of a barrier.
        loop: `uvloop` or `asyncio`: the event loop of the clients' own calls.
    """

    task: Task
    calls: int
    rounds: int
    loop: str

    @classmethod
    def of(cls, assignment: Assignment) -> Orders:
        """Read a client's assignment."""
        orders = assignment.orders
        return cls(Task(orders["kind"], orders["clients"]), orders["calls"], orders["rounds"], orders["loop"])


async def take_part(face: Face, assignment: Assignment) -> dict[str, Any]:
    """Do this client's part of a trial; returns its measurements for `evaluate`."""
    orders = Orders.of(assignment)
    return await _PARTS[orders.task.kind](face, assignment.client_id, orders)


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
    """All clients but the host of the services get one key at once."""
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
    """Times sets, then gets, of one client while no other calls.

    Attributes:
        samples: The median of a call, in seconds, by key.
        wrong: A text for each answer that differs from the value set.
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
    """Make calls one after the other; returns their median, in seconds, and the unexpected answers.

    A right answer is dropped at once: to keep them all would make every call fetch memory from the system.
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
    """Two different values of `size` bytes each: hexadecimal text, which a store may compress."""
    rng = random.Random(_SEED)  # noqa: S311 - to be repeated
    return [rng.randbytes((size + 1) // 2).hex().encode()[:size] for _ in range(2)]


def run_on(loop: str, main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run a coroutine to its end on a new event loop, of uvloop or of asyncio."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if loop == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main())


def allow_files(clients: int) -> None:
    """Raise the limit on open files to the clients' need, as far as this process may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = clients * _FILES_EACH + _FILES_APART
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


def crowd_result(began: float, stamps: Sequence[Sequence[tuple[float, float]]]) -> dict[str, Any]:
    """The measurements of a crowd, for `evaluate`.

    Args:
        began: The time at which the first client began to connect.
        stamps: The times at which each client came to each round, and left it, `[clients][rounds]`; they connect in
            the first.
    """
    entered, left = ([[stamp[side] for stamp in one[1:]] for one in stamps] for side in (0, 1))
    barrier, wrong = meeting_of(entered, left)
    connect = max(one[0][1] for one in stamps) - began
    return {"samples": {"barrier of tasks": barrier, "connect": connect}, "wrong": wrong}


def meet_in_threads(clients: int, rounds: int, connect: Callable[[int], Meet]) -> dict[str, Any]:
    """Run each client of a crowd in a thread, which connects, and meets the others over and over.

    Args:
        clients: Their number.
        rounds: The number of meetings after the first.
        connect: Connects a client and meets the others for the first time; returns a call for further meetings.
    """
    gate = threading.Barrier(clients + 1)
    stamps: list[list[tuple[float, float]]] = [[] for _ in range(clients)]
    errors: list[BaseException] = []

    def live(client_id: int) -> None:
        gate.wait()
        try:
            came = time.monotonic()
            meet = connect(client_id)
            stamps[client_id].append((came, time.monotonic()))
            _KEPT.append(meet)
            for number in range(rounds):
                came = time.monotonic()
                meet(number)
                stamps[client_id].append((came, time.monotonic()))
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is awaited
            errors.append(error)

    threads = [threading.Thread(target=live, args=(client_id,), daemon=True) for client_id in range(clients)]
    for thread in threads:
        thread.start()
    gate.wait()
    began = time.monotonic()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return crowd_result(began, stamps)
