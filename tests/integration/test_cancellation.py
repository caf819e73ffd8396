"""`initialize()` can be cancelled at any point, and leaves nothing behind."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from bringup.testing.job import Call, LocalClient, LocalJob


def test_cancelled_while_the_coordinator_is_not_there() -> None:
    with LocalJob(2) as job:
        job.start()
        before = job.resources()
        client = job.clients[1]
        call = client.call("initialize", device_type="SIM")
        client.call("reach", phases=["connect"]).value()
        client.call("cancel", number=call.number).value()
        assert call.error().error == "CancelledError"
        assert job.resources_beyond(before) == [{}] * 2
        assert client.call("initialize", device_type="SIM", num_clients=1, jobs="127.0.0.1:1", client_id=0).value()


@pytest.mark.parametrize("victim", [0, 1])
def test_cancelled_while_others_are_missing(victim: int) -> None:
    other = 1 - victim
    with LocalJob(3) as job:
        job.start()
        calls = job.call("initialize", [0, 1], device_type="SIM")
        for reached in job.call("reach", [0, 1], phases=["rendezvous"]):
            reached.value()
        job.clients[victim].call("cancel", number=calls[victim].number).value()
        assert calls[victim].error().error == "CancelledError"
        told = calls[other].error()
        assert told.error == "PeerFailedError"
        assert told.attributes["client_id"] == victim
        assert "initialize() was cancelled" in told.text
        facts = job.initialize(device_type="SIM")
        assert facts[0]["core_ids"] == facts[2]["core_ids"]


@pytest.mark.parametrize("victim", [0, 2])
def test_cancelled_while_devices_come_up(victim: int) -> None:
    with LocalJob(3, environment={"BRINGUP_SIM_FAULT": f"{victim}:slow:60"}) as job:
        job.start()
        calls = job.call("initialize", device_type="SIM", heartbeat_interval=0.1, heartbeat_timeout=5.0)
        for reached in job.call("reach", phases=["devices", "ring", "merge"]):
            reached.value()
        job.clients[victim].call("cancel", number=calls[victim].number).value()
        assert calls[victim].error().error == "CancelledError"
        for client_id, call in enumerate(calls):
            if client_id != victim:
                error = call.error()
                assert error.error == "PeerFailedError"
                assert error.attributes["client_id"] == victim
                assert "initialize() was cancelled" in error.text


@pytest.mark.parametrize(("size", "group_size", "rounds"), [(3, 0, 40), (5, 2, 6)])
def test_cancelled_at_any_moment_and_retried_on_the_same_ports(size: int, group_size: int, rounds: int) -> None:
    """The moment is drawn from the whole of a bring-up, so that every phase has its share."""
    rng = random.Random(20)
    options = {"device_type": "SIM", "group_size": group_size}
    with LocalJob(size) as job:
        job.start()
        before = job.resources()
        for _ in range(rounds):
            victim = rng.randrange(size)
            calls = job.call("initialize", **options)
            job.clients[victim].call("cancel_after", number=calls[victim].number, seconds=rng.uniform(0, 0.01 * size))
            with ThreadPoolExecutor(size) as pool:
                persist = partial(_persist, options=options)
                tables = list(pool.map(persist, job.clients.values(), calls))
            assert all(table == tables[0] for table in tables)
            _shut_down(job)
        assert job.resources_beyond(before) == [{}] * size


def _persist(client: LocalClient, call: Call, options: dict[str, Any]) -> list[int]:
    """Do as a supervisor does: bring the client up again when the job failed, at once and on the same ports."""
    for _ in range(5):
        answer = call.answer()
        if answer.error is None:
            core_ids = list(answer.value["core_ids"])
            # The victim may have been cancelled when the job was up for the others.
            answer = client.call("barrier", name="all are up").answer()
            if answer.error is None:
                return core_ids
        assert answer.error in ("CancelledError", "PeerFailedError", "CoordinatorLostError"), answer.text
        call = client.call("initialize", **options)
    raise AssertionError(f"client {client.client_id} did not come up again: {answer.text}")


def _shut_down(job: LocalJob) -> None:
    for call in job.call("shutdown"):
        call.value()
