"""Clients with children, as data loaders have them: a child holds nothing of the job, and no call of it works.

Without that, the sockets that a child inherits keep a dead client's connections open and its ports taken.
"""

from __future__ import annotations

import json
import time

import pytest

from bringup.testing.job import LocalJob

from .assertions import all_but, check_died, check_works, failure_of, restart
from .test_shutdown import python

PROGRAM = """
import json, multiprocessing, os, signal, socket, subprocess, sys

SOCKETS = '''
import json, os, socket
def of_the_internet():
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            sock = socket.socket(fileno=int(name))
        except OSError:
            continue
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            found.append(str(sock.getsockname()))
        sock.detach()
    return found
'''
exec(SOCKETS)

def child():
    print("child", json.dumps(of_the_internet()), flush=True)
    signal.pause()

if __name__ == "__main__":
    import bringup.sync
    own = socket.create_server(("127.0.0.1", 0))  # the program's own sockets are none of our business
    system = bringup.sync.initialize("SIM", heartbeat_timeout=30.0)
    system.barrier("all are up")
    system.all_reduce([1])
    system.kv.set("a", "b")
    how = sys.argv[1]
    if how == "fork":
        if os.fork() == 0:
            child()
    elif how == "subprocess":
        subprocess.Popen([sys.executable, "-c", SOCKETS + '''
import signal
print("child", json.dumps(of_the_internet()), flush=True)
signal.pause()
'''], close_fds=False)
    else:
        multiprocessing.get_context(how).Process(target=child).start()
    signal.pause()
"""


@pytest.mark.parametrize(("victim", "how"), [(0, "fork"), (1, "fork"), (1, "spawn"), (0, "subprocess")])
def test_a_client_that_dies_is_dead_while_its_child_lives(
    job: LocalJob, victim: int, how: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    program = tmp_path_factory.mktemp("forks") / "program.py"
    program.write_text(PROGRAM)
    (forks,) = job.start([victim], command=[*python("")[:-2], str(program), how], fork=how == "fork")
    others = all_but(victim)
    for name, arguments in (
        ("initialize", {"device_type": "SIM", "heartbeat_timeout": 30.0}),
        ("barrier", {"name": "all are up"}),
        ("all_reduce", {"array": [1]}),
    ):
        for call in job.call(name, others, **arguments):
            call.value()
    failed = job.call("wait_failed", others)
    sockets = json.loads(forks.wait_for("child ").split(" ", 1)[1])
    assert len(sockets) == (1 if how == "fork" else 0), sockets
    killed_at = time.monotonic()
    forks.kill()
    for call in failed:
        check_died(failure_of(call), victim, killed_at)
    restart(job, [victim])
    job.initialize(device_type="SIM")
    check_works(job)


CALLS = """
import os, sys, bringup, bringup.sync
system = bringup.sync.initialize("SIM")
calls = {
    "members": lambda: system.members,
    "failure": lambda: system.failure,
    "wait_failed": system.wait_failed,
    "barrier": lambda: system.barrier("b"),
    "all_reduce": lambda: system.all_reduce([1]),
    "kv": lambda: system.kv.get("a"),
    "live_clients": system.live_clients,
    "report_progress": lambda: system.report_progress(1),
    "announce_preemption": system.announce_preemption,
    "reached_preemption_point": lambda: system.reached_preemption_point(1),
    "current": bringup.sync.current,
    "current system": bringup.current,
    "initialize": lambda: bringup.sync.initialize("SIM"),
}
child = os.fork()
if child == 0:
    for name, call in calls.items():
        try:
            print(name, "returned", call(), flush=True)
        except bringup.NotInitializedError as error:
            if f"was forked from process {os.getppid()}" not in str(error):
                print(name, error, flush=True)
    assert system.num_clients == 3 and len(system.devices) > 3 and system.job_id and system.timeline
    assert system.client_id == 1 and "client 1 of 3" in repr(system)
    system.shutdown()
    os._exit(0)
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
system.all_reduce([1])
system.shutdown()
"""


def test_every_call_of_a_forked_child_says_that_it_is_one(job: LocalJob) -> None:
    (forks,) = job.start([1], command=python(CALLS))
    others = all_but(1)
    for call in job.call("initialize", others, device_type="SIM"):
        call.value()
    for call in job.call("all_reduce", others, array=[1]):
        call.value()
    for call in job.call("shutdown", others):
        call.value()
    assert forks.wait() == 0, forks.describe()
    assert forks.output == "child 0\n"
