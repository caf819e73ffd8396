"""The watch of a group's clients over each other, so that the coordinator need not hear each of them.

Theory of operation. Once an interval the leader of a group begins a wave. Each client passes it on to its neighbour as
soon as it comes, and adds the step of its program; when it is back, all of them were alive a moment ago, which the
leader reports with its heartbeat. The others send none, but for a few that test their own connection.

Whoever has missed waves, or is told by one that none has come around, sends heartbeats itself until they are whole
again. So a client that is silent makes its group heard directly, and is itself the only one that is not. A client that
the coordinator does not answer, though it answers the leader, passes no wave on: nobody is to vouch for it.

The wave carries what the leader hears of the coordinator to clients that do not hear it themselves.
"""

from __future__ import annotations

import math

from msgspec.structs import replace

from ....transport.wire.messages import Beat, GroupPlace, GroupReport, StepMark
from ..pacing import test_period
from .config import PeerConfig
from .coordinator_watch import CoordinatorWatch
from .heartbeats import Heartbeats
from .job_view import JobView

_LATEST_REPORT = 0.5
"""Of an interval, after which the leader's heartbeat waits no longer for the wave: most are back in milliseconds."""

_STEPS_MAX = 16
"""Clients in a wave, as in the coordinator's answers: only those behind are looked for."""


Place = tuple[int, float, float]
"""Of a program: see `place_of`."""


class GroupWatch:
    """One client's part in the waves of its group, from when its links stand.

    Args:
        place: the group.
        config: of this client.
        heartbeats: its own.
        coordinator: its watch over the coordinator.
        view: its view of the job.
        now: the time.
    """

    def __init__(
        self,
        place: GroupPlace,
        config: PeerConfig,
        heartbeats: Heartbeats,
        coordinator: CoordinatorWatch,
        view: JobView,
        now: float,
    ) -> None:
        interval, timeout = config.heartbeat_interval, config.heartbeat_timeout
        self._client_id = config.client_id
        self._leads = config.client_id == place.first
        self._heartbeats = heartbeats
        self._coordinator = coordinator
        self._view = view
        self._interval = interval
        self._next_wave = now
        self._number = 0
        self._begun: dict[int, float] = {}
        self._returned: tuple[float, Beat] | None = None
        self._report_due = self._next_wave + _LATEST_REPORT * interval
        self._complete_at = now if not self._leads else None  # that is when the watch began, at first
        self._came_at = now
        self._is_silent = True
        self._spoke_at = now
        self._test_period = test_period(config.num_clients, timeout)
        self._first_test = now + self._test_period * config.client_id / config.num_clients

    # Waves.

    def wave_due(self) -> float | None:
        """Return when to begin a wave; `None` where another client does."""
        return self._next_wave if self._leads else None

    def told_when(self, wave_in: float, now: float) -> None:
        """Take in when the coordinator has all leaders begin waves; 0 where it does not say."""
        if wave_in > 0.0:
            self._next_wave = now + min(wave_in, self._interval)

    def begin(self, place: Place, now: float) -> Beat:
        """Begin a wave, which tells the place of this client's program."""
        is_late = now - self._next_wave >= self._interval
        self._next_wave = (now if is_late else self._next_wave) + self._interval
        self._number += 1
        self._begun[self._number] = now
        self._report_due = now + _LATEST_REPORT * self._interval
        answered_at = self._heartbeats.answered_at
        beat = Beat(
            self._number,
            self._coordinator.age(now),
            -1.0 if self._complete_at is None else now - self._complete_at,
            answered_age=-1.0 if answered_at is None else now - answered_at,
        )
        return self._marked(self._view.tell(beat, now), place)

    def take(self, beat: Beat, place: Place, now: float) -> Beat | None:
        """Take in a wave; returns it as it goes on, unless it ends here."""
        if self._leads:
            self._come_around(beat, now)
            return None
        self._came_at = now
        if beat.complete_age >= 0.0:
            self._complete_at = now - beat.complete_age
        assert self._complete_at is not None
        is_informed = self._view.told_by(beat, now)
        self._coordinator.told(beat.coordinator_age, beat.answered_age, now)
        was_silent = self._is_silent
        self._is_silent = (
            is_informed
            and now - self._complete_at <= self._coordinator.fallback_patience
            and not self._coordinator.is_doubted
        )
        if was_silent and not self._is_silent:
            self._spoke_at = now
        # Whoever passes it on says that the coordinator can hear this client, too.
        return None if self._coordinator.is_doubted else self._marked(beat, place)

    def _come_around(self, beat: Beat, now: float) -> None:
        began = self._begun.get(beat.number)
        if began is not None:
            self._begun = {number: at for number, at in self._begun.items() if number > beat.number}
            self._complete_at, self._returned = began, (began, beat)
            if not self._begun and self._report_due < self._next_wave:
                self._report_due = now  # the heartbeat has waited for it

    # Heartbeats.

    def report(self, now: float) -> tuple[GroupReport, ...]:
        """Return the report of a heartbeat that is sent now: the leader's, on the last wave that came around, once."""
        if not self._leads and now >= self._came_at + self._coordinator.fallback_patience:
            self._coordinator.not_told(self._came_at)
        if self._returned is not None or now >= self._report_due:
            self._report_due = self._next_wave + _LATEST_REPORT * self._interval
        if self._returned is None:
            return ()
        (began, beat), self._returned = self._returned, None
        return (GroupReport(now - began, beat.steps, beat.front),)

    def heartbeat_due(self, sent_at: float) -> float:
        """Return when the next heartbeat to the coordinator is due; the last was sent at `sent_at`."""
        if self._leads:
            return self._report_due
        regular = sent_at + self._coordinator.interval
        if not self._is_silent:
            return max(regular, self._spoke_at)  # never in the past: it would look as if this client had not run
        wave_missed = self._came_at + self._coordinator.fallback_patience
        doubt = self._coordinator.doubt_due()
        speaks_at = wave_missed if doubt is None else min(wave_missed, doubt)
        return min(self._test_due(sent_at), max(regular, speaks_at))

    def _test_due(self, sent_at: float) -> float:
        """Return the time of the first test of this client's connection after its heartbeat at `sent_at`.

        It comes with a wave: client 0 is busy with the reports of leaders then.
        """
        num_before = max(math.floor((sent_at - self._first_test) / self._test_period) + 1, 0)
        due = self._first_test + num_before * self._test_period
        return due + (self._came_at - due) % self._interval

    def _marked(self, beat: Beat, place: Place) -> Beat:
        return beat if place[0] < 0 else with_mark(beat, StepMark(self._client_id, *place))


def with_mark(beat: Beat, mark: StepMark) -> Beat:
    """Return a wave as it leaves a client the program of which is at `mark`.

    Of the clients of which the wave tells one is the busiest: it may have stalled, wherever it is.
    """
    ordered = sorted((*beat.steps, mark), key=lambda other: (other.step, -other.age))
    behind = ordered[:_STEPS_MAX]
    if len(ordered) > _STEPS_MAX:
        busiest = max(ordered, key=lambda other: other.busy)
        if busiest not in behind:
            behind[-1] = busiest
    front = max((*beat.front, mark), key=lambda other: other.step)
    return replace(beat, steps=tuple(behind), front=(front,))
