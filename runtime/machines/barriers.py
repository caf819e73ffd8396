"""Barriers by name: who has come to which round, and whom it waits for."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Barriers", "Released", "TimedOut", "Waiter"]


@dataclass(frozen=True, slots=True)
class Waiter:
    """A client that waits; `ticket` is its own name for the call."""

    client_id: int
    ticket: int


@dataclass(frozen=True, slots=True)
class Released:
    """All have come."""

    waiters: tuple[Waiter, ...]


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The round's deadline passed before `missing` came."""

    waiters: tuple[Waiter, ...]
    missing: tuple[int, ...]


@dataclass(slots=True)
class _Round:
    waiters: dict[int, Waiter] = field(default_factory=dict)
    deadline: float | None = None
    failed: TimedOut | None = None


@dataclass(slots=True)
class _Barrier:
    """A client's n-th call belongs to round n, so a slow client and a fast one never meet in the wrong round."""

    entered: dict[int, int] = field(default_factory=dict)
    rounds: dict[int, _Round] = field(default_factory=dict)


class Barriers:
    """All barriers of a job; a name is forgotten when nobody is in one of its rounds."""

    def __init__(self, num_clients: int) -> None:
        self._num_clients = num_clients
        self._barriers: dict[str, _Barrier] = {}

    def enter(self, name: str, waiter: Waiter, timeout: float, now: float) -> Released | TimedOut | None:
        """Let `waiter` come to barrier `name`; `timeout` in seconds, 0 for none.

        Returns:
            Whom to release when it was the last to come, its own failure when its round has failed already.
        """
        barrier = self._barriers.setdefault(name, _Barrier())
        number = barrier.entered.get(waiter.client_id, 0)
        barrier.entered[waiter.client_id] = number + 1
        this_round = barrier.rounds.setdefault(number, _Round())
        this_round.waiters[waiter.client_id] = waiter
        outcome: Released | TimedOut | None = None
        if this_round.failed is not None:
            outcome = TimedOut((waiter,), this_round.failed.missing)
        elif timeout > 0:
            due = now + timeout
            this_round.deadline = due if this_round.deadline is None else min(this_round.deadline, due)
        if len(this_round.waiters) == self._num_clients:
            outcome = outcome or Released(tuple(this_round.waiters.values()))
            del barrier.rounds[number]
        if not barrier.rounds:
            del self._barriers[name]
        return outcome

    def expire(self, now: float) -> list[TimedOut]:
        """Fail the rounds whose deadline has passed."""
        failures: list[TimedOut] = []
        for barrier in self._barriers.values():
            for this_round in barrier.rounds.values():
                if this_round.deadline is not None and this_round.deadline <= now:
                    missing = tuple(c for c in range(self._num_clients) if c not in this_round.waiters)
                    this_round.failed = TimedOut(tuple(this_round.waiters.values()), missing)
                    this_round.deadline = None
                    failures.append(this_round.failed)
        return failures

    def deadline(self) -> float | None:
        """Return the earliest deadline of a round."""
        return min(
            (r.deadline for b in self._barriers.values() for r in b.rounds.values() if r.deadline is not None),
            default=None,
        )
