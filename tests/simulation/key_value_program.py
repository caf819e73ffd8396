"""Calls of a program on the key-value store: one after the other, and watches."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from bringup.transport.wire.services import (
    Changes,
    ClientIds,
    Items,
    ListLive,
    MoreChanges,
    Refusal,
    ServiceReply,
    WatchKeys,
)

from ..lib.kv_operations import draw_operation, request_of, result_of
from ..lib.linearizability import Get, Operation
from . import bounds

if TYPE_CHECKING:
    from .job import Job
    from .process import Process
    from .scenario import Traffic
    from .store_oracle import Watch

_CANCELLED = 0.05
"""The share of calls, and of watches after each message, that are cancelled."""

_LIVE_ASKED = 0.1
"""The share of calls that ask who is alive."""


class KeyValueProgram:
    """One process's calls; each begins some time after the former has ended."""

    def __init__(self, process: Process, traffic: Traffic) -> None:
        assert process.job is not None
        self._process = process
        self._job: Job = process.job
        self._pause = traffic.pause
        self._left = traffic.calls.get(process.client_id, 0)
        self._prefixes = traffic.watches.get(process.client_id, ())
        self._listed: dict[str, bytes] = {}

    def begin(self) -> None:
        """Begin to watch and to call."""
        for prefix in self._prefixes:
            self._watch(prefix)
        self._after_a_pause()

    def _after_a_pause(self) -> None:
        if self._left:
            self._left -= 1
            process = self._process
            process.later(process.world.rng.uniform(0.0, self._pause), self._call)

    # Calls.

    def _call(self) -> None:
        process, rng = self._process, self._process.world.rng
        if process.is_over or process.wants_to_leave:
            return
        if rng.random() < _LIVE_ASKED:
            self._ask_for_the_live()
            return
        operation = draw_operation(rng)
        number = self._job.store.history.invoke(process.name, operation)
        open_call = [number]
        ticket = self._job.services.ask(
            process, partial(request_of, operation=operation), partial(self._answered, open_call, operation)
        )
        if isinstance(operation, Get):
            process.later(rng.expovariate(1.0 / (5 * self._pause + 0.01)), self._cancel, ticket, open_call)
        else:
            bounds.call_was_made(process, f"{operation}", lambda: not open_call)
            if rng.random() < _CANCELLED:
                process.later(process.world.network.delay(), self._cancel, ticket, open_call)

    def _answered(self, open_call: list[int], operation: Operation, reply: ServiceReply) -> None:
        if isinstance(reply, Items):
            self._listed.update((item.key, item.value) for item in reply.items)
            if not reply.is_last:
                return
        listed, self._listed = self._listed, {}
        number = open_call.pop()
        if not (isinstance(operation, Get) and isinstance(reply, Refusal)):
            # A get that is refused, as nobody is left who could set its key, has seen nothing.
            self._job.store.history.complete(number, result_of(operation, reply, listed))
        self._after_a_pause()

    def _cancel(self, ticket: int, open_call: list[int]) -> None:
        if open_call and not self._process.is_over:
            open_call.clear()
            self._listed.clear()
            self._job.services.cancel(self._process, ticket)
            self._after_a_pause()

    def _ask_for_the_live(self) -> None:
        process, waits = self._process, [True]

        def answered(reply: ServiceReply) -> None:
            assert isinstance(reply, ClientIds), f"{process.name} asks who is alive, and is told {reply}"
            waits.clear()
            self._after_a_pause()

        self._job.services.ask(process, ListLive, answered)
        bounds.call_was_made(process, "the question who is alive", lambda: not waits)

    # Watches.

    def _watch(self, prefix: str) -> None:
        if self._process.is_over or self._process.wants_to_leave:
            return
        watch = self._job.store.watch(self._process, prefix)
        watch.ticket = self._job.services.ask(
            self._process, lambda ticket: WatchKeys(ticket, prefix), partial(self._told, watch)
        )

    def _told(self, watch: Watch, reply: ServiceReply) -> None:
        process = self._process
        assert isinstance(reply, Changes), f"{process.name} watches {watch.prefix!r}, and is told {reply}"
        watch.tell(reply)
        if process.world.rng.random() < _CANCELLED:
            self._job.services.cancel(process, watch.ticket)
            watch.end()
            process.later(process.world.rng.uniform(0.0, self._pause), self._watch, watch.prefix)
        else:
            self._job.services.call(process, MoreChanges(watch.ticket, len(reply.changes)))
