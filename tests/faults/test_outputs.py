"""Terminals that are stopped, pipes that nobody reads, outputs that are closed or broken: nobody waits for them."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Mapping

import pytest

from bringup.testing.job import LocalJob

KINDS = ("good", "stopped terminal", "full pipe", "full pipe, logging set up", "broken pipe", "closed", "none")
VICTIM = len(KINDS)
"""The client that comes last, and is killed."""

SPOILED = """
import bringup, fcntl, logging, os, pty, sys, termios, threading
from bringup.runtime.client import progress
for name in ("_PATIENCE", "_LINE_PATIENCE", "_LOG_PATIENCE", "_LOG_INTERVAL"):
    setattr(progress, name, 0.1)
log = logging.getLogger("bringup")
out = os.fdopen(os.dup(1), "w", buffering=1)
kind, streams = sys.argv[1], sys.argv[2].split()
numbers = [{"stdout": 1, "stderr": 2}[name] for name in streams]
if kind == "stopped terminal":
    ours, theirs = pty.openpty()
    for number in numbers: os.dup2(theirs, number)
    termios.tcflow(theirs, termios.TCOOFF)
elif kind.startswith("full pipe"):
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    for step in (4096, 1):
        try:
            while True: os.write(writing, b"x" * step)
        except BlockingIOError: pass
    os.set_blocking(writing, True)
    for number in numbers: os.dup2(writing, number)
    if "logging" in kind: logging.basicConfig(level=logging.INFO)
elif kind == "broken pipe":
    reading, writing = os.pipe()
    os.close(reading)
    for number in numbers: os.dup2(writing, number)
elif kind == "closed":
    for name in streams: getattr(sys, name).close()
elif kind == "none":
    for name in streams: setattr(sys, name, None)
def start():
    return bringup.sync.initialize("SIM", heartbeat_interval=0.2, heartbeat_timeout=1.0, on_failure=ON_FAILURE)
"""


def program(body: str, on_failure: str) -> list[str]:
    code = SPOILED.replace("ON_FAILURE", repr(on_failure)) + textwrap.dedent(body)
    return [sys.executable, "-P", "-c", code]


@pytest.fixture
def job() -> Iterator[LocalJob]:
    with LocalJob(VICTIM + 1, fork=True) as job:
        yield job


def start(job: LocalJob, body: str, streams: str, on_failure: str, kinds: Mapping[int, str]) -> None:
    for client_id, kind in kinds.items():
        job.start([client_id], command=[*program(body, on_failure), kind, streams])


def test_a_job_comes_up_and_ends_in_order_whatever_becomes_of_what_it_has_to_say(job: LocalJob) -> None:
    body = """
    threading.Timer(2.5, lambda: print("waited", file=out)).start()
    with start() as system:
        system.barrier("up")
        print("up", file=out)
    """
    # They wait for the last, and say so, for longer than a client may be silent.
    start(job, body, "stderr", "raise", dict(enumerate(KINDS)))
    for client_id in range(VICTIM):
        job.clients[client_id].wait_for("waited")
    start(job, body, "stderr", "raise", {VICTIM: "good"})
    statuses = job.wait()
    said = {client_id: client.output.split() for client_id, client in job.clients.items()}
    assert statuses == dict.fromkeys(range(VICTIM + 1), 0), said
    assert all("up" in words for words in said.values())


def test_on_failure_exit_ends_a_client_whatever_has_become_of_its_output(job: LocalJob) -> None:
    body = """
    system = start()
    if kind == "good":
        sys.stdout = open(1, "w", buffering=8192, closefd=False)
        sys.stdout.write("kept back")
    print("up", file=out)
    threading.Event().wait()
    """
    start(job, body, "stdout stderr", "exit", dict(enumerate((*KINDS, "good"))))
    for client in job.clients.values():
        client.wait_for("up")
    job.clients[VICTIM].kill()
    assert job.wait(range(VICTIM)) == dict.fromkeys(range(VICTIM), 70)
    assert f"bringup: client 0 ends with status 70: client {VICTIM} (" in job.clients[0].log
    assert job.clients[0].output.endswith("kept back")


@pytest.mark.parametrize("how", ["'exit'", "lambda error: os._exit(70)"])
def test_a_coordinator_that_ends_because_of_its_own_devices_has_told_the_others_why(how: str) -> None:
    code = f"""
import bringup, os, threading
is_first = os.environ["BRINGUP_CLIENT_ID"] == "0"
system = bringup.sync.initialize(
    "SIM", unhealthy_action="fail", health_interval=0.05, on_failure={how} if is_first else "raise"
)
if is_first:
    threading.Event().wait()
print(type(system.wait_failed()).__name__)
"""
    fault = {"BRINGUP_SIM_FAULT": "0:degrade:0.2:ECC errors"}
    with LocalJob(3, command=[sys.executable, "-P", "-c", code], environment=fault, fork=True) as job:
        job.start()
        assert job.wait() == {0: 70, 1: 0, 2: 0}
        assert [job.clients[client_id].output for client_id in (1, 2)] == ["DeviceFailedError\n"] * 2
