"""Every way for a job to end, and the exit status of each of its programs: one whose job has failed never ends with 0.

Client 0 runs a blocking program, client 1 the same on an event loop; client 2 is the one that ends in its own way.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bringup.testing.job import LocalJob

VICTIM = 2

MEET = ("open('up-0', 'w').close()", "open('up-1', 'w').close()", "open('up-0').close(); open('up-1').close()")
"""Pipes by which client 2 waits for the others to leave the barrier: news of its end may overtake the barrier's."""

BLOCKING = """
import os, signal, sys, threading, bringup, bringup.sync
called = threading.Event()
with bringup.sync.initialize("SIM", {arguments}) as system:
    system.barrier("all are up")
    {meet}
    {body}
print("in order")
"""

ON_A_LOOP = """
import asyncio, os, threading, bringup
called = threading.Event()
async def main():
    async with bringup.initialize("SIM", {arguments}) as system:
        await system.barrier("all are up")
        {meet}
        {body}
    print("in order")
asyncio.run(main())
"""

KILLED = "os.kill(os.getpid(), signal.SIGKILL)"
CALLED_BACK = 'on_failure=lambda error: (print("called back"), called.set())'


@dataclass(frozen=True)
class Ending:
    """What client 2 does, what the others do meanwhile (`await` is for the one on a loop), and how all end."""

    victim: str
    others: str
    statuses: tuple[int, int, int]
    logs: tuple[str, ...] = ()
    arguments: str = ""
    outputs: tuple[str, ...] = ("", "")
    absent: tuple[str, ...] = field(default=())


WAITS = "assert ({await}system.wait_failed()).client_id == 2"

ENDINGS = {
    "in order": Ending("pass", "pass", (0, 0, 0), outputs=("in order\n", "in order\n")),
    "it raises, and nobody calls": Ending(
        "raise ZeroDivisionError('step 12')", WAITS, (1, 1, 1), ("PeerFailedError", "ZeroDivisionError: step 12")
    ),
    "it raises, and others raise something else": Ending(
        "raise ZeroDivisionError('step 12')",
        WAITS + "; raise LookupError('own')",
        (1, 1, 1),
        ("LookupError: own", "Moreover, the job has failed: client 2", "ZeroDivisionError: step 12"),
    ),
    "killed, and nobody calls": Ending(
        KILLED,
        "called.wait(60)",
        (1, 1, -signal.SIGKILL),
        ("client 2 (", "process died"),
        CALLED_BACK,
        outputs=("called back\n", "called back\n"),
    ),
    "killed while others wait for it": Ending(
        KILLED, "{await}system.barrier('never')", (1, 1, -signal.SIGKILL), ("process died",), absent=("Moreover",)
    ),
    "killed, which others hear and swallow": Ending(
        KILLED,
        "\n{indent}try: {await}system.barrier('never')\n{indent}except bringup.PeerFailedError: print('heard')",
        (1, 1, -signal.SIGKILL),
        ("process died",),
        outputs=("heard\n", "heard\n"),
    ),
    "killed, which others pardon": Ending(
        KILLED,
        WAITS + "; {await}system.shutdown(raise_on_failure=False); os._exit(0)",
        (0, 0, -signal.SIGKILL),
        ("leaves a job that has failed: client 2", "process died"),
    ),
    "it does not come to the shutdown": Ending(
        "assert system.wait_failed().client_id in (0, 1)",
        "pass",
        (1, 1, 1),
        ("PeerFailedError", "did not join its shutdown within shutdown_timeout=0.5 s"),
        "shutdown_timeout=0.5",
    ),
    "sys.exit(0) of one alone": Ending("sys.exit(0)", WAITS, (1, 1, 0), ("SystemExit: 0",)),
}


def python(ending: Ending, client_id: int) -> list[str]:
    on_a_loop = client_id == 1
    frame, do = ON_A_LOOP if on_a_loop else BLOCKING, ending.victim if client_id == VICTIM else ending.others
    indent = "        " if on_a_loop else "    "
    body = do.replace("{await}", "await " if on_a_loop else "").replace("{indent}", indent)
    return [sys.executable, "-c", frame.format(arguments=ending.arguments, body=body, meet=MEET[client_id])]


@pytest.mark.parametrize("how", ENDINGS)
def test_the_exit_status_says_whether_the_job_failed(how: str, tmp_path: Path) -> None:
    ending = ENDINGS[how]
    for client_id in (0, 1):
        os.mkfifo(tmp_path / f"up-{client_id}")
    with LocalJob(3, fork=True, cwd=tmp_path) as job:
        for client_id in range(3):
            job.start([client_id], command=python(ending, client_id))
        statuses = job.wait()
        others = [job.clients[client_id] for client_id in (0, 1)]
        assert tuple(statuses[client_id] for client_id in range(3)) == ending.statuses, others[0].describe()
        for client, output in zip(others, ending.outputs, strict=True):
            assert client.output == output
            assert all(text in client.log for text in ending.logs), client.log
            assert not any(text in client.log for text in ending.absent), client.log


WITHOUT_SHUTDOWN = """
import os, bringup.sync
system = bringup.sync.initialize("SIM")
system.barrier("all are up")
if system.client_id == 1:
    os._exit(3)
system.wait_failed()
"""


def test_a_program_that_ends_without_shutdown_says_that_its_status_does_not_tell() -> None:
    with LocalJob(2, command=[sys.executable, "-c", WITHOUT_SHUTDOWN], fork=True) as job:
        job.start()
        assert job.wait() == {0: 0, 1: 3}
        assert "client 0 ends without shutdown(), so that its exit status does not tell" in job.clients[0].log
        assert "client 1 (" in job.clients[0].log
