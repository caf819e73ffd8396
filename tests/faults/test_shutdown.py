"""Shutting down: twice, at once, too early, at the end of the interpreter, in a forked child."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from bringup.testing.job import LocalJob

from .assertions import all_but, check_died, check_said_goodbye, check_works


def python(program: str) -> list[str]:
    return [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program]


def test_shut_down_twice_at_once_on_every_client(job: LocalJob) -> None:
    job.initialize(device_type="SIM")
    calls = [*job.call("shutdown"), *job.call("shutdown")]
    assert [call.value() for call in calls] == [None] * 6
    assert [call.value() for call in job.call("shutdown")] == [None] * 3
    job.initialize(device_type="SIM")
    check_works(job)


def test_calls_that_wait_are_over_when_the_job_is(job: LocalJob) -> None:
    job.initialize(device_type="SIM")
    waiting = [
        job.clients[0].call("barrier", name="nobody else comes"),
        job.clients[1].call("all_reduce", array=[1]),
    ]
    watching = job.call("wait_failed")
    for call in job.call("facts"):
        call.value()
    for call in job.call("shutdown"):
        assert call.value() is None
    for call in waiting:
        assert call.error().error in ("NotInitializedError", "PeerFailedError"), call.answer().text
    assert [call.value() for call in watching] == [None] * 3


PROGRAMS = {
    "from two threads": """
import threading, bringup.sync
system = bringup.sync.initialize("SIM")
threads = [threading.Thread(target=system.shutdown) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("over")
""",
    "at the end of the interpreter": """
import atexit, bringup.sync
system = bringup.sync.initialize("SIM")
atexit.register(print, "over")
atexit.register(system.shutdown)
""",
    "of a system that was collected": """
import gc, bringup.sync
bringup.sync.initialize("SIM")
gc.collect()
bringup.sync.current().shutdown()
print("over")
""",
    "in a thread that a thread began": """
import threading, bringup.sync
def main():
    system = bringup.sync.initialize("SIM")
    thread = threading.Thread(target=system.shutdown)
    thread.start()
    thread.join()
    print("over")
thread = threading.Thread(target=main)
thread.start()
thread.join()
""",
}


FRESH = "at the end of the interpreter"


@pytest.mark.parametrize("way", PROGRAMS)
def test_programs_that_shut_down(way: str, tmp_path: Path) -> None:
    with LocalJob(2, command=python(PROGRAMS[way]), cwd=tmp_path, fork=way != FRESH) as job:
        job.start()
        assert job.wait() == {0: 0, 1: 0}
        assert [(client.output, client.log) for client in job.clients.values()] == [("over\n", "")] * 2


TOO_EARLY = """
import sys, threading, bringup, bringup.sync
thread = threading.Thread(target=bringup.sync.initialize, args=("SIM",), daemon=True)
thread.start()
while True:
    try:
        bringup.sync.current().shutdown()
    except bringup.NotInitializedError as error:
        if "phase rendezvous" in str(error):
            print(error)
            break
sys.exit(5)
"""


@pytest.mark.parametrize("victim", [0, 1])
def test_during_initialize_there_is_nothing_to_shut_down_and_the_end_of_the_program_is_told(
    job: LocalJob, victim: int
) -> None:
    waiting = job.clients[1 - victim].call("initialize", device_type="SIM")
    if victim == 1:
        job.clients[0].call("reach", phases=["rendezvous"]).value()
    (early,) = job.start([victim], command=python(TOO_EARLY))
    assert early.wait() == 5
    assert "initialize() has not returned yet" in early.output
    if victim == 1:
        failure = waiting.error()
        check_said_goodbye(failure, victim, time.monotonic())
        assert "without shutdown()" in failure.text


FORKS = """
import os, sys, bringup, bringup.sync
system = bringup.sync.initialize("SIM")
system.barrier("all are up")
child = os.fork()
if child == 0:
    {in_child}
_, status = os.waitpid(child, 0)
print("child", os.waitstatus_to_exitcode(status), flush=True)
system.barrier("after the child")
assert system.all_reduce([1]).tolist() == [3]
system.shutdown()
"""

IN_CHILD = {
    "shuts down and exits": ("system.shutdown(); sys.exit(0)", 0),
    "leaves a with block": ("with system: pass\n    os._exit(0)", 0),
    "raises out of a with block": ("with system: raise ZeroDivisionError", 1),
    "exits": ("sys.exit(3)", 3),
    "raises": ("raise ZeroDivisionError", 1),
    "is ended by SIGTERM": ("os.kill(os.getpid(), 15)", -15),
    "asks for the system": (
        "\n    try: bringup.current()\n    except bringup.NotInitializedError: sys.exit(0)\n    sys.exit(1)",
        0,
    ),
}


@pytest.mark.parametrize("what", IN_CHILD)
def test_a_forked_child_has_no_part_in_the_job(job: LocalJob, what: str) -> None:
    in_child, status = IN_CHILD[what]
    (forks,) = job.start([1], command=python(FORKS.format(in_child=in_child)))
    others = all_but(1)
    for call in job.call("initialize", others, device_type="SIM"):
        call.value()
    failed = job.call("wait_failed", others)
    for name in ("all are up", "after the child"):
        assert [call.value() for call in job.call("barrier", others, name=name)] == [None, None]
    assert [call.value() for call in job.call("all_reduce", others, array=[1])] == [[3], [3]]
    assert [call.value() for call in job.call("shutdown", others)] == [None, None]
    assert forks.wait() == 0, forks.describe()
    assert forks.output == f"child {status}\n"
    assert [call.value() for call in failed] == [None] * 2


@pytest.mark.parametrize("victim", [0, 2])
def test_a_client_that_dies_while_the_others_wait_for_it_to_leave_holds_them_up_no_longer(
    job: LocalJob, victim: int
) -> None:
    job.initialize(device_type="SIM", shutdown_timeout=60.0)
    leavers = all_but(victim)
    leaving = job.call("shutdown", leavers)
    for call in job.call("reach", leavers, phases=["leaving"]):
        call.value()
    killed_at = time.monotonic()
    job.clients[victim].kill()
    for call in leaving:
        check_died(call.error(), victim, killed_at)
    for call in job.call("shutdown", leavers, raise_on_failure=False):
        assert call.value() is None
    for client_id in leavers:
        job.clients[client_id].wait_for("leaves a job that has failed")
