"""Assertions on the errors that survivors of a failure raise."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from bringup.testing.job import LocalJob
from bringup.testing.process import ANSWER_TIMEOUT
from bringup.testing.remote_calls import Answer, Call

from .conftest import NUM_CLIENTS

TOLD_OF_DEATH = 5.0
"""Seconds; far above what is measured, below any time-out that could tell of a death instead."""

INTERVAL, TIMEOUT = 0.2, 1.0
FAST: dict[str, Any] = {
    "device_type": "SIM",
    "heartbeat_interval": INTERVAL,
    "heartbeat_timeout": TIMEOUT,
    "initialization_timeout": 15.0,
}
"""Arguments for jobs in which silence is to be noticed soon."""

SLACK = 8.0
"""Seconds that a machine with much else to do may take longer than it should."""


def restart(job: LocalJob, victims: Iterable[int]) -> None:
    """Start clients again once the others have left the job that failed.

    Until then its coordinator refuses them: a restarted client is another incarnation.
    """
    victims = list(victims)
    for call in job.call("shutdown", [c for c in range(job.num_clients) if c not in victims], raise_on_failure=False):
        call.value()
    job.start(victims)


def check_died(answer: Answer, victim: int, since: float, phase: str | None = None) -> None:
    """Check that an error says that `victim` died, and came at once."""
    check_names(answer, victim)
    assert "no heartbeat" not in answer.text
    assert answer.at - since < TOLD_OF_DEATH, f"told after {answer.at - since:.1f} s: {answer.text}"
    if phase is not None:
        assert answer.attributes["phase"] == phase, answer.text


def check_silent(answer: Answer, victim: int, since: float) -> None:
    """Check that an error says that `victim` was silent for too long, and came neither too early nor too late.

    The last heartbeat may be up to an interval older than `since`.
    """
    check_names(answer, victim)
    assert f"no heartbeat for {TIMEOUT:.0f}." in answer.text, answer.text
    assert TIMEOUT - INTERVAL <= answer.at - since < TIMEOUT + SLACK, f"{answer.at - since:.2f} s: {answer.text}"


def check_names(answer: Answer, victim: int) -> None:
    """Check that an error is the one that says that `victim` has failed."""
    assert answer.error == ("CoordinatorLostError" if victim == 0 else "PeerFailedError"), answer.text
    assert answer.attributes["client_id"] == victim, answer.text


def check_said_goodbye(answer: Answer, victim: int, since: float) -> None:
    """Check that an error has the last words of `victim`, also where that hosted the coordinator, and came at once."""
    assert (answer.error, answer.attributes["client_id"]) == ("PeerFailedError", victim), answer.text
    assert answer.at - since < TOLD_OF_DEATH, answer.text


def failure_of(call: Call) -> Answer:
    """Return the failure that `wait_failed` returned, as an answer that raised it."""
    answer = call.answer()
    assert answer.error is None, answer.text
    value: dict[str, Any] = answer.value
    return Answer(None, value["error"], value["text"], value["attributes"], tuple(value["bases"]), answer.at)


def all_but(victim: int) -> list[int]:
    """Return the clients of a shared job without one."""
    return [client_id for client_id in range(NUM_CLIENTS) if client_id != victim]


def wait_until_all_are_heard(job: LocalJob, within: float = 2 * INTERVAL) -> None:
    """Wait until every client knows of signs of life of every other that are younger than `within` seconds."""
    deadline = time.monotonic() + ANSWER_TIMEOUT
    while time.monotonic() < deadline:
        members = [member for call in job.call("facts") for member in call.value()["members"]]
        if all(member["last_heartbeat_age"] < within for member in members):
            return
    raise AssertionError(f"some were not heard again: {members}")


def check_works(job: LocalJob) -> None:
    """Check that barriers and collectives work between all clients."""
    ids = list(range(job.num_clients))
    for call in job.call("barrier", ids, name="it works"):
        assert call.value() is None
    sums = [call.value() for call in job.call("all_reduce", ids, array=[1, 2])]
    assert sums == [[len(ids), 2 * len(ids)]] * len(ids)
