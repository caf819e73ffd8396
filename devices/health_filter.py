"""Hysteresis for the results of health checks. Pure."""

from __future__ import annotations

from .base import Health

_CONFIRMATION_INTERVAL = 1.0
"""Seconds between two checks that are to confirm a change: a defect is known soon, whatever the interval."""


class HealthFilter:
    """Turns results of health checks into changes of health: one bad check is no defect, one good check no repair.

    The devices are healthy at first: `start` has checked them. They become unhealthy after a number of bad checks in a
    row, or after one whose finding is permanent, and healthy after a number of good ones in a row. What flaps faster
    than that changes nothing.

    Args:
        unhealthy_after: bad checks in a row that make devices unhealthy, 1 or more.
        healthy_after: good checks in a row that make them healthy, 1 or more.
    """

    def __init__(self, unhealthy_after: int = 3, healthy_after: int = 5) -> None:
        assert unhealthy_after >= 1
        assert healthy_after >= 1
        self._needed = {False: unhealthy_after, True: healthy_after}
        self._state = Health(ok=True)
        # Results in a row that speak against the state, and how often such a row has broken off.
        self._against = 0
        self._relapses = 0

    def observe(self, result: Health) -> Health | None:
        """Take the result of a check; returns the new health where it changes, else `None`."""
        if result.ok is self._state.ok:
            self._relapses += self._against > 0
            self._against = 0
            return None
        self._against += 1
        if self._against < self._needed[result.ok] and not (result.permanent and not result.ok):
            return None
        self._state = Health(result.ok, self._text(result), result.permanent)
        self._against = self._relapses = 0
        return self._state

    def pause(self, interval: float) -> float:
        """Return the seconds until the next check.

        Args:
            interval: the time between two checks while nothing changes; cut short where a change is to be confirmed.
        """
        return min(interval, _CONFIRMATION_INTERVAL) if self._against else interval

    def _text(self, result: Health) -> str:
        if result.ok:
            was = f", after: {self._state.detail}" if self._state.detail else ""
            return f"healthy again for {_checks(self._against)}{was}"
        found = result.detail or "the health check failed, and did not say why"
        if result.permanent:
            return found
        times = f", and came and went {_times(self._relapses)} before" if self._relapses else ""
        return f"{found} (in {_checks(self._against)} in a row{times})"


def _checks(count: int) -> str:
    return "1 check" if count == 1 else f"{count} checks"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
