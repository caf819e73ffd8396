"""Clients that end without `shutdown()`: the others hear why, in words where it could say them, and at once."""

from __future__ import annotations

import signal
import sys
import time

import pytest

from bringup.testing.job import LocalJob

from .assertions import (
    FAST,
    TIMEOUT,
    TOLD_OF_DEATH,
    all_but,
    check_died,
    check_names,
    check_said_goodbye,
    check_works,
    failure_of,
)

UP = """
import asyncio, ctypes, os, signal, sys, threading
import bringup.sync
system = bringup.sync.initialize("SIM")
system.barrier("all are up")
"""

ENDINGS = {
    "the program ends": (UP, "without shutdown()", 0),
    "sys.exit": (UP + "sys.exit(3)", "without shutdown()", 3),
    "sys.exit inside": (UP + "with system: sys.exit(3)", "SystemExit: 3", 3),
    "raises": (UP + "raise ZeroDivisionError('step 12')", "without shutdown()", 1),
    "raises inside": (UP + "with system: raise ZeroDivisionError('step 12')", "ZeroDivisionError: step 12", 1),
    "raises in a coroutine": (
        """
import asyncio, bringup
async def main():
    async with bringup.initialize("SIM") as system:
        await system.barrier("all are up")
        raise ZeroDivisionError("step 12")
asyncio.run(main())
""",
        "ZeroDivisionError: step 12",
        1,
    ),
    "Ctrl-C": (UP + "with system: signal.raise_signal(signal.SIGINT)", "KeyboardInterrupt", -signal.SIGINT),
    "SIGTERM": (UP + "signal.raise_signal(signal.SIGTERM)", "SIGTERM", -signal.SIGTERM),
    "os._exit": (UP + "os._exit(4)", "process died", 4),
    "abort": (UP + "os.abort()", "process died", -signal.SIGABRT),
    "a crash in native code": (UP + "ctypes.string_at(0)", "process died", -signal.SIGSEGV),
}


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


@pytest.mark.parametrize(
    ("ending", "victim"),
    [
        *((ending, 1) for ending in ENDINGS),
        *((ending, 0) for ending in ("the program ends", "raises inside", "os._exit")),
    ],
)
def test_the_others_hear_how_a_program_ended(job: LocalJob, ending: str, victim: int) -> None:
    """Client 0 is an interpreter that was started; the others are forked, and end as one does."""
    program, says, status = ENDINGS[ending]
    survivors = all_but(victim)
    job.start([victim], command=python(program), fork=victim != 0)
    for call in job.call("initialize", survivors, device_type="SIM"):
        call.value()
    failed = job.call("wait_failed", survivors)
    job.call("barrier", survivors, name="all are up")
    assert job.wait([victim]) == {victim: status}
    ended_at = time.monotonic()
    for call in failed:
        failure = failure_of(call)
        if says == "process died":
            check_died(failure, victim, ended_at)
        else:
            check_said_goodbye(failure, victim, ended_at)
        assert says in failure.text


@pytest.mark.parametrize(("harm", "says"), [("terminate", "SIGTERM"), ("interrupt", "initialize() was cancelled")])
@pytest.mark.parametrize("victim", [0, 1])
def test_ended_by_a_signal_in_the_rendezvous(job: LocalJob, victim: int, harm: str, says: str) -> None:
    """One client does not come, so that the others are in a phase that lasts."""
    calls = job.call("initialize", [0, 1], device_type="SIM")
    for reached in job.call("reach", [0, 1], phases=["rendezvous"]):
        reached.value()
    getattr(job.clients[victim], harm)()
    assert job.clients[victim].wait() != 0
    failure = calls[1 - victim].error()
    check_said_goodbye(failure, victim, time.monotonic())
    assert says in failure.text


@pytest.mark.parametrize(("harm", "says"), [("terminate", "SIGTERM"), ("interrupt", "initialize() was cancelled")])
def test_ended_by_a_signal_while_devices_come_up(harm: str, says: str) -> None:
    with LocalJob(3, environment={"BRINGUP_SIM_FAULT": "2:slow:60"}) as job:
        job.start()
        calls = job.call("initialize", device_type="SIM")
        for reached in job.call("reach", [0, 1], phases=["merge"]):
            reached.value()
        getattr(job.clients[1], harm)()
        assert job.clients[1].wait() != 0
        for client_id in (0, 2):
            failure = calls[client_id].error()
            check_said_goodbye(failure, 1, time.monotonic())
            assert says in failure.text


STUCK = """
import ctypes, bringup.sync
system = bringup.sync.initialize("SIM", on_failure="exit", heartbeat_interval=0.2, heartbeat_timeout=1.0)
system.barrier("all are up")
ctypes.CDLL(None).sleep(60)
"""


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("fault", ["kill", "stop"])
def test_on_failure_exit_ends_a_program_that_is_stuck_in_native_code(job: LocalJob, fault: str, victim: int) -> None:
    stuck = job.start(all_but(victim), command=python(STUCK))
    job.clients[victim].call("initialize", **FAST).value()
    job.clients[victim].call("barrier", name="all are up").value()
    getattr(job.clients[victim], fault)()
    for client in stuck:
        assert client.wait(TOLD_OF_DEATH) == 70
        assert f"client {victim} (" in client.log.splitlines()[-1]
        assert ("no heartbeat" if fault == "stop" else "process died") in client.log.splitlines()[-1]
    job.clients[victim].kill()


CALLS_BACK = """
import threading, bringup.sync
hooked = threading.Event()
threading.excepthook = lambda raised: (print("raised:", raised.exc_value, flush=True), hooked.set())
def on_failure(error):
    print("on_failure:", type(error).__name__, error.client_id, flush=True)
    raise RuntimeError("of its own")
system = bringup.sync.initialize("SIM", on_failure=on_failure)
system.barrier("all are up")
print("up", flush=True)
hooked.wait(60)
print("failure:", system.failure.client_id)
system.shutdown(raise_on_failure=False)
"""


@pytest.mark.parametrize("victim", [0, 1])
def test_on_failure_calls_back_once_and_leaves_the_program_its_own_master(job: LocalJob, victim: int) -> None:
    programs = job.start(all_but(victim), command=python(CALLS_BACK))
    job.clients[victim].call("initialize", device_type="SIM").value()
    job.clients[victim].call("barrier", name="all are up").value()
    for client in programs:
        client.wait_for("up")
    job.clients[victim].kill()
    error = "CoordinatorLostError" if victim == 0 else "PeerFailedError"
    for client in programs:
        assert client.wait() == 0
        assert client.output.splitlines() == [
            "up",
            f"on_failure: {error} {victim}",
            "raised: of its own",
            f"failure: {victim}",
        ]


@pytest.mark.parametrize("victim", [0, 1])
def test_a_caller_that_holds_the_gil_for_less_than_the_timeout_is_forgiven(job: LocalJob, victim: int) -> None:
    job.initialize(**{**FAST, "heartbeat_timeout": 4.0})
    failed = job.call("wait_failed")
    job.clients[victim].call("hold_gil", seconds=1.2).value()
    check_works(job)
    assert [call.value() for call in job.call("shutdown")] == [None] * 3
    assert [call.value() for call in failed] == [None] * 3


@pytest.mark.parametrize("victim", [0, 1])
def test_a_caller_that_holds_the_gil_for_longer_counts_as_silent(job: LocalJob, victim: int) -> None:
    job.initialize(**FAST)
    failed = job.call("wait_failed", all_but(victim))
    held = job.clients[victim].call("hold_gil", seconds=2.5 * TIMEOUT)
    for call in failed:
        failure = failure_of(call)
        check_names(failure, victim)
        assert f"no heartbeat for {TIMEOUT:.0f}." in failure.text
        assert failure.at < held.answer().at
    assert failure_of(job.clients[victim].call("wait_failed")).error is not None
