"""This client's part of the preemption agreement, for callers on any thread."""

from __future__ import annotations

import concurrent.futures
import itertools
import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

from ...transport.wire.messages import PreemptionNotice, StepQuery, StepReply, SyncPoint
from ..machines.preemption import NO_STEP, PointAnswered, PreemptionPoint

_log = logging.getLogger("bringup")


class Preemption:
    """Calls of `reached_preemption_point`: without a notice, each costs a lock and a few comparisons.

    Args:
        client_id: of this client.
        send: sends a message to the coordinator; called on any thread.
        waiting: a context for calls of the program that wait for other clients.

    Attributes:
        is_used: whether the program asks for preemption points.
    """

    def __init__(
        self,
        client_id: int,
        send: Callable[[PreemptionNotice | StepReply], None],
        waiting: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._point = PreemptionPoint(client_id)
        self._send = send
        self._waiting = waiting
        # Of the reentrant kind: the handler of a signal announces, and may have interrupted whoever holds it.
        self._lock = threading.RLock()
        self._tickets = itertools.count(1)
        self._held: dict[int, concurrent.futures.Future[bool]] = {}
        self._error: Callable[[], BaseException] | None = None
        self.is_used = False

    def reached(self, step: int) -> concurrent.futures.Future[bool] | bool:
        """Take in a step of the program; returns whether to save now, or a future of that."""
        self.is_used = True
        with self._lock:
            if self._error is not None:
                raise self._error()
            ticket = next(self._tickets)
            effects = self._point.reached(ticket, step)
            for effect in effects:
                if isinstance(effect, StepReply):
                    self._send(effect)
                elif effect.ticket == ticket:
                    return effect.is_reached
            future: concurrent.futures.Future[bool] = concurrent.futures.Future()
            self._held[ticket] = future
        wait = ExitStack()
        wait.enter_context(self._waiting())
        future.add_done_callback(lambda _: wait.close())
        future.add_done_callback(lambda done: self._forget(ticket) if done.cancelled() else None)
        return future

    def announce(self, deadline_in: float, reason: str) -> None:
        """Give notice that this client will be taken in `deadline_in` seconds."""
        with self._lock:
            notices = self._point.announce(deadline_in, reason)
        for notice in notices:
            self._send(notice)

    def take(self, message: StepQuery | SyncPoint) -> None:
        """Take in a message of the coordinator."""
        if isinstance(message, SyncPoint):
            point = f"all save at step {message.step}" if message.step != NO_STEP else "there is no step to save at"
            _log.warning("%s: %s", point, message.reason)
        with self._lock:
            effects = self._point.asked(message) if isinstance(message, StepQuery) else self._point.point_set(message)
            settled = [(self._held.pop(e.ticket, None), e) for e in effects if isinstance(e, PointAnswered)]
        for effect in effects:
            if isinstance(effect, StepReply):
                self._send(effect)
        for future, answer in settled:
            if future is not None and future.set_running_or_notify_cancel():
                future.set_result(answer.is_reached)

    def end(self, error: Callable[[], BaseException]) -> None:
        """End all calls, pending and future, with an exception that `error` makes. Idempotent."""
        with self._lock:
            if self._error is not None:
                return
            self._error = error
            held, self._held = self._held, {}
        for future in held.values():
            if future.set_running_or_notify_cancel():
                future.set_exception(error())

    def _forget(self, ticket: int) -> None:
        with self._lock:
            self._held.pop(ticket, None)
            self._point.cancel(ticket)
