"""The steps of the clients' programs: who is furthest behind, and who has stalled."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace

from ....transport.wire.messages import GroupReport, Heartbeat, Step
from ..id_ranges import name_ids

_SHOWN_MAX = 16
"""Clients in each answer to a heartbeat: more would cost a large job dear, and only those behind are looked for."""

_SORT_INTERVAL = 0.25
"""Seconds for which one list serves all answers: sorting, and encoding it, costs more than it is worth each time."""


@dataclass(frozen=True, slots=True)
class _Mark:
    step: int
    since: float
    busy: float


class Stragglers:
    """The last step of each client, from its heartbeats; a client that never reports one is not judged.

    Args:
        stall_timeout: seconds at one step after which a client that waits for nobody has stalled; `None` for never.
            Time in which it waited for others counts as progress: where a wait ends, it begins anew.
    """

    def __init__(self, stall_timeout: float | None) -> None:
        self._stall_timeout = stall_timeout
        self._marks: dict[int, _Mark] = {}
        self._fronts: dict[int, Step] = {}
        self._behind: tuple[Step, ...] = ()
        self._sorted_at: float | None = None

    def note(self, client_id: int, beat: Heartbeat, now: float) -> None:
        """Take in a heartbeat."""
        if beat.step >= 0:
            self._marks[client_id] = _Mark(beat.step, now - max(beat.step_age, 0.0), beat.busy)

    def note_group(self, clients: range, report: GroupReport, now: float) -> None:
        """Take in the report on a group: those of its clients that it does not list are further than those it does."""
        for client_id in clients:
            self._marks.pop(client_id, None)
        for mark in report.steps:
            self._marks[mark.client_id] = _Mark(mark.step, now - max(mark.age, 0.0), mark.busy)
        for mark in report.front:
            self._fronts[clients[0]] = Step(mark.client_id, mark.step, mark.age)

    def leaves(self, client_id: int) -> None:
        """Note that a client leaves: from now on it waits for the others."""
        if (mark := self._marks.get(client_id)) is not None:
            self._marks[client_id] = replace(mark, busy=0.0)

    def furthest_behind(self, now: float) -> tuple[Step, ...]:
        """Return the clients that are furthest behind, the last first; up to a quarter of a second old."""
        if not self._marks:
            return ()
        if self._sorted_at is None or now - self._sorted_at > _SORT_INTERVAL:
            self._sorted_at = now
            last = heapq.nsmallest(_SHOWN_MAX, self._marks.items(), key=lambda item: (item[1].step, item[1].since))
            self._behind = tuple(Step(c, mark.step, now - mark.since) for c, mark in last)
        return self._behind

    def stalled(self, *client_ids: int) -> tuple[int, str] | None:
        """Return the culprit and the cause if one of them has stalled; of several, the one furthest behind."""
        timeout = self._stall_timeout
        if timeout is None or all(self._busy(client_id) < timeout for client_id in client_ids):
            return None
        # By what each has said, and not by the time since: what it said meanwhile may be on its way.
        stalled = [(mark, c) for c, mark in self._marks.items() if mark.busy >= timeout]
        mark, culprit = min(stalled, key=lambda item: (item[0].step, item[0].since))
        cause = f"no progress for {mark.busy:.1f} s (stall_timeout={timeout:g} s): {self.describe(culprit)}"
        return culprit, cause

    def _busy(self, client_id: int) -> float:
        mark = self._marks.get(client_id)
        return -1.0 if mark is None else mark.busy

    def describe(self, client_id: int) -> str:
        """Return the step of a client, compared with the others, for a text; empty if it never reported one."""
        mark = self._marks.get(client_id)
        if mark is None:
            return ""
        beside = [c for c, other in self._marks.items() if other.step == mark.step and c != client_id]
        first = max(self._marks.items(), key=lambda item: item[1].step)
        fronts = [(first[1].step, first[0]), *((front.step, front.client_id) for front in self._fronts.values())]
        front, foremost = max(fronts, key=lambda other: other[0])
        text = f"it is at step {mark.step}"
        if beside:
            text += f", as {'is' if len(beside) == 1 else 'are'} {name_ids(beside)}"
        if front > mark.step:
            text += f", {front - mark.step} behind client {foremost}"
        return text
