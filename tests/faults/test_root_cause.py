"""`bringup run` names the root cause of a failed job in the first line of its summary, and ends with its status."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest

STILL_RUNNING_AFTER = 60.0

COMES_UP = """
import atexit, os, signal, sys, threading
import bringup
client_id = int(os.environ["BRINGUP_CLIENT_ID"])
def up(**options):
    return bringup.sync.initialize("SIM", heartbeat_interval=0.2, **options)
"""


def run(
    body: str, *, num_clients: int = 3, arguments: tuple[str, ...] = (), environment: Mapping[str, str] | None = None
) -> tuple[int, list[str], str]:
    """Run `body` on all clients; return the exit status, the launcher's lines, and all of stderr."""
    code = COMES_UP + textwrap.dedent(body)
    command = ["-m", "bringup", "run", "-n", str(num_clients), *arguments, "--", sys.executable, "-P", "-c", code]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("BRINGUP_")}
    done = subprocess.run(
        [sys.executable, "-P", *command],
        capture_output=True,
        check=False,
        timeout=STILL_RUNNING_AFTER,
        text=True,
        env={**inherited, **(environment or {})},
    )
    lines = [line.removeprefix("bringup: ") for line in done.stderr.splitlines() if line.startswith("bringup: ")]
    return done.returncode, lines, done.stderr


def check_first(lines: list[str], client_id: int, text: str) -> None:
    assert lines, "the launcher said nothing"
    found = re.fullmatch(rf"client {client_id} \(process \d+ on \S+\) {text}", lines[0])
    assert found, lines


def test_an_exception_is_named_with_its_last_lines() -> None:
    body = """
    def step(batch):
        raise ValueError(f"bad batch {batch}")
    with up() as system:
        if client_id == 2:
            step(31)
        system.barrier("the others wait here")
    """
    status, lines, _ = run(body, num_clients=4)
    check_first(lines, 2, "failed first: ValueError: bad batch 31")
    assert any(", in step" in line for line in lines[1:-1])
    assert re.fullmatch(r"clients 0-1, 3 failed because of it \(\w+\)", lines[-1]), lines
    assert status == 1


def test_the_coordinator_may_be_it() -> None:
    body = """
    with up() as system:
        if client_id == 0:
            raise KeyError("no such weight")
        system.barrier("the others wait here")
    """
    status, lines, _ = run(body)
    check_first(lines, 0, "failed first: KeyError: 'no such weight'")
    assert lines[-1].startswith("clients 1-2 failed because of it")
    assert status == 1


@pytest.mark.parametrize(
    ("culprit", "end", "how", "status"),
    [
        (1, "os._exit(7)", "with status 7", 7),
        (0, "os.kill(os.getpid(), signal.SIGKILL)", "with SIGKILL", 128 + signal.SIGKILL),
        (1, "sys.exit('no more data')", "with status 1", 1),
    ],
)
def test_an_end_without_an_exception_is_named_with_its_status(culprit: int, end: str, how: str, status: int) -> None:
    body = f"""
    system = up()
    system.barrier("all are up")
    if client_id == {culprit}:
        {end}
    system.barrier("the others wait here")
    """
    found, lines, _ = run(body)
    check_first(lines, culprit, f"failed first, {how}")
    assert "because of it" in lines[-1]
    assert found == status
    assert ("  no more data" in lines) == ("no more data" in end)


def test_a_program_that_catches_the_failure_and_exits_is_no_culprit() -> None:
    body = """
    system = up()
    system.barrier("all are up")
    if client_id == 2:
        # Its own end is held up, so that the others end before it.
        system._client.abort(RuntimeError("half a death"))
        threading.Event().wait(1.0)
        os._exit(9)
    try:
        system.barrier("the others wait here")
    except bringup.PeerFailedError:
        os._exit(3)
    """
    status, lines, _ = run(body)
    check_first(lines, 2, "failed first, with status 9")
    assert re.fullmatch(r"clients 0-1 failed because of it \(PeerFailedError\)", lines[-1]), lines
    assert status == 9


def test_a_client_that_stalls_is_named_though_it_ends_last() -> None:
    body = """
    system = up(stall_timeout=1.0)
    for step in range(1000):
        system.report_progress(step)
        if client_id == 1 and step == 3:
            threading.Event().wait()
        system.barrier("step")
    """
    status, lines, _ = run(body)
    check_first(lines, 1, r"failed first: no progress for .* \(stall_timeout=1 s\).*")
    assert "clients 0, 2 failed because of it (PeerFailedError)" in lines
    assert status == 1


def test_a_client_that_never_comes_is_named() -> None:
    body = """
    if client_id == 1:
        threading.Event().wait()
    up(initialization_timeout=2.0)
    """
    status, lines, _ = run(body)
    check_first(lines, 1, r"did not come to the job: it had not called initialize\(\)")
    assert "clients 0, 2 failed because of it (RendezvousTimeoutError)" in lines
    assert status == 1


def test_devices_that_fail_are_named() -> None:
    body = """
    system = up(unhealthy_action="fail", health_interval=0.05, on_failure="exit" if client_id == 0 else "raise")
    system.barrier("never" if client_id else "ever")
    """
    status, lines, _ = run(body, environment={"BRINGUP_SIM_FAULT": "0:degrade:0.2:ECC errors"})
    check_first(lines, 0, "failed first: DeviceFailedError: the devices of client 0 .*ECC errors.*")
    assert lines[-1] == "clients 1-2 failed because of it (DeviceFailedError)"
    assert status == 70


def test_a_client_that_ends_before_it_came_ends_the_job_at_once() -> None:
    body = """
    if client_id == 1:
        sys.exit(0)
    up(initialization_timeout=300.0)
    """
    status, lines, _ = run(body)
    check_first(lines, 1, r"ended with status 0 before initialize\(\), so that the job cannot come up")
    assert lines[1:] == ["clients 0, 2 waited for it in vain, and were ended"]
    assert status == 1


def test_a_client_that_fails_before_it_came_is_named_with_its_last_lines() -> None:
    body = """
    if client_id == 2:
        others = [f"{os.environ['BRINGUP_LAUNCHER'][:-1]}{other}.state" for other in (0, 1)]
        while not all(map(os.path.exists, others)):
            threading.Event().wait(0.02)
        raise RuntimeError("no data on this host")
    if client_id == 1:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends as client 0 has ended, and says so
    up(initialization_timeout=300.0)
    """
    status, lines, _ = run(body)
    check_first(lines, 2, "failed first, with status 1")
    assert lines[-2:] == ["  RuntimeError: no data on this host", "clients 0-1 were ended because of it"]
    assert status == 1


def test_clients_that_left_in_order_are_nobodys_victims() -> None:
    body = """
    with up() as system:
        system.barrier("saved")
    if client_id != 1:
        threading.Event().wait(1.0)  # they end after it, by themselves
    sys.exit(75)
    """
    status, lines, _ = run(body)
    assert lines == ["clients 0-2 left the job in order, and ended with status 75"]
    assert status == 75


def test_torchrun_is_told_in_its_own_format(tmp_path: Path) -> None:
    body = """
    os.environ["TORCHELASTIC_ERROR_FILE"] = f"{os.environ['FOLDER']}/{client_id}.json"
    seen = []
    sys.excepthook = lambda kind, error, trace: seen.append(kind)
    atexit.register(lambda: print("own hook", seen, file=sys.stderr))
    with up() as system:
        if client_id == 1:
            raise ValueError("bad batch 31")
        system.barrier("the others wait here")
    """
    _, lines, errors = run(body, num_clients=2, environment={"FOLDER": str(tmp_path)})
    reports = [json.loads((tmp_path / f"{client_id}.json").read_text()) for client_id in (0, 1)]
    messages = [one["message"]["message"] for one in reports]
    assert messages[0].startswith("PeerFailedError: client 1 ")
    assert messages[1] == "ValueError: bad batch 31"
    extra = [one["message"]["extraInfo"] for one in reports]
    assert all(set(one) == {"py_callstack", "timestamp"} for one in extra)
    assert extra[1]["py_callstack"].startswith("Traceback (most recent call last):\n")
    assert int(extra[1]["timestamp"]) < int(extra[0]["timestamp"]), "torchrun takes the smallest for the root cause"
    assert "[1] own hook [<class 'ValueError'>]" in errors
    check_first(lines, 1, "failed first: ValueError: bad batch 31")
