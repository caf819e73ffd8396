"""Clients that leave while others wait in some call: nobody waits for them, and the job can still end in order."""

from __future__ import annotations

import re
import sys

import pytest

from bringup.testing.job import LocalJob
from bringup.testing.remote_calls import Answer

from .assertions import all_but

LEAVER = 1


def check_left(failure: Answer, leaver: int) -> None:
    assert (failure.error, failure.attributes["client_id"], failure.attributes["phase"]) == (
        "PeerFailedError",
        leaver,
        "leaving",
    )
    assert f"client {leaver} (127.0.0.1:" in failure.text
    assert "is leaving the job (shutdown)" in failure.text


@pytest.mark.parametrize("leaver", [0, LEAVER])
def test_whoever_waits_for_one_who_leaves_is_told_at_once_and_the_job_ends_in_order(job: LocalJob, leaver: int) -> None:
    job.initialize(device_type="SIM", shutdown_timeout=60.0)
    others = all_but(leaver)
    for _ in range(2):
        for call in job.call("barrier", name="b"):
            call.value()
    waiting = job.call("barrier", others, name="b")
    of_two = job.clients[others[0]].call("barrier", name="of two", client_ids=others)
    getting = job.clients[others[0]].call("get_key", key="of the other")
    waiting_in_ring = [*job.call("all_reduce", others, array=[1]), *job.call("all_reduce", others, array=[1])]
    for call in job.call("live_clients", others):  # which come after those, on the same way
        call.value()
    leaving = job.clients[leaver].call("shutdown")
    for call in waiting:
        failure = call.error()
        check_left(failure, leaver)
        assert f"after round 2; clients {'1-2' if leaver == 0 else '0, 2'} wait in round 3" in failure.text
    for call in waiting_in_ring:
        failure = call.error()
        assert (failure.error, failure.attributes["client_id"]) == ("PeerFailedError", leaver)
        assert f"client {leaver} (" in failure.text
        assert re.search(r"is leaving the job \(shutdown\); client \d waits in collective [12]\.", failure.text), (
            failure.text
        )
    for call in job.call("wait_leaving", others):
        assert call.value() == [leaver]
    # What does not need it goes on.
    job.clients[others[1]].call("barrier", name="of two", client_ids=others).value()
    assert of_two.value() is None
    job.clients[others[1]].call("set_key", key="of the other", value="1").value()
    assert getting.value() == "1"
    for call in job.call("barrier", others, name="later"):
        check_left(call.error(), leaver)
    for call in job.call("all_reduce", others, array=[1]):
        assert call.error().attributes["phase"] == "leaving"
    assert [call.value() for call in job.call("shutdown", others)] == [None, None]
    assert leaving.value() is None


SERVICE = """
import asyncio, signal, bringup

async def handle(system):  # a request that is served with the help of all clients
    try:
        await system.barrier("request")
    except bringup.PeerFailedError as error:
        print(error.phase, error.client_id != system.client_id)

async def main():
    stop = asyncio.Event()
    async with bringup.initialize("SIM", shutdown_timeout=60.0) as system:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        request = asyncio.ensure_future(handle(system)) if system.client_id == 1 else None
        await system.live_clients()
        print("serving", flush=True)
        await stop.wait()
        if request is not None:  # as aiohttp does: requests that have begun are served to their end
            await request
    print("in order")

asyncio.run(main())
"""


def test_a_service_whose_clients_are_all_ended_while_a_request_waits_ends_in_order() -> None:
    with LocalJob(3, command=[sys.executable, "-c", SERVICE], fork=True) as job:
        for client in job.start():
            client.wait_for("serving")
        for client in job.clients.values():
            client.terminate()
        assert job.wait() == {0: 0, 1: 0, 2: 0}
        assert job.clients[1].output == "serving\nleaving True\nin order\n"


UNEVEN = """
import bringup.sync
with bringup.sync.initialize("SIM") as system:
    system.barrier("all are up")
    {what}
"""

UNCAUGHT = {
    "barrier": "for _ in range(7 + 3 * (system.client_id != 1)): system.barrier('b')",
    "all_reduce": "for _ in range(7 + 3 * (system.client_id != 1)): system.all_reduce([1.0] * 40_000)",
    "live": "for _ in range(7 + 3 * (system.client_id != 1)):\n        with system.live(): pass",
    "get": "system.kv.get('never') if system.client_id == 0 else None",
}
SAYS = {
    "barrier": "barrier 'b': client 1 (127.0.0.1:",
    "all_reduce": "is leaving the job (shutdown) after collective 7; client 0 waits in collective 8.",
    "live": "live(): client 1 (127.0.0.1:",
    "get": "all other clients are leaving the job",
}


@pytest.mark.parametrize("call", UNCAUGHT)
def test_a_program_that_does_not_expect_it_fails_and_with_it_the_one_that_left(call: str) -> None:
    with LocalJob(2, command=[sys.executable, "-c", UNEVEN.format(what=UNCAUGHT[call])], fork=True) as job:
        job.start()
        assert job.wait() == {0: 1, 1: 1}
        assert SAYS[call] in job.clients[0].log
        assert "Moreover" not in job.clients[0].log
        assert "client 0 (" in job.clients[1].log
        assert SAYS[call] in job.clients[1].log


CLOSED_LOOP = """
import asyncio, bringup, bringup.sync
with bringup.sync.initialize("SIM") as system:
    def leave_a_call_behind():
        loop = asyncio.new_event_loop()
        async def main():
            other = bringup.System(system._client)
            call = asyncio.ensure_future(other.barrier("b"))
            await other.live_clients()
        loop.run_until_complete(main())
        loop.close()
    if system.client_id == {ghost}:
        leave_a_call_behind()
    system.barrier("all have met")
    def look_in():  # the second to come to that round is told of its end
        try: system.barrier("b", timeout=0)
        except bringup.BarrierTimeoutError as error: print(list(error.missing))
    if system.client_id != {ghost}:
        look_in()
    system.barrier("one has looked in")
    if system.client_id == {ghost}:
        look_in()
    system.barrier("b")
"""


@pytest.mark.parametrize("ghost", [0, 1])
def test_a_barrier_is_left_by_a_loop_that_is_closed(ghost: int) -> None:
    with LocalJob(2, command=[sys.executable, "-c", CLOSED_LOOP.format(ghost=ghost)], fork=True) as job:
        job.start()
        assert job.wait() == {0: 0, 1: 0}, job.clients[ghost].describe()
        assert [client.output for client in job.clients.values()] == [f"[{ghost}]\n"] * 2
